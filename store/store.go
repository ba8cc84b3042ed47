package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Store has one resource's versioned state. It has one writer, which calls Apply and
// Replace (a reflector, usually), and any number of readers. Readers never wait for the
// writer, and the writer never waits for them.
type Store struct {
	options   Options
	begun     time.Time
	view      atomic.Pointer[view]
	notifiers notifiers
	terms     terms
	past      past
	writing   sync.Mutex
	records   *view // that the first list is compared with; nil after it, or if there is none
	// lastBroadcast is the number of the newest view for which all notifiers broadcast.
	// Only the writer uses it.
	lastBroadcast uint64
}

// view is everything that readers see. The writer publishes it atomically.
type view struct {
	snapshot   *Snapshot
	window     window
	graveyard  *graveyard
	attributes attributeLog
	// invalid, if set, is the reason why the next delivery must be a list.
	invalid keepwatch.GapReason
	// number counts the deliveries, and bookmark is the number of the newest one that reaches
	// beyond its changes.
	number, bookmark uint64
}

// New returns an empty store.
func New(options Options) *Store {
	s := &Store{options: options.withDefaults(), begun: time.Now()}
	s.view.Store(&view{snapshot: &Snapshot{}, graveyard: &graveyard{},
		attributes: attributeLog{enabled: s.options.Attributes != nil}})
	if r := s.options.Records; r != nil && r.Revision > 0 {
		s.records, s.options.Records = r.view(s.options), nil
	}
	return s
}

// NewAt returns a store whose state is a snapshot, in constant time. The snapshot may be another store's, of any
// age; its indexes are the new store's, too. The new store has no history before it, and belongs to the epoch
// of the snapshot. What is written to one of the stores, the other does not see.
func NewAt(snapshot *Snapshot, options Options) *Store {
	s := New(options)
	s.view.Store(&view{
		snapshot: snapshot, graveyard: &graveyard{horizon: snapshot.revision},
		attributes: attributeLog{enabled: s.options.Attributes != nil, horizon: snapshot.revision},
		number:     1,
	})
	s.lastBroadcast = 1
	for i := range s.notifiers.scopes { // a watcher from an earlier revision must not skip to the snapshot
		s.notifiers.scopes[i].lastChanged.Store(1)
	}
	return s
}

// Snapshot returns the newest state. It does not block.
func (s *Store) Snapshot() *Snapshot { return s.view.Load().snapshot }

// Revision returns the newest revision, zero before the first list and while the state is
// invalid; see keepwatch.Target. Readers use Snapshot.
func (s *Store) Revision() keepwatch.Revision {
	v := s.view.Load()
	if v.invalid != "" {
		return 0
	}
	return v.snapshot.revision
}

// Invalidate marks the state: a list must replace it before any history; see
// keepwatch.Target. Readers and watchers retain the current state, and watchers are not
// woken.
func (s *Store) Invalidate(_ context.Context, reason keepwatch.GapReason) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	if next.snapshot.revision > 0 {
		next.invalid = reason
		s.view.Store(&next)
	}
	return nil
}

// Bounds returns how far back a consumer of the current epoch can resume: since history
// it receives every change, since difference a declared gap, unless it resumes within an
// older gap.
func (s *Store) Bounds() (history, difference keepwatch.Revision) {
	v := s.view.Load()
	return v.window.oldest(v.snapshot.Cursor()), v.graveyard.horizon
}

// Apply applies a batch of changes and publishes them together, or nothing on failure; see
// keepwatch.Target. It returns how many changes were duplicates.
func (s *Store) Apply(_ context.Context, batch keepwatch.Batch) (dropped int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	v := s.view.Load()
	if err := validateBatch(v, batch); err != nil {
		return 0, err
	}
	t := newTxn(v, batch.To)
	t.changes = make([]keepwatch.Change, 0, len(batch.Changes))
	for _, c := range batch.Changes {
		applied, err := t.apply(c)
		if err != nil {
			return dropped, err
		}
		if !applied {
			dropped++
		}
	}
	if batch.To <= v.snapshot.revision {
		return dropped, nil // there are only duplicates
	}
	delivery := keepwatch.Batch{From: v.snapshot.revision, To: batch.To, Changes: slices.Clip(t.changes)}
	return dropped, s.publish(t, delivery)
}

// replace publishes the changes of a list as a gap.
func (s *Store) replace(t *txn, gap keepwatch.Gap) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.publish(t, gap)
}

// confirm makes the state valid again, after a list that equals it.
func (s *Store) confirm() {
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	next.invalid = ""
	s.view.Store(&next)
}

// publish publishes the next state and appends its delivery to the window. The caller
// holds s.writing.
func (s *Store) publish(t *txn, d keepwatch.Delivery) error {
	old := s.view.Load()
	first := old.snapshot.revision == 0
	if first && s.records != nil && t.base == s.records.snapshot {
		old = s.records
		t.fillTombstones(s.options)
	}
	if old.snapshot.Cursor() != t.base.Cursor() { // the snapshots may differ, by an index that was added
		return keepwatch.Failed(keepwatch.InvariantViolation,
			"the state moved from revision %d to %d under a list: there must be one writer", t.base.revision,
			old.snapshot.revision)
	}
	next := &view{
		snapshot: t.snapshot(), window: old.window, graveyard: old.graveyard.after(t, d, s.options),
		attributes: old.attributes.after(t),
		number:     old.number + 1, bookmark: old.bookmark,
	}
	e := logEntry{delivery: d, from: old.snapshot.Cursor(), to: next.snapshot.Cursor(), at: time.Since(s.begun)}
	if first { // no watcher has a cursor in the window, and the changes are not delivered
		next.snapshot.indexes = s.view.Load().snapshot.indexes.over(next.snapshot.tree)
		next.attributes = attributeLog{enabled: s.options.Attributes != nil, horizon: t.revision}
		s.records = nil
	} else {
		next.snapshot.indexes = old.snapshot.indexes.after(e.changes())
		next.window = old.window.add(e, int(old.number-s.lastBroadcast), s.options)
		for i := range old.window.len() + 1 - next.window.len() { // the entries that the window dropped
			next.attributes = next.attributes.add(old.window.at(i), t.epoch, s.options)
		}
	}
	s.notify(next, e)
	return nil
}

// notify publishes a view and wakes the watchers that wait for it. It wakes the watchers
// of all scopes before log entries that they have not seen leave the window.
func (s *Store) notify(next *view, e logEntry) {
	changes, gap := e.changes(), e.isGap()
	progress := e.isProgress()
	if progress {
		next.bookmark = next.number
	}
	s.notifiers.inScopes(changes, gap, func(c *scope) { c.lastChanged.Store(next.number) })
	touched, every := s.terms.mark(changes, gap, next.number, s.options)
	s.view.Store(next)
	all := gap || progress || next.number-s.lastBroadcast > uint64(next.window.len()/2)
	if all {
		s.lastBroadcast = next.number
	}
	s.notifiers.all.broadcast()
	s.notifiers.inScopes(changes, all, func(c *scope) { c.broadcast() })
	s.terms.broadcast(touched, all || every)
	s.past.trim(next)
}
