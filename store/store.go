package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Store is one resource's versioned state. It has one writer, a reflector or
// whatever else calls Apply and Replace, and any number of readers, who never
// wait for the writer nor make it wait.
type Store struct {
	options Options
	begun   time.Time
	view    atomic.Pointer[view]
	bells   bells
	writing sync.Mutex
	// heard is the number of the newest view for which all bells were rung. It belongs
	// to the writer.
	heard uint64
}

// view is all that readers see, published as one.
type view struct {
	snapshot  *Snapshot
	window    window
	graveyard *graveyard
	// attributes go on behind the window.
	attributes attributeLog
	// void, if set, is why a list has to come before any history.
	void keepwatch.GapReason
	// number counts the deliveries, and bookmark is that of the newest one without
	// changes.
	number, bookmark uint64
}

// New makes an empty store.
func New(options Options) *Store {
	s := &Store{options: options.withDefaults(), begun: time.Now()}
	s.view.Store(&view{snapshot: &Snapshot{}, graveyard: &graveyard{}, attributes: attributeLog{kept: s.options.Attributes != nil}})
	return s
}

// Snapshot is the newest state. It does not block.
func (s *Store) Snapshot() *Snapshot { return s.view.Load().snapshot }

// Held is the newest revision, zero before the first list and while the state is
// void; see keepwatch.Target. Readers go by Snapshot.
func (s *Store) Held() keepwatch.Revision {
	v := s.view.Load()
	if v.void != "" {
		return 0
	}
	return v.snapshot.revision
}

// Void says that no history follows what is held; see keepwatch.Target. Readers and
// watchers go on with what there is, and are not woken.
func (s *Store) Void(_ context.Context, reason keepwatch.GapReason) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	if next.snapshot.revision > 0 {
		next.void = reason
		s.view.Store(&next)
	}
	return nil
}

// Bounds tells since which revisions a consumer can go on: exact since history,
// by a declared gap since difference (but from within an older gap). Both are of
// the current epoch.
func (s *Store) Bounds() (history, difference keepwatch.Revision) {
	v := s.view.Load()
	return v.window.oldest(v.snapshot.Cursor()), v.graveyard.horizon
}

// Apply takes the next piece of history; see keepwatch.Target. It publishes all
// of it at once, or on failure nothing.
func (s *Store) Apply(_ context.Context, batch keepwatch.Batch) (dropped int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	v := s.view.Load()
	if err := follows(v, batch); err != nil {
		return 0, err
	}
	h := history{edition: newEdition(v.snapshot, batch.To), graves: v.graveyard}
	h.changes = make([]keepwatch.Change, 0, len(batch.Changes))
	for _, c := range batch.Changes {
		news, err := h.take(c)
		if err != nil {
			return dropped, err
		}
		if !news {
			dropped++
		}
	}
	if batch.To <= v.snapshot.revision {
		return dropped, nil // nothing but duplicates
	}
	delivery := keepwatch.Batch{From: v.snapshot.revision, To: batch.To, Changes: slices.Clip(h.changes)}
	return dropped, s.publish(&h.edition, delivery)
}

// replace publishes what a list has changed as a gap.
func (s *Store) replace(e *edition, gap keepwatch.Gap) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.publish(e, gap)
}

// confirm says that a list has shown what is held.
func (s *Store) confirm() {
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	next.void = ""
	s.view.Store(&next)
}

// publish makes an edition the newest view, and a delivery of it. s.writing is
// held.
func (s *Store) publish(e *edition, d keepwatch.Delivery) error {
	old := s.view.Load()
	if old.snapshot.Cursor() != e.base.Cursor() { // else it is the same state, perhaps with one index more
		return keepwatch.Failed(keepwatch.Broken,
			"the state moved from revision %d to %d under a list: there must be one writer", e.base.revision, old.snapshot.revision)
	}
	next := &view{
		snapshot: e.snapshot(), window: old.window, graveyard: old.graveyard.after(e, d, s.options),
		attributes: old.attributes.after(e),
		number:     old.number + 1, bookmark: old.bookmark,
	}
	m := moment{delivery: d, from: old.snapshot.Cursor(), to: next.snapshot.Cursor(), at: time.Since(s.begun)}
	if old.snapshot.revision == 0 { // nobody has a cursor yet, and the changes are not told
		next.snapshot.indexes = old.snapshot.indexes.of(next.snapshot.tree)
	} else {
		next.snapshot.indexes = old.snapshot.indexes.after(m.changes())
		next.window = old.window.add(m, int(old.number-s.heard), s.options)
		for i := range old.window.len() + 1 - next.window.len() { // which it has dropped
			next.attributes = next.attributes.add(old.window.at(i), e.epoch, s.options)
		}
	}
	s.announce(next, m)
	return nil
}

// announce publishes a view and wakes who waits for it. Watchers of a scope are
// woken for everything now and then, before what they have not looked at can leave
// the window.
func (s *Store) announce(next *view, m moment) {
	changes, gap := m.changes(), m.gap()
	if len(changes) == 0 && !gap {
		next.bookmark = next.number
	}
	s.bells.around(changes, gap, func(c *scope) { c.touched.Store(next.number) })
	s.view.Store(next)
	all := gap || len(changes) == 0 || next.number-s.heard > uint64(next.window.len()/2)
	if all {
		s.heard = next.number
	}
	s.bells.every.ring()
	s.bells.around(changes, all, func(c *scope) { c.ring() })
}
