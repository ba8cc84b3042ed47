package stream

import (
	"encoding/json"
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// Piece is one delivery of a stream: all messages and the position after them. A database
// commits a piece in one transaction, so that both are stored or none is.
type Piece struct {
	Messages []Message
	// Cursor is the revision up to which all events are delivered after this piece. It is
	// zero until the first list is complete.
	Cursor keepwatch.Revision
	// Count is the number of objects after this piece.
	Count uint64
	// Position is the stream's position after this piece, as JSON. [Stored] returns it to the
	// stream. A stream with a state ([NewAtLeastOnce]) sets none.
	Position []byte
}

// retained is a sink that retains the messages of a delivery until its commit.
type retained struct{ messages []Message }

func (r *retained) Write(m Message) error {
	r.messages = append(r.messages, m)
	return nil
}

func (r *retained) Flush() error { return nil }

// piece returns the messages since the last piece as one.
func (r *retained) piece(after position) Piece {
	p := Piece{Messages: r.messages, Cursor: after.Cursor, Count: after.Count}
	r.messages = nil
	return p
}

// Entry identifies the state of one object that is stored.
type Entry struct {
	Key      keepwatch.Key
	UID      keepwatch.UID
	Revision keepwatch.Revision
	// Rendition is zero if the consumer has not stored it: the next list then counts as the same content.
	Rendition Rendition
}

// Stored is what pieces have added up to.
type Stored struct {
	// Position is that of the last piece, nil if there was none.
	Position []byte
	// Entries has an entry for each object. The stream that continues takes it over.
	Entries *Entries
}

// Interrupted returns what is stored after a crash has left a part of the piece behind the position: the
// entries include that part, and delivered is the greatest revision in it. The next pieces repeat
// events of the part at most for objects that it added or changed, and then deleted: the consumer
// recognizes them by their ids until the cursor has reached delivered, or until the next gap. Interrupted returns an
// error if the position is damaged.
func (s Stored) Interrupted(delivered keepwatch.Revision) (Stored, error) {
	p, err := s.decodePosition()
	if err != nil {
		return s, err
	}
	p.Delivered, p.Count = max(p.Delivered, delivered), uint64(s.Entries.Len())
	if p.Relisting { // the part is of a difference, and may have its deletions
		p.remove(delivered)
	}
	s.Position, err = json.Marshal(p)
	return s, err
}

func (s Stored) decodePosition() (p position, err error) {
	if s.Position == nil {
		return p, nil
	}
	if err := json.Unmarshal(s.Position, &p); err != nil {
		return p, fmt.Errorf("the stored position is damaged: %w", err)
	}
	return p, nil
}

// NewTransactional returns a stream that continues from stored and calls write with each
// piece. It is for a consumer that commits a piece as a whole, such as a database: the index
// of the stream is what the consumer has stored, and no event is delivered twice. A Deleted
// within a gap has no body and no metadata, because the consumer has the last state.
//
// After an error of write the stream must not be used again: the consumer may have committed the
// piece. Read again what it has stored. NewTransactional returns an error if the entries do
// not belong to the position.
func NewTransactional(stored Stored, write func(Piece) error, options Options) (*Stream, error) {
	committed, err := stored.decodePosition()
	if err != nil {
		return nil, err
	}
	t := &transaction{write: write, entries: stored.Entries, committed: committed}
	if t.entries == nil {
		t.entries = NewEntries()
	}
	t.committed.Serial = t.entries.serial
	if n := uint64(t.entries.Len()); n != t.committed.Count {
		return nil, fmt.Errorf("%d objects were stored, and there are %d: another program has changed them",
			t.committed.Count, n)
	}
	return New(t, t, options)
}

// transaction is the sink and the state of a stream whose consumer commits pieces. The
// index is in memory, without metadata.
type transaction struct {
	retained
	write     func(Piece) error
	entries   *Entries
	committed position
}

func (t *transaction) Close() error       { return nil }
func (t *transaction) position() position { return t.committed }

// announced and announce do nothing: a crash leaves no part of a delivery.
func (t *transaction) announced() ([]announcement, error)                { return nil, nil }
func (t *transaction) announce([]announcement, keepwatch.Revision) error { return nil }

func (t *transaction) get(key string) (record, bool, error) {
	r, ok := t.entries.get(key)
	return r, ok, nil
}

func (t *transaction) unseen(seen serials, limit int) ([]string, error) {
	return t.entries.unseen(seen, limit), nil
}

func (t *transaction) commit(c commit) error {
	text, err := json.Marshal(c.position)
	if err != nil {
		panic(err) // numbers, a boolean and a string cannot fail
	}
	piece := t.piece(c.position)
	piece.Position = text
	if err := t.write(piece); err != nil {
		return err
	}
	for key, r := range c.records {
		if r == nil {
			t.entries.remove(key)
		} else {
			t.entries.set(key, *r)
		}
	}
	t.committed = c.position
	return nil
}
