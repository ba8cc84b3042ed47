package stream

import "github.com/keepwatch/keepwatch"

// Message is one message to the consumer. The set is closed: [Event], [Gap], [Synced],
// [Bookmark].
type Message interface{ message() }

// Event is a change of one object.
type Event struct {
	Type     keepwatch.ChangeType
	Revision keepwatch.Revision // of the change, as in keepwatch.Change
	// ID is the same in every repetition of the event: keepwatch.Change.ID, and for another content at the same revision
	// its number and hash, "uid/revision/1-9e3779b97f4a7c15". For an object that was delivered as deleted, and is
	// delivered again in the same state, it is keepwatch.Change.IDAgain.
	ID string
	// Object is the new state. For Deleted it is the last state, or its metadata only.
	Object Object
	// Rendition is that of Object; it is zero for Deleted.
	Rendition Rendition
}

// Gap declares that the history in (From, To] is missing: the events that follow, up to
// the next Synced, are the difference between the states at its ends. If the list for
// the difference is started over, another Gap follows. To may be below From if Reason is
// GapRewind.
type Gap struct {
	From, To keepwatch.Revision
	Reason   keepwatch.GapReason
}

// Synced states that the events so far add up to the state at Revision, which has Count
// objects.
type Synced struct {
	Revision keepwatch.Revision
	Count    uint64
}

// Bookmark states that all events up to Revision were delivered.
type Bookmark struct{ Revision keepwatch.Revision }

func (Event) message()    {}
func (Gap) message()      {}
func (Synced) message()   {}
func (Bookmark) message() {}

// Sink writes messages in one format. A stream calls it from one goroutine. A sink may
// block: the stream then stops reading from the source. An error of a sink ends the
// stream.
type Sink interface {
	Write(Message) error
	// Flush ends a delivery. When it returns nil, all messages that were written have left
	// the process.
	Flush() error
}
