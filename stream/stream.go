package stream

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Target = (*Stream)(nil)

// Options shape a stream. The zero value is ready for use.
type Options struct {
	// Bookmarks passes the source's proofs of being current on to the consumer.
	Bookmarks bool
	// Kind, if set, is what the objects are that the source shows in part
	// (PartialObjectMetadata): as that they are remembered.
	Kind schema.GroupVersionKind
	// Synced, if set, is called when the consumer was told a SYNCED and that is
	// committed.
	Synced func()
}

// Stream tells one consumer what a source shows, exactly once while nothing
// crashes, and again with the same ids after that. It is the target of one
// reflector; its methods must be called from one goroutine.
type Stream struct {
	sink    Sink
	state   State
	options Options

	position position
	// open are the announcements that a crash left: told or not, nobody knows.
	// Invariant: each is beyond the cursor.
	open []announcement
	// number is of the last announcement.
	number uint64
	// owed: this run begins behind an earlier SYNCED, and has not yet told one.
	owed bool
	// doubted: a list was refused because the consumer was told of later revisions.
	doubted bool
}

// New makes a stream that goes on from state.
func New(sink Sink, state State, options Options) (*Stream, error) {
	open, err := state.announced()
	if err != nil {
		return nil, err
	}
	s := &Stream{sink: sink, state: state, options: options, position: state.position(), open: open}
	s.owed = s.position.Cursor > 0
	for _, a := range open {
		s.number = max(s.number, a.number)
	}
	return s, nil
}

// Held is the revision up to which everything was told and committed. It is 0
// until the first list is complete, while a declared gap is not, and while what was
// told is void: a difference that was begun or is due has to be finished by a list,
// also by the next run.
func (s *Stream) Revision() keepwatch.Revision {
	if s.position.Relisting {
		return 0
	}
	return s.position.Cursor
}

// Void commits that no history follows what was told; see keepwatch.Target. The
// consumer is told by the gap, when there is a list.
func (s *Stream) Invalidate(_ context.Context, reason keepwatch.GapReason) error {
	if s.position.Cursor == 0 {
		return nil
	}
	t := s.begin()
	t.position.Relisting, t.position.Void, t.moved = true, reason, true
	return s.tell(t)
}

// Apply tells the next piece of history.
//
// After a restart, the first proof that the history has nothing newer is told as
// a SYNCED.
func (s *Stream) Apply(_ context.Context, batch keepwatch.Batch) (int, error) {
	held := s.Revision()
	switch {
	case held == 0:
		return 0, keepwatch.Failed(keepwatch.ProtocolViolation, "history from %d on, without a list before it", batch.From)
	case batch.From > held:
		return 0, keepwatch.Failed(keepwatch.ProtocolViolation,
			"history from %d on, but only %d is held: what is between them is missing", batch.From, held)
	}
	t := s.begin()
	dropped, err := t.applyAll(batch)
	if err != nil {
		return 0, err
	}
	t.advance(batch.To)
	if current(batch) && batch.To == t.position.Cursor {
		s.proven(t)
	}
	return dropped, s.tell(t)
}

// current reports whether a batch ends with a bookmark.
func current(batch keepwatch.Batch) bool {
	if !batch.Bookmark() && batch.To == batch.From {
		return false
	}
	for _, c := range batch.Changes {
		if c.Revision >= batch.To {
			return false
		}
	}
	return true
}

// proven tells that the cursor is the newest revision of the source, as of just
// now. A consumer that an earlier run has told more is not there yet.
func (s *Stream) proven(t *tail) {
	if t.position.Cursor < t.position.Told {
		return
	}
	if t.owed {
		t.synced()
	}
	if s.options.Bookmarks {
		t.messages = append(t.messages, Bookmark{t.position.Cursor})
	}
}

// distrust refuses a list once, so that the newest state is read in its place.
// What that shows is true, whatever was told before.
func (s *Stream) distrust(format string, args ...any) error {
	if s.doubted {
		return nil
	}
	s.doubted = true
	return keepwatch.Failed(keepwatch.Rewound, format, args...)
}

// tell announces a piece, tells it and commits it. An error leaves the stream
// where it was; whatever the consumer got of the piece, it gets again.
func (s *Stream) tell(t *tail) error {
	if t.empty() {
		return nil
	}
	announced, err := s.announce(t)
	if err != nil {
		return err
	}
	for _, m := range t.messages {
		if err := s.sink.Write(m); err != nil {
			return err
		}
	}
	if len(t.messages) > 0 {
		if err := s.sink.Flush(); err != nil {
			return err
		}
	}
	settled := append(announced, t.settled...)
	if err := s.state.commit(commit{records: t.records, settled: settled, position: t.position}); err != nil {
		return err
	}
	s.position, s.open, s.owed = t.position, t.open, t.owed
	if t.reached && s.options.Synced != nil {
		s.options.Synced()
	}
	return nil
}

// announce writes down what a piece is about to tell, and returns the numbers of
// the announcements. What an earlier run has announced is not announced again:
// its place in the order counts.
func (s *Stream) announce(t *tail) ([]uint64, error) {
	if !t.tells {
		return nil, nil
	}
	known := make(map[string]bool, len(s.open))
	for _, a := range s.open {
		known[a.id()] = true
	}
	var intents []announcement
	var numbers []uint64
	for _, i := range t.intents {
		if len(known) > 0 && known[i.id()] {
			continue
		}
		s.number++
		intents = append(intents, announcement{s.number, i})
		numbers = append(numbers, s.number)
	}
	return numbers, s.state.announce(intents, t.position.Told)
}
