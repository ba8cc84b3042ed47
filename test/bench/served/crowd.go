package served

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keepwatch/keepwatch/test/bench/wire"
)

// crowd is watchers that count.
type crowd struct {
	began    time.Time
	links    []*link
	watchers []*watcher
}

// watcher counts events. Events come in the order of their revisions, so that its
// i-th is of the i-th write, and need not be looked into.
type watcher struct {
	answer  *wire.Answer
	counter wire.Counter
	seen    atomic.Int64
	// arrivals are when events came, since the crowd began. The connection's.
	arrivals []time.Duration
}

// gather opens n watches, as many on a connection as go, and waits until the server
// has answered each. They will be told of so many events.
func (s *subject) gather(ctx context.Context, n int, path string, events int) (*crowd, error) {
	c := &crowd{began: time.Now()}
	for i := range n {
		if i%wire.Streams == 0 {
			l, err := s.dial(ctx)
			if err != nil {
				c.disperse()
				return nil, err
			}
			c.links = append(c.links, l)
		}
		w := &watcher{counter: wire.Lines{}, arrivals: make([]time.Duration, 0, events)}
		if err := w.open(c.links[len(c.links)-1], path, c.began); err != nil {
			c.disperse()
			return nil, err
		}
		c.watchers = append(c.watchers, w)
	}
	for _, w := range c.watchers {
		if status, err := w.answer.Status(ctx); err != nil || status != "200" {
			c.disperse()
			return nil, fmt.Errorf("GET %s answers %q: %w", path, status, err)
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
		w.seen.Add(int64(n))
	}})
	return err
}

// disperse ends all watches.
func (c *crowd) disperse() {
	for _, l := range c.links {
		l.hangUp()
	}
}

// cutOff is how many watches the server has ended.
func (c *crowd) cutOff() (n int) {
	for _, w := range c.watchers {
		if w.over() {
			n++
		}
	}
	return n
}

func (w *watcher) over() bool {
	select {
	case <-w.answer.Done():
		return true
	default:
		return false
	}
}

// await waits until everybody whose watch goes on has seen so many events, or until
// it takes too long.
func (c *crowd) await(ctx context.Context, events int) error {
	const deadline = time.Minute
	for began := time.Now(); ; {
		waiting := slices.ContainsFunc(c.watchers, func(w *watcher) bool {
			return w.seen.Load() < int64(events) && !w.over()
		})
		if !waiting || time.Since(began) > deadline {
			return nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
