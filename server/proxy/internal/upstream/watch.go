package upstream

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch"
)

// openWatch is the open watch of a source. It replaces the server's watch by a confirming one when the cache must
// reach a revision and no event brings it there.
type openWatch struct {
	source *Source
	ctx    context.Context

	// source.mu is held for these.
	inner      keepwatch.Watch
	at         keepwatch.Revision // delivered
	confirming bool               // inner is a confirming watch that has not sent a bookmark
	replaced   bool               // inner is closed, to be replaced
	closed     bool
}

// confirm makes the cache reach a revision: by an event, or by a bookmark of a confirming watch.
func (s *Source) confirm(newest keepwatch.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = max(s.wanted, newest)
	if w := s.open; w != nil && w.at < newest {
		time.AfterFunc(eventDelay, func() { w.replaceBehind(newest) })
	}
}

// replaceBehind closes the server's watch, so that Next opens another one, if it is behind a revision and
// its bookmark is not due anyhow.
func (w *openWatch) replaceBehind(newest keepwatch.Revision) {
	w.source.mu.Lock()
	inner := w.inner
	replace := w.at < newest && !w.confirming && !w.replaced && !w.closed
	w.replaced = w.replaced || replace
	w.source.mu.Unlock()
	if replace {
		inner.Close()
	}
}

// Next returns the next batch of the server's watch, or of the one that replaces it.
func (w *openWatch) Next() (keepwatch.Batch, error) {
	for {
		batch, err := w.current().Next()
		if err == nil {
			w.advance(batch)
			return batch, nil
		}
		if !w.reopens() {
			return batch, w.source.report(w.ctx, err)
		}
		inner, err := w.source.connect(w.ctx, w.position())
		if err != nil {
			return batch, err
		}
		w.replace(inner)
	}
}

func (w *openWatch) current() keepwatch.Watch {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	return w.inner
}

func (w *openWatch) position() keepwatch.Revision {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	return w.at
}

// advance records what was delivered. A confirming watch that has sent its bookmark, and is still behind, is
// replaced.
func (w *openWatch) advance(b keepwatch.Batch) {
	w.source.mu.Lock()
	w.at, w.source.failing = b.To, time.Time{}
	if b.Progress() {
		w.confirming = false
	}
	newest := w.source.wanted
	w.source.mu.Unlock()
	if b.Progress() {
		w.replaceBehind(newest)
	}
}

// reopens reports whether the server's watch ended because it is to be replaced.
func (w *openWatch) reopens() bool {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	return w.replaced && !w.closed
}

// replace continues with another watch of the server's.
func (w *openWatch) replace(inner keepwatch.Watch) {
	w.source.mu.Lock()
	w.inner, w.replaced, w.confirming = inner, false, w.source.confirming
	closed := w.closed
	w.source.mu.Unlock()
	if closed {
		inner.Close()
	}
}

// Close ends the watch. A blocked Next returns.
func (w *openWatch) Close() {
	w.source.mu.Lock()
	inner := w.inner
	w.closed = true
	if w.source.open == w {
		w.source.open = nil
	}
	w.source.mu.Unlock()
	inner.Close()
}
