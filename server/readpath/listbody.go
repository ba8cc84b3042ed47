package readpath

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// listBody is how item encodings stand in a list: after a tag and their length in protobuf, with
// commas between them in JSON, and with their ages in a Table.
type listBody struct {
	encoding encoding
	now      time.Time // the ages are those at this time
}

var comma = []byte{','}

// append appends an item encoding to a body.
func (l listBody) append(b, item []byte, first bool) []byte {
	if isProtobuf(l.encoding) {
		b = protowire.AppendTag(b, listItem, protowire.BytesType)
		return protowire.AppendBytes(b, item)
	}
	if !first {
		b = append(b, comma...)
	}
	if l.encoding == tableJSON {
		return appendRow(b, item, l.now)
	}
	return append(b, item...)
}

// size returns how many bytes append appends.
func (l listBody) size(item []byte, first bool) int {
	switch {
	case isProtobuf(l.encoding):
		return protowire.SizeTag(listItem) + protowire.SizeBytes(len(item))
	case l.encoding == tableJSON:
		return len(l.append(nil, item, first))
	case first:
		return len(item)
	}
	return len(comma) + len(item)
}
