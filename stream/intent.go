package stream

import (
	"encoding/binary"

	"github.com/keepwatch/keepwatch"
)

// intent announces an event before it is written: an Added, which adds a record to the
// index, or a Deleted, which removes one. A Modified needs none, because the index has a
// record of the object before and after it.
type intent struct {
	kind     keepwatch.ChangeType // Added or Deleted
	revision keepwatch.Revision   // of the event
	key      string
	record   record // of the event's object
	// difference is true for a Deleted that a list or the end of the resource has shown; see removal.
	difference bool
}

// ofDifference is a bit of the byte of the kind.
const ofDifference = 0x80

func (i intent) id() string { return i.event().ID }

// event returns the announced event, with the metadata of its object instead of the body.
func (i intent) event() Event {
	return newEvent(i.kind, i.revision, lastKnown{i.key, i.record})
}

func (i intent) encode() []byte {
	record := i.record.encode()
	text := make([]byte, checksumSize, checksumSize+1+2*binary.MaxVarintLen64+len(i.key)+len(record))
	kind := byte(i.kind)
	if i.difference {
		kind |= ofDifference
	}
	text = append(text, kind)
	text = binary.AppendUvarint(text, uint64(i.revision))
	text = appendString(text, i.key)
	return putChecksum(append(text, record...))
}

func decodeIntent(text []byte) (intent, error) {
	body, err := verifyChecksum(text)
	if err != nil {
		return intent{}, err
	}
	difference := len(body) > 0 && body[0]&ofDifference != 0
	if difference {
		body = append([]byte{body[0] &^ ofDifference}, body[1:]...)
	}
	in := decoder{buf: body}
	i := intent{difference: difference, kind: in.changeType(), revision: keepwatch.Revision(in.uvarint()),
		key: in.string()}
	if in.err != nil {
		return intent{}, in.err
	}
	i.record, err = decodeRecord(in.buf)
	return i, err
}
