package verbatim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Protobuf is protobuf as the server writes it: the message of an object, without an envelope.
type Protobuf struct{}

// The numbers of the fields that are used here: of all objects, and of their metadata.
const (
	objectMetadata                                  = 1
	metaVersion, metaAnnotations, metaManagedFields = 6, 12, 17
)

// Protobuf returns true.
func (Protobuf) Protobuf() bool { return true }

func (Protobuf) item(_ *Format, text []byte) []byte { return slices.Clone(text) }

func (Protobuf) withVersion(o *document) []byte {
	from, to := o.metadataValue()
	metadata := append(make([]byte, 0, to-from+8), o.text[from:o.version.from]...)
	metadata = protowire.AppendTag(metadata, metaVersion, protowire.BytesType)
	metadata = protowire.AppendString(metadata, o.ResourceVersion)
	return o.withMetadata(append(metadata, o.text[o.version.to:to]...))
}

func (Protobuf) withoutAnnotations(o *document) []byte {
	var metadata []byte
	from, to := o.metadataValue()
	_ = eachField(o.text, from, to, func(f field) error { // it was read before
		if f.number != metaAnnotations {
			metadata = append(metadata, o.text[f.whole.from:f.whole.to]...)
		}
		return nil
	})
	return o.withMetadata(metadata)
}

// metadataValue returns where the value of the metadata is.
func (o *document) metadataValue() (from, to int) {
	_, _, tag := protowire.ConsumeTag(o.text[o.metadata.from:])
	_, size := protowire.ConsumeVarint(o.text[o.metadata.from+tag:])
	return o.metadata.from + tag + size, o.metadata.to
}

// withMetadata returns the message with other metadata.
func (o *document) withMetadata(metadata []byte) []byte {
	b := make([]byte, 0, len(o.text)+len(metadata))
	b = append(b, o.text[:o.metadata.from]...)
	b = protowire.AppendTag(b, objectMetadata, protowire.BytesType)
	b = protowire.AppendBytes(b, metadata)
	return append(b, o.text[o.metadata.to:]...)
}

func (Protobuf) metadataOnly(_ *Format, m *metav1.ObjectMeta) ([]byte, error) {
	metadata, err := m.Marshal()
	return protowire.AppendBytes(protowire.AppendTag(nil, objectMetadata, protowire.BytesType), metadata), err
}

// partial is the metadata's field: PartialObjectMetadata has the same one, and no other.
func (Protobuf) partial(o *document) []byte {
	return slices.Clone(o.text[o.metadata.from:o.metadata.to])
}

// decode skips the fields that nothing needs.
func (Protobuf) decode(o *document) error {
	return eachField(o.text, 0, len(o.text), func(f field) error {
		switch {
		case f.number != objectMetadata:
			return o.selectFrom(f, nil)
		case f.kind != protowire.BytesType || o.metadata != span{}:
			return errors.New("the object has no metadata, or twice")
		}
		o.metadata = f.whole
		return o.decodeMetadataMessage(f.value)
	})
}

// decodeMetadataMessage reads the metadata.
func (o *document) decodeMetadataMessage(in span) error {
	var needed []byte
	err := eachField(o.text, in.from, in.to, func(f field) error {
		switch f.number {
		case metaManagedFields: // half of an object, and no use of it here
			return nil
		case metaVersion:
			if o.version != (span{}) {
				return errors.New("metadata has two resourceVersions")
			}
			o.version = f.whole
		}
		needed = append(needed, o.text[f.whole.from:f.whole.to]...)
		return nil
	})
	if err != nil {
		return err
	}
	if err := o.ObjectMeta.Unmarshal(needed); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// selectFrom reads a field for the selectable fields that are it or in it. outer are the numbers of the messages that
// it is in.
func (o *document) selectFrom(f field, outer []protowire.Number) error {
	path, within := append(slices.Clip(outer), f.number), false
	for _, s := range o.format.fields {
		if slices.Equal(s.numbers, path) {
			return o.selectField(f, s)
		}
		within = within || len(s.numbers) > len(path) && slices.Equal(s.numbers[:len(path)], path)
	}
	switch {
	case !within:
		return nil
	case f.kind != protowire.BytesType:
		return fmt.Errorf("field %v is no message", path)
	}
	return eachField(o.text, f.value.from, f.value.to, func(inner field) error { return o.selectFrom(inner, path) })
}

// selectField reads the value of a selectable field: a string or a boolean. The last one counts, as everywhere in
// protobuf.
func (o *document) selectField(f field, s selectable) error {
	value := o.text[f.value.from:f.value.to]
	switch {
	case f.kind == protowire.BytesType && s.absent == "":
		o.selected[s.label] = string(value)
		return nil
	case f.kind == protowire.VarintType && s.absent != "":
		number, _ := protowire.ConsumeVarint(value)
		o.selected[s.label] = strconv.FormatBool(number != 0)
		return nil
	}
	return fmt.Errorf("%s has another type", s.path)
}

// field is a field of a message, by its place in a text.
type field struct {
	number protowire.Number
	kind   protowire.Type
	whole  span // with its tag, and its length if it has one
	value  span
}

// eachField calls read for each field of the message that is a part of a text.
func eachField(text []byte, from, to int, read func(field) error) error {
	for from < to {
		rest := text[from:to]
		number, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		f := field{number, kind, span{from, from + tag + size}, span{from + tag, from + tag + size}}
		if kind == protowire.BytesType {
			_, prefix := protowire.ConsumeVarint(rest[tag:])
			f.value.from += prefix
		}
		if err := read(f); err != nil {
			return err
		}
		from = f.whole.to
	}
	return nil
}
