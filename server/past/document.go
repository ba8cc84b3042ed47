package past

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/history"
)

var _ watchcache.Verbatim = (*document)(nil)

// document is an object as the history has it: in JSON as it stands in a list of the API server. Only what a watch
// cache needs is decoded: names, labels and times of the metadata, and the fields that selectors can name.
type document struct {
	metav1.ObjectMeta
	format   *format
	text     []byte // as it stands in a list; nil if there is only metadata
	original string // the resourceVersion in text
	selected fields.Set
}

func (o *document) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// Protobuf reports that the text is JSON.
func (o *document) Protobuf() bool { return false }

func (o *document) DeepCopyObject() runtime.Object {
	c := *o
	c.ObjectMeta = *o.ObjectMeta.DeepCopy()
	return &c
}

// MarshalJSON returns the object as it stands in a list.
func (o *document) MarshalJSON() ([]byte, error) {
	switch {
	case o.text != nil && o.ResourceVersion == o.original:
		return o.text, nil
	case o.text != nil:
		return history.WithRevision(o.text, o.ResourceVersion), nil
	}
	return o.format.metadataOnly(&o.ObjectMeta)
}

// Metadata returns the object's PartialObjectMetadata as it stands in a list.
func (o *document) Metadata(protobuf bool) ([]byte, error) {
	if protobuf {
		return nil, errors.New("a history has no protobuf")
	}
	text, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	partial := metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String()},
	}
	if err := json.Unmarshal(text, &struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}{&partial.ObjectMeta}); err != nil {
		return nil, err
	}
	return json.Marshal(&partial)
}

// format is how the objects of one resource are written. It is a runtime.Codec of documents.
type format struct {
	kind       schema.GroupVersionKind
	namespaced bool
	// dynamic is true for custom resources, whose objects name their kind in lists, too, and have their members in
	// alphabetical order.
	dynamic bool
	fields  []selectable
}

// prefixes are how objects of a built-in kind begin: as the server sends an event, and as sync completes an item of a
// list.
func (f *format) prefixes() [2]string {
	kind, version := f.kind.Kind, f.kind.GroupVersion().String()
	return [2]string{
		fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, kind, version), fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, version, kind),
	}
}

// item returns the text of an object as it stands in a list. A text whose members are in another order, as jsonb has
// them, is written again.
func (f *format) item(text []byte) ([]byte, error) {
	if f.dynamic && bytes.HasPrefix(text, []byte(`{"apiVersion":"`)) {
		return text, nil
	}
	if !f.dynamic {
		for _, prefix := range f.prefixes() {
			if rest, ok := bytes.CutPrefix(text, []byte(prefix)); ok {
				return append([]byte{'{'}, rest...), nil
			}
		}
	}
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&members); err != nil {
		return nil, err
	}
	if !f.dynamic {
		delete(members, "kind")
		delete(members, "apiVersion")
	}
	return json.Marshal(members)
}

func (f *format) metadataOnly(m *metav1.ObjectMeta) ([]byte, error) {
	if !f.dynamic {
		return json.Marshal(struct {
			Metadata *metav1.ObjectMeta `json:"metadata"`
		}{m})
	}
	return json.Marshal(struct {
		APIVersion string             `json:"apiVersion"`
		Kind       string             `json:"kind"`
		Metadata   *metav1.ObjectMeta `json:"metadata"`
	}{f.kind.GroupVersion().String(), f.kind.Kind, m})
}

// Decode decodes of the text of an object what a watch cache needs, and skips the rest.
func (f *format) Decode(text []byte, _ *schema.GroupVersionKind,
	_ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o := &document{format: f, text: text}
	values := map[string]string{}
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	found := false
	err := eachMember(d, func(name string) error {
		if name != "metadata" {
			return readFields(d, name, f.fields, values)
		}
		found = true
		return o.decodeMetadata(d)
	})
	if err == nil && !found {
		err = errors.New("the object has no metadata")
	}
	if err == nil {
		if _, err = d.ReadToken(); err == io.EOF {
			err = nil
		} else if err == nil {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		return nil, nil, err
	}
	o.original = o.ResourceVersion
	o.selected = selectedFields(f.fields, values)
	return o, &f.kind, nil
}

// eachMember calls read for each member of an object, whose value read must read.
func eachMember(d *jsontext.Decoder, read func(name string) error) error {
	if open, err := d.ReadToken(); err != nil {
		return err
	} else if open.Kind() != '{' {
		return fmt.Errorf("a JSON object was expected at byte %d", d.InputOffset())
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// decodeMetadata decodes the value of metadata.
func (o *document) decodeMetadata(d *jsontext.Decoder) error {
	err := eachMember(d, func(name string) error {
		var into any
		switch name {
		case "name":
			into = &o.Name
		case "namespace":
			into = &o.Namespace
		case "uid":
			into = &o.UID
		case "resourceVersion":
			into = &o.ResourceVersion
		case "creationTimestamp":
			into = &o.CreationTimestamp
		case "deletionTimestamp":
			into = &o.DeletionTimestamp
		case "labels":
			into = &o.Labels
		case "annotations":
			into = &o.Annotations
		default: // managedFields are half of an object
			return d.SkipValue()
		}
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		return json.Unmarshal(value, into)
	})
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// Encode writes an object as it stands in a list.
func (f *format) Encode(o runtime.Object, w io.Writer) error {
	d, ok := o.(*document)
	if !ok {
		return fmt.Errorf("a %T is no document", o)
	}
	text, err := d.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// Identifier names the codec.
func (f *format) Identifier() runtime.Identifier { return "keepwatch-past" }

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

// fieldLabel checks one term of a field selector.
func (f *format) fieldLabel(label, value string) (string, string, error) {
	if label == "metadata.name" || label == "metadata.namespace" && f.namespaced {
		return label, value, nil
	}
	for _, s := range f.fields {
		if s.label == label {
			return label, value, nil
		}
	}
	return "", "", fmt.Errorf("field label not supported: %s", label)
}
