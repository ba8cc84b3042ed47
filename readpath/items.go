package readpath

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// items is how items stand in a list: after a tag and their length in protobuf, with commas
// between them in JSON, and with their ages in a table.
type items struct {
	form form
	now  time.Time // which ages are counted up to
}

var comma = []byte{','}

// append appends an item, which is the first one or not.
func (i items) append(b, item []byte, first bool) []byte {
	if isProtobuf(i.form) {
		b = protowire.AppendTag(b, listItem, protowire.BytesType)
		return protowire.AppendBytes(b, item)
	}
	if !first {
		b = append(b, comma...)
	}
	if i.form == tableJSON {
		return appendRow(b, item, i.now)
	}
	return append(b, item...)
}

// size is what append appends.
func (i items) size(item []byte, first bool) int {
	switch {
	case isProtobuf(i.form):
		return protowire.SizeTag(listItem) + protowire.SizeBytes(len(item))
	case i.form == tableJSON:
		return len(i.append(nil, item, first))
	case first:
		return len(item)
	}
	return len(comma) + len(item)
}
