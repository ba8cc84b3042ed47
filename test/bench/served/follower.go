package served

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keepwatch/keepwatch/test/bench/wire"
)

// follower is who wants to be told of every update, through restarts.
type follower interface {
	// seen is the newest revision it was told of.
	seen() int64
}

// counts is what followers had to ask for beyond the watches that go on.
type counts struct {
	lists   atomic.Int64
	streams atomic.Int64 // watches that begin with everything
}

// rawWatcher watches by itself, and goes on where it was as soon as it can. If the
// server does not know that place any more it begins anew at the newest revision,
// without what was missed: a real client would have to list everything.
type rawWatcher struct {
	trunk  *trunk
	counts *counts
	told   atomic.Int64 // the revision of the last event
	// What follows is the connection's until an answer is done.
	place   string // the revision to go on from
	rest    []byte // of an event that is not whole
	failed  bool   // the server told of an error
	expired bool   // which is that it doesn't know the place
}

func (w *rawWatcher) seen() int64 { return w.told.Load() }

// run watches until ctx ends.
func (w *rawWatcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !w.watch(ctx) {
			_ = pause(ctx, retryAfter)
		}
	}
}

// retryAfter is what a server says that refuses a request.
const retryAfter = time.Second

// watch watches until the watch ends, and says whether to go on at once.
func (w *rawWatcher) watch(ctx context.Context) bool {
	l := w.trunk.get(ctx)
	if l == nil {
		return true
	}
	w.rest, w.failed, w.expired = w.rest[:0], false, false
	answer, err := l.Get(wire.Request{Path: watchPath(w.place), Accept: asJSON, Data: w.take})
	if err != nil {
		return pause(ctx, retryInterval) == nil // the connection ends
	}
	status, err := answer.Status(ctx)
	if err != nil {
		return pause(ctx, retryInterval) == nil
	}
	_ = answer.Wait(ctx) // how a watch ends does not matter
	if status == "410" || w.expired {
		return w.restart(ctx, l)
	}
	return status == "200" && !w.failed
}

func (w *rawWatcher) restart(ctx context.Context, l *link) (ok bool) {
	w.counts.lists.Add(1)
	newest, err := l.newest(ctx)
	if err == nil {
		w.place = newest
	}
	return err == nil
}

// take reads the revisions of the events in what came.
func (w *rawWatcher) take(piece []byte) {
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			w.rest = append(w.rest, piece...)
			return
		}
		event := piece[:end]
		if len(w.rest) > 0 {
			w.rest = append(w.rest, event...)
			event = w.rest
		}
		w.note(event)
		w.rest, piece = w.rest[:0], piece[end+1:]
	}
}

var (
	errorEvent   = []byte(`{"type":"ERROR"`)
	revisionName = []byte(`"resourceVersion":"`)
)

// note takes an object's revision, which comes before anything in the object that
// could look like it.
func (w *rawWatcher) note(event []byte) {
	if bytes.HasPrefix(event, errorEvent) {
		w.failed = true
		w.expired = w.expired || bytes.Contains(event, []byte(`"code":410`))
		return
	}
	_, text, _ := bytes.Cut(event, revisionName)
	text, _, _ = bytes.Cut(text, []byte{'"'})
	if revision, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		w.place = string(text)
		w.told.Store(revision)
	}
}

// trunk is a connection that up to [wire.Streams] watchers share, and that the next
// who finds it broken replaces.
type trunk struct {
	subject *subject
	mu      sync.Mutex // held while it connects, too
	link    *link
}

// get returns nil if nobody answers, after a while in which nobody else tries.
func (t *trunk) get(ctx context.Context) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.link != nil {
		select {
		case <-t.link.ended:
		default:
			return t.link
		}
	}
	link, err := t.subject.dial(ctx)
	if err != nil {
		_ = pause(ctx, retryInterval)
		return nil
	}
	t.link = link
	return link
}

// hangUp is for when no watcher runs any more.
func (t *trunk) hangUp() {
	if t.link != nil {
		t.link.hangUp()
	}
}

// awaitAll waits until each follower was told of something behind a revision, and
// returns after which time each was. Who wasn't when ctx ended has none.
func awaitAll(ctx context.Context, all []follower, behind int64, began time.Time) []time.Duration {
	at := make([]time.Duration, len(all))
	for waiting := len(all); waiting > 0; {
		for i, f := range all {
			if at[i] == 0 && f.seen() > behind {
				at[i] = time.Since(began)
				waiting--
			}
		}
		if pause(ctx, 5*time.Millisecond) != nil {
			break
		}
	}
	return at
}
