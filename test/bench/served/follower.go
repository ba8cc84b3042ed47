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

// follower is a client that follows every update, through restarts.
type follower interface {
	// seen returns the newest revision that it has received.
	seen() int64
}

// counts are the requests of followers except watches that resume.
type counts struct {
	lists   atomic.Int64
	streams atomic.Int64 // watches that begin with everything
}

// rawWatcher watches without a client library, and resumes at its cursor as soon as
// possible. If the server does not have that history any more, it resumes at the newest
// revision without the missed events: a real client would have to list everything.
type rawWatcher struct {
	shared    *sharedLink
	counts    *counts
	path      string       // of a list of what it watches
	delivered atomic.Int64 // the revision of the last event
	// What follows is the connection's until an answer is done.
	cursor  string // the revision to resume at
	partial []byte // of an event that is not whole
	failed  bool   // the server sent an error event
	expired bool   // the error is an expired revision
}

func (w *rawWatcher) seen() int64 { return w.delivered.Load() }

// run watches until ctx ends.
func (w *rawWatcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !w.watch(ctx) {
			_ = pause(ctx, retryAfter)
		}
	}
}

// retryAfter is the Retry-After of a server that refuses a request.
const retryAfter = time.Second

// watch watches until the watch ends, and returns whether to resume at once.
func (w *rawWatcher) watch(ctx context.Context) bool {
	l := w.shared.get(ctx)
	if l == nil {
		return true
	}
	w.partial, w.failed, w.expired = w.partial[:0], false, false
	answer, err := l.Get(wire.Request{Path: watchOf(w.path, w.cursor), Accept: asJSON, Data: w.read})
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
		w.cursor = newest
	}
	return err == nil
}

// read parses the events in the next bytes of the answer.
func (w *rawWatcher) read(piece []byte) {
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			w.partial = append(w.partial, piece...)
			return
		}
		event := piece[:end]
		if len(w.partial) > 0 {
			w.partial = append(w.partial, event...)
			event = w.partial
		}
		w.parseEvent(event)
		w.partial, piece = w.partial[:0], piece[end+1:]
	}
}

var (
	errorEvent   = []byte(`{"type":"ERROR"`)
	revisionName = []byte(`"resourceVersion":"`)
)

// parseEvent reads an object's revision. It is the first one in the text, before any field
// that could contain the same text.
func (w *rawWatcher) parseEvent(event []byte) {
	if bytes.HasPrefix(event, errorEvent) {
		w.failed = true
		w.expired = w.expired || bytes.Contains(event, []byte(`"code":410`))
		return
	}
	_, text, _ := bytes.Cut(event, revisionName)
	text, _, _ = bytes.Cut(text, []byte{'"'})
	if revision, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		w.cursor = string(text)
		w.delivered.Store(revision)
	}
}

// sharedLink is a connection that up to [wire.Streams] watchers share. The next watcher
// that finds it closed replaces it.
type sharedLink struct {
	subject *subject
	mu      sync.Mutex // locked while it connects, too
	link    *link
}

// get returns nil if the server does not answer, after a wait during which no other
// watcher tries.
func (t *sharedLink) get(ctx context.Context) *link {
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
func (t *sharedLink) close() {
	if t.link != nil {
		t.link.close()
	}
}

// waitAll waits until each follower has received an event above a revision, and returns
// the time that each needed. It is zero for a follower that had none when ctx ended.
func waitAll(ctx context.Context, all []follower, behind int64, began time.Time) []time.Duration {
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
