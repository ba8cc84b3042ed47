package kube

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// Field numbers of runtime.Unknown, metav1.ObjectMeta and metav1.WatchEvent that the
// package interprets. Each list has its metadata in field 1 and its items in field 2, each
// object its metadata in field 1. All these fields have a length.
const (
	unknownTypeMeta        protowire.Number = 1
	unknownRaw             protowire.Number = 2
	unknownContentEncoding protowire.Number = 3
	unknownContentType     protowire.Number = 4

	listMetadata protowire.Number = 1
	listItems    protowire.Number = 2

	objectMetadata protowire.Number = 1

	objectMetaName      protowire.Number = 1
	objectMetaNamespace protowire.Number = 3
	objectMetaUID       protowire.Number = 5
	objectMetaRevision  protowire.Number = 6
	objectMetaManaged   protowire.Number = 17

	eventType   protowire.Number = 1
	eventObject protowire.Number = 2

	rawExtensionRaw protowire.Number = 1
)

// unknownFields are all fields of a runtime.Unknown.
var unknownFields = []protowire.Number{unknownTypeMeta, unknownRaw, unknownContentEncoding, unknownContentType}

// magic precedes a runtime.Unknown in Kubernetes' protobuf.
var magic = []byte("k8s\x00")

var (
	errNoMagic  = errors.New(`protobuf does not begin with "k8s"`)
	errWireType = errors.New("protobuf with a field of a wrong type")
)

// checkType returns errWireType if a field has no length although its number is one of
// known. The API's generated code refuses such a field too.
func checkType(number protowire.Number, kind protowire.Type, known []protowire.Number) error {
	if kind != protowire.BytesType && slices.Contains(known, number) {
		return errWireType
	}
	return nil
}

// message is a protobuf message that is read field by field.
type message []byte

// next removes the first field. value is the field's content, or the bytes of a number.
// The fields known must have a length. If the message is truncated, next returns the
// available part of the value with the error.
func (m *message) next(known ...protowire.Number) (number protowire.Number, value []byte, err error) {
	number, kind, n := protowire.ConsumeTag(*m)
	if n < 0 {
		return 0, nil, protowire.ParseError(n)
	}
	if err := checkType(number, kind, known); err != nil {
		return number, nil, err
	}
	rest := (*m)[n:]
	prefix := 0
	if kind == protowire.BytesType {
		_, prefix = protowire.ConsumeVarint(rest)
	}
	size := protowire.ConsumeFieldValue(number, kind, rest)
	if size < 0 {
		return number, rest[max(0, prefix):], protowire.ParseError(size)
	}
	*m = rest[size:]
	return number, rest[prefix:size:size], nil
}

// field returns the value of a field with a length. If there are several, the last one
// counts.
func (m message) field(number protowire.Number) (value []byte, err error) {
	for len(m) > 0 {
		n, v, err := m.next(number)
		if err != nil {
			return nil, err
		}
		if n == number {
			value = v
		}
	}
	return value, nil
}

// unwrapUnknown returns the object in an envelope: the magic, and a runtime.Unknown.
func unwrapUnknown(text []byte) (rawObject, error) {
	m, ok := bytes.CutPrefix(text, magic)
	if !ok {
		return rawObject{}, errNoMagic
	}
	raw := rawObject{encoding: Protobuf}
	var meta runtime.TypeMeta
	for envelope := message(m); len(envelope) > 0; {
		number, value, err := envelope.next(unknownFields...)
		if number == unknownTypeMeta && err == nil {
			err = meta.Unmarshal(value)
			raw.apiVersion, raw.kind = meta.APIVersion, meta.Kind
		}
		switch {
		case err != nil:
			return raw, err
		case number == unknownRaw:
			raw.text = value
		case number == unknownContentEncoding && len(value) > 0:
			return raw, fmt.Errorf("protobuf in the unknown encoding %q", value)
		}
	}
	return raw, nil
}

// wireReader reads protobuf from a response.
type wireReader struct {
	*bufio.Reader
	offset int64 // in the response
	body   *body
	buffer []byte
}

func newWireReader(x *exchange) *wireReader {
	return &wireReader{Reader: bufio.NewReaderSize(x.body, readBufferSize), body: x.body}
}

// beginPart begins a part of the response, which may have the allowed length.
func (r *wireReader) beginPart() { r.body.allowPart(r.offset) }

func (r *wireReader) ReadByte() (byte, error) {
	b, err := r.Reader.ReadByte()
	if err == nil {
		r.offset++
	}
	return b, err
}

// tag reads the tag of a field; io.EOF is the end of the response. The fields known must
// have a length.
func (r *wireReader) tag(known ...protowire.Number) (protowire.Number, protowire.Type, error) {
	v, err := binary.ReadUvarint(r)
	if err != nil {
		return 0, 0, err
	}
	number, kind := protowire.DecodeTag(v)
	if number < 1 {
		return 0, 0, errors.New("protobuf with a field that has no number")
	}
	return number, kind, checkType(number, kind, known)
}

// maxIdleBuffer bounds the buffer that a reader reuses for its next part.
const maxIdleBuffer = 1 << 20

// readN reads n bytes, which are valid until the next call.
func (r *wireReader) readN(n uint64) ([]byte, error) {
	if n > uint64(r.body.limit) {
		return nil, tooLong(r.body.limit)
	}
	if uint64(cap(r.buffer)) < n || cap(r.buffer) > maxIdleBuffer {
		r.buffer = make([]byte, n)
	}
	part := r.buffer[:n]
	got, err := io.ReadFull(r.Reader, part)
	r.offset += int64(got)
	return part, err
}

// skip skips n bytes.
func (r *wireReader) skip(n uint64) error {
	for n > 0 {
		r.beginPart()
		skipped, err := r.Discard(r.chunkSize(n))
		r.offset += int64(skipped)
		if n -= uint64(skipped); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

// chunkSize returns how many of n bytes one part can have.
func (r *wireReader) chunkSize(n uint64) int {
	return int(min(n, readBufferSize, uint64(r.body.limit)))
}

// skipField skips the value of a field.
func (r *wireReader) skipField(kind protowire.Type) error {
	switch kind {
	case protowire.VarintType:
		_, err := binary.ReadUvarint(r)
		return unexpected(err)
	case protowire.Fixed32Type:
		return r.skip(4)
	case protowire.Fixed64Type:
		return r.skip(8)
	case protowire.BytesType:
		n, err := binary.ReadUvarint(r)
		if err != nil {
			return unexpected(err)
		}
		return r.skip(n)
	}
	return fmt.Errorf("protobuf with a field of the unknown type %d", kind)
}

// unexpected converts io.EOF within a value to io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
