package proxy

import (
	"fmt"
	"io"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/source/kube"
)

// format is how the server writes the objects of one resource in one representation. It is a runtime.Codec of
// documents.
type format struct {
	kind schema.GroupVersionKind
	representation
	namespaced bool
	dynamic    bool // see readpath.Resource.Dynamic
	fields     []selectable
	// bookmark and listEnd are how the server writes the objects of bookmarks, the second of the one that ends a
	// streaming list. Both are nil if that is not known.
	bookmark, listEnd []byte
	// unknownMetadata is true once an object was read whose metadata has members that are not known here, so that
	// PartialObjectMetadata can't be made of it.
	unknownMetadata atomic.Bool
}

// encoding is how objects are encoded: jsonEncoding or protobufEncoding.
type encoding interface {
	protobuf() bool
	// item returns a copy of an object's text as it stands in a list.
	item(f *format, text []byte) []byte
	// decode reads the text of a document: its metadata, their place, and the selectable fields.
	decode(o *document) error
	// withVersion returns the text of a document with its present resourceVersion.
	withVersion(o *document) []byte
	// metadataOnly returns an object of which only metadata is known.
	metadataOnly(f *format, m *metav1.ObjectMeta) ([]byte, error)
	// partial returns the PartialObjectMetadata of a document.
	partial(o *document) []byte
	// withoutAnnotations returns the text of a document without its annotations.
	withoutAnnotations(o *document) []byte
}

func encodingOf(protobuf bool) encoding {
	if protobuf {
		return protobufEncoding{}
	}
	return jsonEncoding{}
}

func newFormat(about *resource, as representation) *format {
	f := &format{kind: about.kind, representation: as, namespaced: about.namespaced, dynamic: about.dynamic,
		fields: selectableFields[about.kind]}
	f.setBookmarks(about.listEnds[as.encoding])
	return f
}

// setBookmarks records how the server writes bookmarks, given the object of one that ends a streaming list. It
// records nothing of an object that is not understood.
func (f *format) setBookmarks(object []byte) {
	if object == nil {
		return
	}
	end, err := f.parse(f.encoding.item(f, object))
	if err != nil || end.Annotations[metav1.InitialEventsAnnotationKey] != "true" || len(end.Annotations) > 1 {
		return
	}
	without := f.encoding.withoutAnnotations(end)
	if plain, err := f.parse(without); err == nil && len(plain.Annotations) == 0 {
		f.bookmark, f.listEnd = without, end.text
	}
}

// bookmarkLike returns how the server writes the object of a bookmark with some metadata, nil if that is not known.
func (f *format) bookmarkLike(m *metav1.ObjectMeta) []byte {
	if m.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		return f.listEnd
	}
	return f.bookmark
}

// item returns the text of an object as it stands in a list. It copies the text. It fails if that is in another
// encoding.
func (f *format) item(raw kube.Raw) ([]byte, error) {
	if (raw.Encoding == kube.Protobuf) != f.encoding.protobuf() {
		return nil, fmt.Errorf("the server sent %v", raw.Encoding)
	}
	return f.encoding.item(f, raw.Body), nil
}

// parse returns the document with a text, which it retains.
func (f *format) parse(text []byte) (*document, error) {
	o := &document{format: f, text: text, selected: fields.Set{}}
	for _, s := range f.fields {
		o.selected[s.label] = s.absent
	}
	if err := f.encoding.decode(o); err != nil {
		return nil, err
	}
	if o.original = o.ResourceVersion; o.original == "" {
		return nil, errNoVersion
	}
	return o, nil
}

// Decode decodes the text of an object.
func (f *format) Decode(text []byte, _ *schema.GroupVersionKind,
	_ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, err := f.parse(text)
	if err != nil {
		return nil, nil, err
	}
	return o, &f.kind, nil
}

// Encode writes an object as it stands in a list.
func (f *format) Encode(o runtime.Object, w io.Writer) error {
	d, ok := o.(*document)
	if !ok {
		return fmt.Errorf("a %T is no document", o)
	}
	text, err := d.item()
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Identifier names the codec.
func (f *format) Identifier() runtime.Identifier { return "keepwatch-document" }

func (f *format) newDocument() runtime.Object { return &document{format: f} }

// attributes returns the labels and fields that selectors use.
func (f *format) attributes(o runtime.Object) (labels.Set, fields.Set, error) {
	d, ok := o.(*document)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is no document", o)
	}
	set := fields.Set{"metadata.name": d.Name}
	if d.Namespace != "" {
		set["metadata.namespace"] = d.Namespace
	}
	for label, value := range d.selected {
		set[label] = value
	}
	return d.Labels, set, nil
}

// fieldLabel checks one term of a field selector. The server words the error about others.
func (f *format) fieldLabel(label, value string) (string, string, error) {
	if label == "metadata.name" || label == "metadata.namespace" && f.namespaced { // not all others know it
		return label, value, nil
	}
	for _, s := range f.fields {
		if s.label == label {
			return label, value, nil
		}
	}
	return "", "", fmt.Errorf("field label not known: %s", label)
}
