package stream

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Target = (*Stream)(nil)

// Options configure a stream. The zero value is ready for use.
type Options struct {
	// Bookmarks sends a Bookmark whenever the source confirms that the stream is current.
	Bookmarks bool
	// Kind, if set, is the kind of the objects that the source sends as
	// PartialObjectMetadata. The index records them under it.
	Kind schema.GroupVersionKind
	// Synced, if set, is called after each Synced that is flushed and committed.
	Synced func()
	// Project, if set, returns what is delivered in place of an object's JSON, for example without confidential values.
	// The Rendition is that of the projection: nothing that is stored tells what was removed. Project must not change its
	// argument, and must be idempotent.
	Project func(object []byte) ([]byte, error)
	// Metadata, if set, returns what the state stores in place of the Metadata of an object, for
	// example without confidential annotations. It must be idempotent.
	Metadata func(metadata []byte) ([]byte, error)
	// Source, if set, is the stream's source. The state stores its definition.
	Source DefinedSource
}

// DefinedSource is a source that notices that the definition of its type, or the version of its server, is another one
// than that of the newest list: objects can look different then at equal revisions, and only a list shows it.
type DefinedSource interface {
	// Definition returns the definition that the newest list has shown, as a text, empty if it is not known.
	Definition() string
	// SetDefinition is called before the source is used, with the text that an earlier source has returned, empty if
	// there is none. If that is not the definition any more, a watch fails with [keepwatch.Redefined].
	SetDefinition(definition string)
}

// Defined returns a source as a DefinedSource, nil if it is none.
func Defined(source keepwatch.Source) DefinedSource {
	defined, _ := source.(DefinedSource)
	return defined
}

// Stream sends the state and the changes of a source to one consumer: once while no
// process crashes, and again with the same ids after a crash. It is the target of one
// reflector; its methods must be called from one goroutine.
type Stream struct {
	sink    Sink
	state   State
	options Options

	position position
	// announced has the announcements of a run that crashed, whose events may or may not
	// have been written. Invariant: the revision of each is above the cursor.
	announced []announcement
	// lastNumber is the number of the last announcement.
	lastNumber uint64
	// syncedDue is true while this run continues an earlier one and has not sent a Synced.
	syncedDue bool
}

// New returns a stream that continues from state. It returns an error if the state cannot be
// read.
func New(sink Sink, state State, options Options) (*Stream, error) {
	open, err := state.announced()
	if err != nil {
		return nil, err
	}
	s := &Stream{sink: sink, state: state, options: options, position: state.position(), announced: open}
	s.syncedDue = s.position.Cursor > 0
	if options.Source != nil {
		options.Source.SetDefinition(s.position.Definition)
	}
	for _, a := range open {
		s.lastNumber = max(s.lastNumber, a.number)
	}
	return s, nil
}

// Revision returns the revision up to which all events were flushed and committed. It
// returns zero until the first list is complete, from Invalidate on until the next list is
// complete, and while a declared gap is open: only a list can end a difference, in the
// next run too.
func (s *Stream) Revision() keepwatch.Revision {
	if s.position.Relisting {
		return 0
	}
	return s.position.Cursor
}

// Invalidate commits that no watch can continue from the cursor; see keepwatch.Target.
// The consumer receives the reason with the gap, when a list begins.
func (s *Stream) Invalidate(_ context.Context, reason keepwatch.GapReason) error {
	if s.position.Cursor == 0 {
		return nil
	}
	d := s.newDelivery()
	d.position.Relisting, d.position.Invalid, d.moved = true, reason, true
	return s.deliver(d)
}

// Apply delivers the next batch of the history. See keepwatch.Target.
//
// After a restart, the first batch that confirms the cursor as the source's newest
// revision also sends a Synced.
func (s *Stream) Apply(_ context.Context, batch keepwatch.Batch) (int, error) {
	revision := s.Revision()
	switch {
	case revision == 0:
		return 0, keepwatch.Failed(keepwatch.ProtocolViolation, "history from %d on, without a list before it", batch.From)
	case batch.From > revision:
		return 0, keepwatch.Failed(keepwatch.ProtocolViolation,
			"history from %d on, but the stream is at %d: the changes between them are missing", batch.From, revision)
	}
	d := s.newDelivery()
	dropped, err := d.applyBatch(batch)
	if err != nil {
		return 0, err
	}
	d.advance(batch.To)
	if endsWithBookmark(batch) && batch.To == d.position.Cursor {
		s.confirmCurrent(d)
	}
	return dropped, s.deliver(d)
}

// endsWithBookmark reports whether a batch reaches beyond its last change, or confirms
// that the stream is current.
func endsWithBookmark(batch keepwatch.Batch) bool {
	return batch.Progress() && (batch.Bookmark() || batch.To != batch.From)
}

// confirmCurrent adds the Synced that is due, and a bookmark: the cursor is the source's
// newest revision. It adds nothing while the cursor is below a revision that an earlier
// run has delivered, because the consumer's state is then ahead of the cursor.
func (s *Stream) confirmCurrent(d *delivery) {
	if d.position.Cursor < d.position.Delivered {
		return
	}
	if d.syncedDue {
		d.appendSynced()
	}
	if s.options.Bookmarks {
		d.messages = append(d.messages, Bookmark{d.position.Cursor})
	}
}

// deliver announces a delivery, writes it to the sink, flushes and commits it. An error
// leaves the stream at its old position; the consumer then receives again what it has
// received of the delivery.
func (s *Stream) deliver(d *delivery) error {
	if d.empty() {
		return nil
	}
	if err := d.projectLastKnown(); err != nil {
		return err
	}
	if err := d.projectMetadata(s.options.Metadata); err != nil {
		return err
	}
	numbers, err := s.announce(d)
	if err != nil {
		return err
	}
	for _, m := range d.messages {
		if err := s.sink.Write(m); err != nil {
			return err
		}
	}
	if len(d.messages) > 0 {
		if err := s.sink.Flush(); err != nil {
			return err
		}
	}
	settled := append(numbers, d.settled...)
	if err := s.state.commit(commit{records: d.records, settled: settled, position: d.position}); err != nil {
		return err
	}
	s.position, s.announced, s.syncedDue = d.position, d.announced, d.syncedDue
	if d.hasSynced && s.options.Synced != nil {
		s.options.Synced()
	}
	return nil
}

// announce writes the delivery's intents to the state, and returns their numbers. An
// intent that an earlier run has announced keeps its number, because numbers give the
// order of the events.
func (s *Stream) announce(d *delivery) ([]uint64, error) {
	if !d.hasEvents {
		return nil, nil
	}
	known := make(map[string]bool, len(s.announced))
	for _, a := range s.announced {
		known[a.id()] = true
	}
	var intents []announcement
	var numbers []uint64
	for _, i := range d.intents {
		if len(known) > 0 && known[i.id()] {
			continue
		}
		s.lastNumber++
		intents = append(intents, announcement{s.lastNumber, i})
		numbers = append(numbers, s.lastNumber)
	}
	return numbers, s.state.announce(intents, d.position.Delivered)
}
