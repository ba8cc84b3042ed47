package kube

import (
	"encoding/binary"
	"fmt"
	"io"
)

// protobufFrames are the frames of a watch in protobuf: each is a length of four
// bytes, and a metav1.WatchEvent whose object is in an envelope of its own.
type protobufFrames struct {
	*wireReader
	dropManaged bool
}

func newProtobufFrames(x *exchange, m maker) *protobufFrames {
	return &protobufFrames{newWireReader(x), m.dropManaged}
}

func (f *protobufFrames) frame() (kind string, d draft, err error) {
	f.begin()
	size, err := f.lend(4)
	if err != nil {
		return "", draft{}, err // io.EOF before the first byte of a frame
	}
	event, err := f.lend(uint64(binary.BigEndian.Uint32(size)))
	if err != nil {
		return "", draft{}, unexpected(err)
	}
	return f.event(event)
}

func (f *protobufFrames) event(m message) (kind string, d draft, err error) {
	var object []byte
	for len(m) > 0 {
		number, value, err := m.next(eventType, eventObject)
		switch number {
		case eventType:
			kind = string(value)
		case eventObject:
			if err == nil {
				object, err = message(value).field(rawExtensionRaw)
			}
		}
		if err != nil {
			return kind, d, err
		}
	}
	if len(object) == 0 {
		return kind, draft{}, fmt.Errorf("an event of type %q without an object: %w", kind, io.ErrUnexpectedEOF)
	}
	if d, err = unwrapUnknown(object); err != nil {
		return kind, d, err
	}
	if kind == "ERROR" {
		return kind, d, nil
	}
	about, err := draftOf(d.text)
	if err != nil {
		return kind, d, err
	}
	about.apiVersion, about.kind = d.apiVersion, d.kind
	if f.dropManaged {
		about.text = withoutManaged(about.text)
	}
	return kind, about, nil
}
