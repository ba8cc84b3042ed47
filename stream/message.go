package stream

import "github.com/keepwatch/keepwatch"

// Message is one thing that a consumer is told. The set is closed: [Event],
// [Gap], [Synced], [Bookmark].
type Message interface{ message() }

// Event is a change of one object.
type Event struct {
	Type     keepwatch.ChangeType
	Revision keepwatch.Revision // when it happened, as in keepwatch.Change
	// ID is the same in every repetition; see keepwatch.Change.ID.
	ID string
	// Object is the new state; for Deleted the last one, or what is remembered of it.
	Object Object
}

// Gap says that the history over (From, To] is gone: the events that follow, up
// to the next Synced, are the difference of the states at its ends. When the
// list that it is taken from has to be started over, another Gap says so. To is
// less than From when the source went back in time.
type Gap struct {
	From, To keepwatch.Revision
	Reason   keepwatch.GapReason
}

// Synced says that everything told so far adds up to the state at Revision,
// which has Count objects.
type Synced struct {
	Revision keepwatch.Revision
	Count    uint64
}

// Bookmark says that everything up to Revision was told.
type Bookmark struct{ Revision keepwatch.Revision }

func (Event) message()    {}
func (Gap) message()      {}
func (Synced) message()   {}
func (Bookmark) message() {}

// Sink takes what a stream tells, in one format. A stream calls it from one
// goroutine. A sink may block; that is how a slow consumer slows the source. Its
// errors end the stream.
type Sink interface {
	Write(Message) error
	// Flush ends a piece: when it returns, everything written has left the process.
	Flush() error
}
