package stream

import (
	"encoding/json"
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// State is what a stream remembers of what it told: in memory ([InMemory]) or on
// disk ([Open]). It belongs to one stream at a time and is not for concurrent
// use.
type State interface {
	// Close gives up what the state holds open. It writes nothing. It fails if what was
	// written is not there for the next run.
	Close() error

	// position is the committed one.
	position() position
	// announced are the intents that were neither committed nor settled, in order.
	announced() ([]announcement, error)
	// get finds the record of a key.
	get(key string) (record, bool, error)
	// unseen returns the keys whose serial is not in seen, in order.
	unseen(seen serials) ([]string, error)
	// announce writes intents, and how far the consumer will have been told.
	announce(intents []announcement, told keepwatch.Revision) error
	// commit writes what became of a piece, all or nothing.
	commit(piece commit) error
}

// announcement is an intent and its number: one that is announced later has a
// greater one.
type announcement struct {
	number uint64
	intent
}

// commit is what a piece that was told changes in a state.
type commit struct {
	records  map[string]*record // nil: the key is gone
	settled  []uint64           // numbers of announcements that are of no use any more
	position position
}

// position is where a stream is, and what goes with the index.
type position struct {
	// Cursor: everything up to here was told. 0 until the first list is complete.
	Cursor keepwatch.Revision `json:"cursor"`
	// Told is the greatest revision that was told, or is being told. It is beyond
	// the cursor while a list is incomplete and after a crash.
	Told keepwatch.Revision `json:"told"`
	// Relisting: a gap from the cursor on is due, or was declared and has not ended.
	// Then history from the cursor on must not be told any more.
	Relisting bool `json:"relisting,omitempty"`
	// Void is why the gap is due, if that was said before any list; see
	// keepwatch.Target. Invariant: Relisting is set if it is.
	Void keepwatch.GapReason `json:"void,omitempty"`
	// Count is the number of keys in the index.
	Count uint64 `json:"count"`
	// Serial is the last one given to a key.
	Serial uint64 `json:"serial"`
}

func (p position) encode() []byte {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and a truth value
	}
	return seal(append(make([]byte, sealSize), body...))
}

func decodePosition(text []byte) (position, error) {
	body, err := unseal(text)
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
