package kube

import (
	"cmp"

	"google.golang.org/protobuf/encoding/protowire"
)

// parseProtobufObject reads the main fields of an object in protobuf. With an error it
// returns the fields that precede it.
func parseProtobufObject(text []byte) (rawObject, error) {
	raw := rawObject{text: text, encoding: Protobuf}
	for object := message(text); len(object) > 0; {
		number, value, err := object.next(objectMetadata)
		if number == objectMetadata {
			err = cmp.Or(raw.parseMetadata(value), err)
		}
		if err != nil {
			return raw, err
		}
	}
	return raw, nil
}

// parseMetadata reads the main fields of an object's metadata.
func (raw *rawObject) parseMetadata(metadata message) error {
	for len(metadata) > 0 {
		number, value, err := metadata.next(objectMetaName, objectMetaNamespace, objectMetaUID, objectMetaRevision,
			objectMetaManaged)
		if err != nil {
			return err
		}
		switch number {
		case objectMetaName:
			raw.name = string(value)
		case objectMetaNamespace:
			raw.namespace = string(value)
		case objectMetaUID:
			raw.uid = string(value)
		case objectMetaRevision:
			raw.revision = string(value)
		}
	}
	return nil
}

// withoutManagedFields removes managedFields from an object, in place. The object is a
// message that was validated before.
func withoutManagedFields(object []byte) []byte {
	rest := message(object)
	for len(rest) > 0 {
		from := len(object) - len(rest)
		number, metadata, err := rest.next()
		if err != nil {
			return object
		}
		if number != objectMetadata {
			continue
		}
		to := len(object) - len(rest)
		stripped := dropField(metadata, objectMetaManaged)
		if len(stripped) == len(metadata) {
			return object
		}
		// The rest of metadata moves to its end, and the bytes before metadata follow.
		header := protowire.AppendVarint(protowire.AppendTag(nil, objectMetadata, protowire.BytesType), uint64(len(stripped)))
		begin := to - len(stripped)
		copy(object[begin:to], stripped)
		begin -= len(header)
		copy(object[begin:], header)
		begin -= from
		copy(object[begin:], object[:from])
		return object[begin:]
	}
	return object
}

// dropField removes all fields of a number from a message, in place.
func dropField(m message, number protowire.Number) []byte {
	out := m[:0]
	for rest := m; len(rest) > 0; {
		before := rest
		n, _, err := rest.next()
		if err != nil {
			return m
		}
		if n != number {
			out = append(out, before[:len(before)-len(rest)]...)
		}
	}
	return out
}
