package kube

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync"

	"github.com/keepwatch/keepwatch"
)

// watchAccept are the Accept headers of watches in JSON, by Form.
var watchAccept = [...]string{
	WholeObjects: "application/json",
	TableRows:    listAccept[TableRows],
	MetadataOnly: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
}

// A batch takes what is at hand up to here, and one event in any case.
const (
	maxBatchEvents = 1000
	maxBatchBytes  = 1 << 20
)

// Watch opens the history after from.
//
// A Kubernetes API writes one object per revision, so every event ends one, and
// a batch can end behind any event. Changes come in the order in which the
// server sent them. An event below what the stream has shown already begins a
// new batch, and so does whatever follows a bookmark: a target sees by From that
// such a change is old, and tells a repetition from news. A bookmark below what
// the stream has shown is a ProtocolViolation.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	if from == 0 {
		return nil, keepwatch.Failed(keepwatch.InvariantViolation, "watch %s: no revision to begin from", s.name)
	}
	q := s.watchQuery()
	q.Set("resourceVersion", from.String())
	x, failure := s.get(ctx, "watch", s.accept(watchAccept), q)
	if failure != nil {
		return nil, failure
	}
	return follow(s.frames(x, from), keepwatch.Batch{From: from, To: from}), nil
}

// watchQuery asks for bookmarks, and for an end after 5 to 10 minutes, as
// client-go does: streams then spread over API servers again after one was
// away, and no proxy on the way has to keep one for the server's own 30 to 60.
func (s *Source) watchQuery() url.Values {
	q := maps.Clone(s.base)
	q.Set("watch", "true")
	q.Set("allowWatchBookmarks", "true")
	q.Set("timeoutSeconds", strconv.Itoa(300+rand.IntN(301)))
	return q
}

// watch reads ahead of its consumer, within the bound of a batch, so that one
// batch is decoded while the one before is worked on. The reading goroutine
// lives until the stream ends or Close.
type watch struct {
	frames *frames
	ended  chan struct{} // closed when the goroutine is gone

	mu      sync.Mutex
	moved   sync.Cond          // some field below has changed
	next    keepwatch.Batch    // what was read and not taken
	bytes   int                // of its objects
	news    bool               // next says something; false: From == To, and no changes
	whole   bool               // next ends with a bookmark
	failure *keepwatch.Failure // what comes behind next; nil while reading
}

// follow goes on reading f behind first.
func follow(f *frames, first keepwatch.Batch) *watch {
	w := &watch{frames: f, ended: make(chan struct{}), next: first}
	w.news = first.From != first.To
	w.whole = w.news
	w.moved.L = &w.mu
	go w.run()
	return w
}

func (w *watch) run() {
	defer close(w.ended)
	defer w.frames.body.close()
	for {
		e, failure := w.frames.next()
		if failure != nil {
			w.end(failure)
			return
		}
		if !w.put(e) {
			return
		}
	}
}

// put adds e to the next batch once there is room, and reports whether the
// watch is still open.
func (w *watch) put(e event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.failure == nil && !w.fits(e) {
		w.moved.Wait()
	}
	if w.failure != nil {
		return false
	}
	if e.bookmark() {
		w.whole = true
	} else {
		w.next.Changes = append(w.next.Changes, e.change)
		w.bytes += e.size
	}
	w.next.To = max(w.next.To, e.revision)
	w.news = true
	w.moved.Broadcast()
	return true
}

func (w *watch) fits(e event) bool {
	return !w.news || !w.whole && e.revision >= w.next.To &&
		len(w.next.Changes) < maxBatchEvents && w.bytes+e.size <= maxBatchBytes
}

// end says what comes behind the next batch: the first call counts.
func (w *watch) end(failure *keepwatch.Failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		w.failure = failure
		w.moved.Broadcast()
	}
}

// Next returns what has been read, at most 1,000 events or 1 MiB, and waits
// while that is nothing.
func (w *watch) Next() (keepwatch.Batch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.news && w.failure == nil {
		w.moved.Wait()
	}
	if !w.news {
		return keepwatch.Batch{}, w.failure
	}
	batch := w.next
	w.next = keepwatch.Batch{From: batch.To, To: batch.To}
	w.bytes, w.news, w.whole = 0, false, false
	w.moved.Broadcast()
	return batch, nil
}

// Close ends the watch and waits until it holds nothing any more.
func (w *watch) Close() {
	w.end(keepwatch.Failed(keepwatch.Ended, "%s: closed", w.frames.op))
	w.frames.body.cancel(nil)
	<-w.ended
}
