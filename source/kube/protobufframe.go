package kube

import (
	"encoding/binary"
	"fmt"
	"io"
)

// protobufFrames reads the frames of a watch in protobuf. A frame is a length of four
// bytes and a metav1.WatchEvent, whose object is in its own envelope.
type protobufFrames struct {
	*wireReader
	dropManaged bool
}

func newProtobufFrames(x *exchange, m builder) *protobufFrames {
	return &protobufFrames{newWireReader(x), m.dropManaged}
}

func (f *protobufFrames) frame() (kind string, raw rawObject, err error) {
	f.beginPart()
	size, err := f.readN(4)
	if err != nil {
		return "", rawObject{}, err // io.EOF before the first byte of a frame
	}
	event, err := f.readN(uint64(binary.BigEndian.Uint32(size)))
	if err != nil {
		return "", rawObject{}, unexpected(err)
	}
	return f.event(event)
}

func (f *protobufFrames) event(m message) (kind string, raw rawObject, err error) {
	var wrapped []byte
	for len(m) > 0 {
		number, value, err := m.next(eventType, eventObject)
		switch number {
		case eventType:
			kind = string(value)
		case eventObject:
			if err == nil {
				wrapped, err = message(value).field(rawExtensionRaw)
			}
		}
		if err != nil {
			return kind, raw, err
		}
	}
	if len(wrapped) == 0 {
		return kind, rawObject{}, fmt.Errorf("an event of type %q without an object: %w", kind, io.ErrUnexpectedEOF)
	}
	if raw, err = unwrapUnknown(wrapped); err != nil {
		return kind, raw, err
	}
	if kind == "ERROR" {
		return kind, raw, nil
	}
	object, err := parseProtobufObject(raw.text)
	if err != nil {
		return kind, raw, err
	}
	object.apiVersion, object.kind = raw.apiVersion, raw.kind
	if f.dropManaged {
		object.text = withoutManagedFields(object.text)
	}
	return kind, object, nil
}
