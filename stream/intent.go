package stream

import (
	"encoding/binary"

	"github.com/keepwatch/keepwatch"
)

// intent announces an event that is about to be told: an Added, which begins
// what the index will know of an object, or a Deleted, which ends it. For a
// Modified there is no need: before and after it the consumer knows the object.
type intent struct {
	kind     keepwatch.ChangeType // Added or Deleted
	revision keepwatch.Revision   // of the event
	key      string
	record   record // of the event's object
}

func (i intent) id() string { return i.event().ID }

// event is what was announced, as far as it is remembered.
func (i intent) event() Event {
	return newEvent(i.kind, i.revision, lastKnown{i.key, i.record})
}

func (i intent) encode() []byte {
	record := i.record.encode()
	text := make([]byte, sealSize, sealSize+1+2*binary.MaxVarintLen64+len(i.key)+len(record))
	text = append(text, byte(i.kind))
	text = binary.AppendUvarint(text, uint64(i.revision))
	text = appendString(text, i.key)
	return seal(append(text, record...))
}

func decodeIntent(text []byte) (intent, error) {
	body, err := unseal(text)
	if err != nil {
		return intent{}, err
	}
	in := reader{rest: body}
	i := intent{kind: in.changeType(), revision: keepwatch.Revision(in.uvarint()), key: in.string()}
	if in.err != nil {
		return intent{}, in.err
	}
	i.record, err = decodeRecord(in.rest)
	return i, err
}
