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

// The fields of messages that mean something here, by number: those of
// runtime.Unknown, metav1.ObjectMeta and metav1.WatchEvent. Every list has its
// metadata in field 1 and its items in field 2, every object its metadata in
// field 1. All of them have a length.
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

// magic is what Kubernetes puts before a protobuf message that tells what it is.
var magic = []byte("k8s\x00")

var (
	errNoMagic  = errors.New(`protobuf does not begin with "k8s"`)
	errWireType = errors.New("protobuf with a field of another type than its number says")
)

// checkType returns errWireType if a field has no length although its number is one
// of known. The API's generated code refuses such a field, too: its bytes are no value.
func checkType(number protowire.Number, kind protowire.Type, known []protowire.Number) error {
	if kind != protowire.BytesType && slices.Contains(known, number) {
		return errWireType
	}
	return nil
}

// message is a protobuf message, to be cut field by field.
type message []byte

// next cuts the next field off. Its value is what it holds, where that has a
// length, else the bytes of a number; the fields known must have a length. If the
// end of the message is missing, what is there of the value comes with the error.
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

// field returns the value of a field that has a length; the last one, should there
// be several.
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

// unwrapUnknown takes an object out of its envelope: the magic, and a
// runtime.Unknown.
func unwrapUnknown(text []byte) (draft, error) {
	m, ok := bytes.CutPrefix(text, magic)
	if !ok {
		return draft{}, errNoMagic
	}
	d := draft{encoding: Protobuf}
	var about runtime.TypeMeta
	for envelope := message(m); len(envelope) > 0; {
		number, value, err := envelope.next(unknownFields...)
		if number == unknownTypeMeta && err == nil {
			err = about.Unmarshal(value)
			d.apiVersion, d.kind = about.APIVersion, about.Kind
		}
		switch {
		case err != nil:
			return d, err
		case number == unknownRaw:
			d.text = value
		case number == unknownContentEncoding && len(value) > 0:
			return d, fmt.Errorf("protobuf in the unknown encoding %q", value)
		}
	}
	return d, nil
}

// wireReader reads protobuf from an answer.
type wireReader struct {
	*bufio.Reader
	offset int64 // in the answer
	body   *body
	lent   []byte
}

func newWireReader(x *exchange) *wireReader {
	return &wireReader{Reader: bufio.NewReaderSize(x.body, readAhead), body: x.body}
}

// begin says that the next part of the answer may be as long as is allowed.
func (r *wireReader) begin() { r.body.allow(r.offset) }

func (r *wireReader) ReadByte() (byte, error) {
	b, err := r.Reader.ReadByte()
	if err == nil {
		r.offset++
	}
	return b, err
}

// tag reads the tag of a field; io.EOF is the end of the answer. The fields known
// must have a length.
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

// maxIdleBuffer is how much a reader keeps for its next part.
const maxIdleBuffer = 1 << 20

// lend reads n bytes, which are valid until the next call.
func (r *wireReader) lend(n uint64) ([]byte, error) {
	if n > uint64(r.body.limit) {
		return nil, tooLong(r.body.limit)
	}
	if uint64(cap(r.lent)) < n || cap(r.lent) > maxIdleBuffer {
		r.lent = make([]byte, n)
	}
	part := r.lent[:n]
	got, err := io.ReadFull(r.Reader, part)
	r.offset += int64(got)
	return part, err
}

// pass passes over n bytes.
func (r *wireReader) pass(n uint64) error {
	for n > 0 {
		r.begin()
		passed, err := r.Discard(r.atOnce(n))
		r.offset += int64(passed)
		if n -= uint64(passed); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

// atOnce is how much of n bytes can be had as one part.
func (r *wireReader) atOnce(n uint64) int { return int(min(n, readAhead, uint64(r.body.limit))) }

// passField passes over the value of a field.
func (r *wireReader) passField(kind protowire.Type) error {
	switch kind {
	case protowire.VarintType:
		_, err := binary.ReadUvarint(r)
		return unexpected(err)
	case protowire.Fixed32Type:
		return r.pass(4)
	case protowire.Fixed64Type:
		return r.pass(8)
	case protowire.BytesType:
		n, err := binary.ReadUvarint(r)
		if err != nil {
			return unexpected(err)
		}
		return r.pass(n)
	}
	return fmt.Errorf("protobuf with a field of the unknown type %d", kind)
}

// unexpected is the error of an end in the midst of something.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
