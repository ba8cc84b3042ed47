package readpath

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// listBody is how item encodings stand in a list: after a tag and their length in protobuf, with
// commas between them in JSON, indented or not, and with their ages in a Table.
type listBody struct {
	encoding encoding
	pretty   bool      // JSON is indented, which is not cached
	now      time.Time // the ages are those at this time
}

// itemDepth is how many values enclose an item: the list and its items.
const itemDepth = 2

// ends returns the head and tail of an indented body, of compact ones.
func (l listBody) ends(head, tail []byte, empty bool) (_, _ []byte) {
	tail = bytes.TrimSuffix(tail, newline)
	if empty {
		return appendIndented(nil, append(head, tail...), 0), nil
	}
	return appendIndented(nil, head, 0), appendIndented(nil, tail, itemDepth)
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
	if l.pretty {
		return appendIndented(appendLine(b, itemDepth), item, itemDepth)
	}
	if isTable(l.encoding) {
		return appendRow(b, item, l.now)
	}
	return append(b, item...)
}

// cacheable reports whether blocks of the body are worth caching: the rows of a Table have other ages each time, and
// indented JSON is for people.
func (l listBody) cacheable() bool { return !isTable(l.encoding) && !l.pretty }

// size returns how many bytes append appends.
func (l listBody) size(item []byte, first bool) int {
	switch {
	case isProtobuf(l.encoding):
		return protowire.SizeTag(listItem) + protowire.SizeBytes(len(item))
	case isTable(l.encoding), l.pretty:
		return len(l.append(nil, item, first))
	case first:
		return len(item)
	}
	return len(comma) + len(item)
}
