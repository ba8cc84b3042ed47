package served

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keepwatch/keepwatch/test/bench/wire"
)

// watcherGroup is a set of watchers that count events.
type watcherGroup struct {
	start    time.Time
	links    []*link
	watchers []*watcher
}

// watcher counts events. Events arrive in the order of their revisions: its i-th event is
// the i-th write's.
type watcher struct {
	answer  *wire.Answer
	counter wire.Counter
	count   atomic.Int64
	// arrivals has the arrival time of each event, since the start of the group. Only the
	// connection writes it.
	arrivals []time.Duration
}

// openWatchers opens n watches, as many on a connection as possible, and waits until the
// server has answered each. Each has room for the arrival times of events events.
func (s *subject) openWatchers(ctx context.Context, n int, path string, events int) (*watcherGroup, error) {
	return s.openWatchersOf(ctx, n, func(int) string { return path }, events)
}

// openWatchersOf is openWatchers with a path for each.
func (s *subject) openWatchersOf(ctx context.Context, n int, path func(i int) string, events int) (*watcherGroup,
	error) {
	c := &watcherGroup{start: time.Now()}
	for i := range n {
		if i%wire.Streams == 0 {
			l, err := s.dial(ctx)
			if err != nil {
				c.close()
				return nil, err
			}
			c.links = append(c.links, l)
		}
		w := &watcher{counter: wire.Lines{}, arrivals: make([]time.Duration, 0, events)}
		if err := w.open(c.links[len(c.links)-1], path(i), c.start); err != nil {
			c.close()
			return nil, err
		}
		c.watchers = append(c.watchers, w)
	}
	for i, w := range c.watchers {
		if status, err := w.answer.Status(ctx); err != nil || status != "200" {
			c.close()
			return nil, fmt.Errorf("GET %s answers %q: %w", path(i), status, err)
		}
	}
	return c, nil
}

func (w *watcher) open(l *link, path string, began time.Time) (err error) {
	w.answer, err = l.Get(wire.Request{Path: path, Accept: asJSON, Data: func(p []byte) {
		n := w.counter.Count(p)
		if n == 0 {
			return
		}
		at := time.Since(began)
		for range n {
			w.arrivals = append(w.arrivals, at)
		}
		w.count.Add(int64(n))
	}})
	return err
}

// close ends all watches. A second call does nothing.
func (c *watcherGroup) close() {
	for _, l := range c.links {
		l.close()
	}
	c.links = nil
}

// cutOff is how many watches the server has ended.
func (c *watcherGroup) countEnded() (n int) {
	for _, w := range c.watchers {
		if w.ended() {
			n++
		}
	}
	return n
}

func (w *watcher) ended() bool {
	select {
	case <-w.answer.Done():
		return true
	default:
		return false
	}
}

// waitForEvents waits until every open watch has received so many events, or until the
// deadline.
func (c *watcherGroup) waitForEvents(ctx context.Context, events int) error {
	return c.waitUntil(ctx, func(i int) bool { return c.watchers[i].count.Load() >= int64(events) })
}

// waitUntil waits until every open watch is complete, or until the deadline.
func (c *watcherGroup) waitUntil(ctx context.Context, complete func(i int) bool) error {
	const deadline = time.Minute
	for began := time.Now(); ; {
		waiting := false
		for i, w := range c.watchers {
			waiting = waiting || !complete(i) && !w.ended()
		}
		if !waiting || time.Since(began) > deadline {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
