package store

import (
	"context"
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
	writing sync.Mutex
	view    atomic.Pointer[view]
}

// view is all that readers see, published as one.
type view struct {
	snapshot  *Snapshot
	window    window
	graveyard graveyard
	// newer is closed when the next view has been published.
	newer chan struct{}
}

// New makes an empty store.
func New(options Options) *Store {
	s := &Store{options: options.withDefaults()}
	s.view.Store(&view{snapshot: &Snapshot{}, newer: make(chan struct{})})
	return s
}

// Snapshot is the newest state. It does not block.
func (s *Store) Snapshot() *Snapshot { return s.view.Load().snapshot }

// Held is the newest revision, zero before the first list.
func (s *Store) Held() keepwatch.Revision { return s.Snapshot().revision }

// Bounds tells since which revisions a consumer can go on: exact since history,
// by a declared gap since difference. Both are of the current epoch.
func (s *Store) Bounds() (history, difference keepwatch.Revision) {
	v := s.view.Load()
	return v.oldest(), v.graveyard.horizon
}

// oldest is the revision since which every moment of this epoch is an exact
// batch.
func (v *view) oldest() keepwatch.Revision {
	oldest := v.snapshot.revision
	for i := len(v.window.items) - 1; i >= 0; i-- {
		m := v.window.items[i]
		if _, exact := m.delivery.(keepwatch.Batch); !exact || m.epoch != v.snapshot.epoch {
			break
		}
		oldest = m.from
	}
	return oldest
}

// Apply takes the next piece of history; see keepwatch.Target. It publishes all
// of it at once, or on failure nothing.
func (s *Store) Apply(_ context.Context, batch keepwatch.Batch) (dropped int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	v := s.view.Load()
	if err := follows(v.snapshot, batch); err != nil {
		return 0, err
	}
	e := newEdition(v.snapshot, batch.To)
	for _, c := range batch.Changes {
		news, err := e.apply(c, v.graveyard)
		if err != nil {
			return dropped, err
		}
		if !news {
			dropped++
		}
	}
	if batch.To == v.snapshot.revision {
		return dropped, nil // nothing but duplicates
	}
	s.publish(e, keepwatch.Batch{From: v.snapshot.revision, To: batch.To, Changes: e.changes})
	return dropped, nil
}

// follows checks that a batch goes on where the state ends.
func follows(held *Snapshot, b keepwatch.Batch) error {
	switch {
	case held.revision == 0:
		return keepwatch.Failed(keepwatch.Broken, "history (%d, %d] arrives before the first list", b.From, b.To)
	case b.From > held.revision:
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"history from %d on leaves a hole after %d", b.From, held.revision)
	case b.To < held.revision && b.Bookmark():
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"a bookmark goes back to %d from %d", b.To, held.revision)
	}
	return nil
}

// publish makes an edition the newest view, and a delivery of it.
func (s *Store) publish(e *edition, d keepwatch.Delivery) {
	old := s.view.Load()
	next := &view{
		snapshot:  e.snapshot(),
		window:    old.window,
		graveyard: old.graveyard,
		newer:     make(chan struct{}),
	}
	if next.snapshot.epoch != old.snapshot.epoch {
		next.graveyard = graveyard{horizon: next.snapshot.revision}
	} else {
		for _, t := range e.dead {
			next.graveyard = next.graveyard.bury(t, s.options)
		}
	}
	if old.snapshot.revision == 0 {
		next.graveyard.horizon = next.snapshot.revision // and nobody has a cursor yet
	} else {
		next.window = old.window.add(s.moment(old, next, d), s.options)
	}
	s.view.Store(next)
	close(old.newer)
}

func (s *Store) moment(old, next *view, d keepwatch.Delivery) moment {
	m := moment{
		delivery: d, from: old.snapshot.revision, to: next.snapshot.revision,
		epoch: next.snapshot.epoch, at: time.Now(),
	}
	for _, c := range changes(d) {
		m.bytes += int64(s.options.Size(c.Object))
		if c.Prior != nil && c.Prior != c.Object {
			m.bytes += int64(s.options.Size(c.Prior))
		}
	}
	return m
}
