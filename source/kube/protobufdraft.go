package kube

import (
	"cmp"

	"google.golang.org/protobuf/encoding/protowire"
)

// draftOf searches an object in protobuf for what is needed of it. With an error
// comes what was read before it.
func draftOf(text []byte) (draft, error) {
	d := draft{text: text, encoding: Protobuf}
	for object := message(text); len(object) > 0; {
		number, value, err := object.next(objectMetadata)
		if number == objectMetadata {
			err = cmp.Or(d.describe(value), err)
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// describe takes from metadata what is needed of it.
func (d *draft) describe(metadata message) error {
	for len(metadata) > 0 {
		number, value, err := metadata.next(objectMetaName, objectMetaNamespace, objectMetaUID, objectMetaRevision, objectMetaManaged)
		if err != nil {
			return err
		}
		switch number {
		case objectMetaName:
			d.name = string(value)
		case objectMetaNamespace:
			d.namespace = string(value)
		case objectMetaUID:
			d.uid = string(value)
		case objectMetaRevision:
			d.revision = string(value)
		}
	}
	return nil
}

// withoutManaged takes managedFields out of an object, in its own bytes. The
// object is a message that was read to its end before.
func withoutManaged(object []byte) []byte {
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
		kept := dropField(metadata, objectMetaManaged)
		if len(kept) == len(metadata) {
			return object
		}
		// What is left of metadata moves up to its end, and what was before it with it.
		header := protowire.AppendVarint(protowire.AppendTag(nil, objectMetadata, protowire.BytesType), uint64(len(kept)))
		begin := to - len(kept)
		copy(object[begin:to], kept)
		begin -= len(header)
		copy(object[begin:], header)
		begin -= from
		copy(object[begin:], object[:from])
		return object[begin:]
	}
	return object
}

// dropField takes all fields of a number out of a message, in its own bytes.
func dropField(m message, number protowire.Number) []byte {
	kept := m[:0]
	for rest := m; len(rest) > 0; {
		before := rest
		n, _, err := rest.next()
		if err != nil {
			return m
		}
		if n != number {
			kept = append(kept, before[:len(before)-len(rest)]...)
		}
	}
	return kept
}
