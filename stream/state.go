package stream

import (
	"encoding/json"
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// State stores the cursor of a stream and the index of the objects that it has delivered:
// in memory ([InMemory]) or on disk ([Open]). It belongs to one stream at a time and is
// not for concurrent use.
type State interface {
	// Close releases the state's file. It writes nothing. It returns an error also if the
	// next run would not find the file.
	Close() error

	// position returns the committed position.
	position() position
	// announced returns the announcements that no commit has settled, in order.
	announced() ([]announcement, error)
	// get returns the record of a key.
	get(key string) (record, bool, error)
	// unseen returns keys whose serial is not in seen, at most limit, in order.
	unseen(seen serials, limit int) ([]string, error)
	// announce writes intents, and the greatest revision that the consumer may have
	// received afterwards.
	announce(intents []announcement, delivered keepwatch.Revision) error
	// commit writes the changes of a delivery in one transaction.
	commit(c commit) error
}

// Committed returns the note and the number of objects of the last commit of a state; see
// [NewAtLeastOnce]. The note is empty if there was none.
func Committed(s State) (note string, objects uint64) {
	p := s.position()
	return p.Note, p.Count
}

// announcement is an intent with its number. Numbers increase in the order of the events.
type announcement struct {
	number uint64
	intent
}

// commit is the change of a state that a delivery makes.
type commit struct {
	records  map[string]*record // nil: the key is removed
	settled  []uint64           // numbers of the announcements that are removed
	position position
}

// position is the progress of a stream, and the counters of its index. The JSON names are
// the format of the file: a name that changed would be read as zero, so a change of one
// needs a new format number.
type position struct {
	// Cursor is the revision up to which all events were delivered. It is zero until the
	// first list is complete.
	Cursor keepwatch.Revision `json:"cursor"`
	// Delivered is the greatest revision that the consumer may have received. It is above
	// the cursor while a list is incomplete, and after a crash.
	Delivered keepwatch.Revision `json:"told"`
	// Relisting is true while a gap from the cursor on is due or declared. History after
	// the cursor must not be delivered then: it could contradict the difference.
	Relisting bool `json:"relisting,omitempty"`
	// Invalid is the reason of the gap that is due, if Invalidate has set it; see
	// keepwatch.Target. Invariant: if it is not empty, Relisting is true.
	Invalid keepwatch.GapReason `json:"void,omitempty"`
	// Ended is true from End until the next list begins. Invariant: if it is true, Relisting is, too.
	Ended bool `json:"ended,omitempty"`
	// Removed is the last removal since the last rewind.
	Removed removal `json:"removed,omitzero"`
	// Again is the value of Removed when an object up to it was last delivered again. Events of objects up to it have the
	// removal's number in their ids: the consumer has seen the ids without.
	Again removal `json:"again,omitzero"`
	// Count is the number of keys in the index.
	Count uint64 `json:"count"`
	// Serial is the last serial that was given to a key.
	Serial uint64 `json:"serial"`
	// Definition is that of the source which has shown the objects, empty if it is not known; see DefinedSource. While
	// Relisting is true it may be that of a list that is not complete.
	Definition string `json:"definition,omitempty"`
	// Note is the consumer's; see NewAtLeastOnce.
	Note string `json:"note,omitempty"`
}

func (p position) encode() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers, a boolean and a string cannot fail
	}
	return putChecksum(append(make([]byte, checksumSize), body...))
}

func decodePosition(text []byte) (position, error) {
	body, err := verifyChecksum(text)
	if err != nil {
		return position{}, err
	}
	var p position
	if err := json.Unmarshal(body, &p); err != nil {
		return position{}, fmt.Errorf("damaged: %w", err)
	}
	return p, nil
}

// serials is a set of serials. It is sparse: it costs a bit for each key where
// serials are dense, and never more than a word for each key that is in it.
type serials map[uint64]uint64

func (s serials) add(serial uint64)      { s[serial/64] |= 1 << (serial % 64) }
func (s serials) has(serial uint64) bool { return s[serial/64]&(1<<(serial%64)) != 0 }
