package verbatim

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

var _ watchcache.Verbatim = (*document)(nil)

// document is an object as the server sent it, in the encoding of its format. Of its content, only what a watch cache
// needs is decoded: the metadata without managedFields, and the fields that selectors can name.
type document struct {
	metav1.ObjectMeta
	format   *Format
	text     []byte // as it stands in a list; nil if there is only metadata
	metadata span   // in text: the value of metadata; in protobuf the field
	version  span   // in text: the value of metadata.resourceVersion; in protobuf the field
	original string // the resourceVersion in text
	selected fields.Set
}

// span is a range of a text.
type span struct{ from, to int }

var (
	errNoVersion       = errors.New("the object has no resourceVersion")
	errOtherEncoding   = errors.New("the object has another encoding")
	errUnknownMetadata = errors.New("the object's metadata has members that are not known here")
)

func (o *document) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// Protobuf reports whether the text is a protobuf message.
func (o *document) Protobuf() bool { return o.format.Encoding.Protobuf() }

func (o *document) DeepCopyObject() runtime.Object {
	c := *o
	c.ObjectMeta = *o.ObjectMeta.DeepCopy()
	return &c
}

// MarshalJSON returns the object as it stands in a list, if its encoding is JSON.
func (o *document) MarshalJSON() ([]byte, error) {
	if o.Protobuf() {
		return nil, errOtherEncoding
	}
	return o.item()
}

// Marshal returns the object as it stands in a list, if its encoding is protobuf.
func (o *document) Marshal() ([]byte, error) {
	if !o.Protobuf() {
		return nil, errOtherEncoding
	}
	return o.item()
}

// item returns the text with the object's resourceVersion, which is another one in the event of a deletion, and in a
// bookmark.
func (o *document) item() ([]byte, error) {
	switch {
	case o.text != nil && o.ResourceVersion == o.original:
		return o.text, nil
	case o.text != nil:
		return o.format.Encoding.withVersion(o), nil
	}
	if like := o.format.bookmarkLike(&o.ObjectMeta); o.Name == "" && like != nil {
		bookmark, err := o.format.parse(like)
		if err != nil {
			return nil, err
		}
		bookmark.ResourceVersion = o.ResourceVersion
		return bookmark.item()
	}
	return o.format.Encoding.metadataOnly(o.format, &o.ObjectMeta)
}

// Metadata returns the object's PartialObjectMetadata as it stands in a list. It is cut from the text, except for
// custom resources, whose metadata has another order there.
func (o *document) Metadata(protobuf bool) ([]byte, error) {
	if o.text == nil || o.ResourceVersion != o.original {
		text, err := o.item()
		if err != nil {
			return nil, err
		}
		if o, err = o.format.parse(text); err != nil {
			return nil, err
		}
	}
	switch {
	case o.format.Dynamic:
		return o.convertMetadata(protobuf)
	case protobuf != o.Protobuf():
		return nil, errOtherEncoding
	}
	return o.format.Encoding.partial(o), nil
}

// convertMetadata returns the PartialObjectMetadata of a custom resource.
func (o *document) convertMetadata(protobuf bool) ([]byte, error) {
	partial := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata",
		APIVersion: metav1.SchemeGroupVersion.String()}}
	unknown, err := kjson.UnmarshalStrict(o.text[o.metadata.from:o.metadata.to], &partial.ObjectMeta)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		o.format.unknownMetadata.Store(true)
		return nil, errUnknownMetadata
	}
	if protobuf {
		return partial.Marshal()
	}
	return json.Marshal(&partial)
}

// DecodeJSON decodes the text of a document in JSON, as the server decodes what it has stored.
func DecodeJSON(o runtime.Object, into any) error {
	d, ok := o.(*document)
	if !ok {
		return fmt.Errorf("a %T is no document", o)
	}
	text, err := d.MarshalJSON()
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(text, into)
}
