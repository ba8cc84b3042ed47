package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/watchcache"
)

var _ watchcache.Verbatim = (*document)(nil)

// document is an object as the server sent it. Of its content, only what a watch cache needs is decoded: the
// metadata without managedFields, and the fields that selectors can name.
type document struct {
	metav1.ObjectMeta
	format   *format
	text     []byte // as it stands in a list; nil if there is only metadata
	version  span   // in text: the JSON string of metadata.resourceVersion
	original string // the resourceVersion in text
	selected fields.Set
}

// span is a range of a text.
type span struct{ from, to int64 }

func (o *document) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (o *document) Protobuf() bool                   { return false }

func (o *document) DeepCopyObject() runtime.Object {
	c := *o
	c.ObjectMeta = *o.ObjectMeta.DeepCopy()
	return &c
}

// MarshalJSON returns the text with the object's resourceVersion, which is another one in the event of a
// deletion.
func (o *document) MarshalJSON() ([]byte, error) {
	if o.text == nil {
		return o.format.metadataOnly(&o.ObjectMeta)
	}
	if o.ResourceVersion == o.original {
		return o.text, nil
	}
	b := make([]byte, 0, len(o.text)+8)
	b = append(b, o.text[:o.version.from]...)
	b, err := jsontext.AppendQuote(b, o.ResourceVersion)
	return append(b, o.text[o.version.to:]...), err
}

// format is how the server writes the objects of one resource as JSON. It is a runtime.Codec of documents.
type format struct {
	kind    schema.GroupVersionKind
	dynamic bool   // see readpath.Resource.Dynamic
	typed   string // how an object on its own begins, if not dynamic
	fields  []selectable
}

func newFormat(kind schema.GroupVersionKind, dynamic bool) *format {
	f := &format{kind: kind, dynamic: dynamic, fields: selectableFields[kind]}
	if !dynamic {
		f.typed = fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, kind.Kind, kind.GroupVersion().String())
	}
	return f
}

// item returns the text of an object as it stands in a list, where objects of built-in kinds do not name
// their kind. It copies the text.
func (f *format) item(raw kube.Raw) []byte {
	text := raw.Body
	if f.dynamic || !bytes.HasPrefix(text, []byte(f.typed)) {
		return bytes.Clone(text)
	}
	item := make([]byte, 0, len(text)-len(f.typed)+1)
	return append(append(item, '{'), text[len(f.typed):]...)
}

// metadataOnly returns an object of which only metadata is known.
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

// Decode decodes the text of an object.
func (f *format) Decode(text []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o := &document{format: f, text: text, selected: fields.Set{}}
	for _, s := range f.fields {
		o.selected[s.label] = s.absent
	}
	if err := o.decode(); err != nil {
		return nil, nil, err
	}
	return o, &f.kind, nil
}

// Encode writes an object as MarshalJSON does.
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
	if label == "metadata.name" || label == "metadata.namespace" {
		return label, value, nil
	}
	for _, s := range f.fields {
		if s.label == label {
			return label, value, nil
		}
	}
	return "", "", fmt.Errorf("field label not known: %s", label)
}

// decode reads the text. Members that nothing needs are skipped.
func (o *document) decode() error {
	d := jsontext.NewDecoder(bytes.NewBuffer(o.text))
	err := members(d, func(name string) error {
		if name == "metadata" {
			return o.decodeMetadata(d)
		}
		return o.decodeFields(d, name)
	})
	if err == nil && o.original == "" {
		err = errors.New("the object has no resourceVersion")
	}
	return err
}

// decodeMetadata reads the value of "metadata".
func (o *document) decodeMetadata(d *jsontext.Decoder) error {
	needed := []byte{'{'}
	err := members(d, func(name string) error {
		if name == "managedFields" { // half of an object, and no use of it here
			return d.SkipValue()
		}
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		if end := d.InputOffset(); name == "resourceVersion" {
			o.version = span{end - int64(len(value)), end}
		}
		if len(needed) > 1 {
			needed = append(needed, ',')
		}
		needed, _ = jsontext.AppendQuote(needed, name)
		needed = append(append(needed, ':'), value...)
		return nil
	})
	if err != nil {
		return err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(append(needed, '}'), &o.ObjectMeta); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	o.original = o.ResourceVersion
	return nil
}

// decodeFields reads a value for the selectable fields that are in it. path ends there.
func (o *document) decodeFields(d *jsontext.Decoder, path string) error {
	within := false
	for _, s := range o.format.fields {
		if s.path == path {
			return o.decodeField(d, s)
		}
		within = within || strings.HasPrefix(s.path, path+".")
	}
	if !within || d.PeekKind() != '{' {
		return d.SkipValue()
	}
	return members(d, func(name string) error { return o.decodeFields(d, path+"."+name) })
}

// decodeField reads the value of a selectable field: a string, or true or false.
func (o *document) decodeField(d *jsontext.Decoder, s selectable) error {
	value, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch value.Kind() {
	case '"', 't', 'f':
		o.selected[s.label] = value.String()
		return nil
	case 'n':
		return nil
	}
	return fmt.Errorf("%s is no string and no boolean", s.path)
}

// members calls read for each member of an object, whose value read must read. null has none.
func members(d *jsontext.Decoder, read func(name string) error) error {
	open, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch open.Kind() {
	case 'n':
		return nil
	case '{':
	default:
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
	_, err = d.ReadToken()
	return err
}
