package verbatim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// JSON is JSON as the server writes it.
type JSON struct{}

// Protobuf returns false.
func (JSON) Protobuf() bool { return false }

// item removes the kind, which objects of built-in kinds do not name in lists, and others do.
func (JSON) item(f *Format, text []byte) []byte {
	if f.Dynamic {
		return bytes.Clone(text)
	}
	rest, named := bytes.CutPrefix(text, fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, f.kind.Kind,
		f.kind.GroupVersion().String()))
	if !named {
		return bytes.Clone(text)
	}
	item := make([]byte, 0, len(rest)+1)
	return append(append(item, '{'), rest...)
}

func (JSON) withVersion(o *document) []byte {
	b := make([]byte, 0, len(o.text)+8)
	b = append(b, o.text[:o.version.from]...)
	b, _ = jsontext.AppendQuote(b, o.ResourceVersion) // a number
	return append(b, o.text[o.version.to:]...)
}

func (JSON) metadataOnly(f *Format, m *metav1.ObjectMeta) ([]byte, error) {
	if !f.Dynamic {
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

func (JSON) partial(o *document) []byte {
	const head = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`
	metadata := o.text[o.metadata.from:o.metadata.to]
	b := make([]byte, 0, len(head)+len(metadata)+1)
	return append(append(append(b, head...), metadata...), '}')
}

// withoutAnnotations is for bookmarks, which have one annotation.
func (JSON) withoutAnnotations(o *document) []byte {
	const annotations = `"annotations":{"` + metav1.InitialEventsAnnotationKey + `":"true"}`
	text := bytes.Replace(o.text, []byte(","+annotations), nil, 1)
	return bytes.Replace(text, []byte(annotations+","), nil, 1)
}

// decode skips the members that nothing needs.
func (JSON) decode(o *document) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(o.text))
	return members(d, func(name string) error {
		if name == "metadata" {
			return o.decodeMetadata(d)
		}
		return o.decodeFields(d, name)
	})
}

// decodeMetadata reads the value of "metadata".
func (o *document) decodeMetadata(d *jsontext.Decoder) error {
	if has, err := enter(d); err != nil || !has {
		return err
	}
	o.metadata.from = int(d.InputOffset()) - 1
	needed := []byte{'{'}
	err := remaining(d, func(name string) error {
		if name == "managedFields" { // half of an object, and no use of it here
			return d.SkipValue()
		}
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		if end := int(d.InputOffset()); name == "resourceVersion" {
			o.version = span{end - len(value), end}
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
	o.metadata.to = int(d.InputOffset())
	if err := kjson.UnmarshalCaseSensitivePreserveInts(append(needed, '}'), &o.ObjectMeta); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
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
	if has, err := enter(d); err != nil || !has {
		return err
	}
	return remaining(d, read)
}

// enter reads the start of an object, and reports whether it is one. null is none, and anything else an error.
func enter(d *jsontext.Decoder) (bool, error) {
	open, err := d.ReadToken()
	if err != nil {
		return false, err
	}
	switch open.Kind() {
	case 'n':
		return false, nil
	case '{':
		return true, nil
	}
	return false, fmt.Errorf("a JSON object was expected at byte %d", d.InputOffset())
}

// remaining is members after enter.
func remaining(d *jsontext.Decoder, read func(name string) error) error {
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
