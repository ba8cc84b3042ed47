package listwatch

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/deletions"
)

// maxBatch bounds the events of a batch.
const maxBatch = 1000

// maxOpens bounds how long Next waits for deletions behind deletions, in times of deletions.Open.
const maxOpens = 5

// Watch returns the events after from.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	options := watchOptions()
	switch {
	case s.versions == nil && s.cut == from:
		return nil, keepwatch.Failed(keepwatch.Expired,
			"watch %s: the stream ended within the deletions at revision %v, which are not sent again", s.name, from)
	case s.versions == nil:
		options.ResourceVersion = from.String()
	case s.versions.stale:
		return nil, keepwatch.Failed(keepwatch.Expired,
			"watch %s: the last event had no resource version, so that there is none to resume from", s.name)
	default:
		options.ResourceVersion = s.versions.token
	}
	w, failure := s.open(ctx, options)
	if failure != nil {
		return nil, failure
	}
	w.to, w.newest = from, from
	return w, nil
}

// watchOptions returns options that request bookmarks, and an end after 5 to 10 minutes, as
// client-go's.
func watchOptions() metav1.ListOptions {
	timeout := int64(300 + rand.IntN(301))
	return metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &timeout}
}

// stream is an open watch.
type stream struct {
	source *Source
	watch  watch.Interface
	cancel context.CancelCauseFunc
	done   <-chan struct{} // of its context
	stop   sync.Once

	to     keepwatch.Revision // of the last batch
	newest keepwatch.Revision // the greatest that was read
	buffer []parsedEvent      // read, and not returned yet
	failed *keepwatch.Failure // is returned after buffer
	// deletions wait for the revision behind newest.
	deletions deletions.Pending
}

// Next returns the events that the client has received, at most 1,000, and the others of the last one's revision. If
// there are none, it waits for one, and behind the deletion of an Event for others at its revision. An event below the
// newest revision, a bookmark at the revision of the last change, and the event after a bookmark, begin a new batch, as
// those of source/kube do.
func (w *stream) Next() (keepwatch.Batch, error) {
	batch := keepwatch.Batch{From: w.to, To: w.to}
	opened := time.Time{}
	for w.failed == nil && len(w.buffer) == 0 {
		w.read(w.idleTimeout())
	}
	if len(w.buffer) == 0 {
		return keepwatch.Batch{}, w.failed
	}
	for {
		full := len(batch.Changes) >= maxBatch
		for len(w.buffer) == 0 && w.failed == nil && (w.read(0) || w.more(batch, &opened)) {
		}
		if len(w.buffer) == 0 {
			break
		}
		next := w.buffer[0]
		again := next.revision < batch.To || next.bookmark && next.revision == batch.To
		if again && len(batch.Changes) > 0 || full && next.revision != batch.To {
			break
		}
		w.buffer = w.buffer[1:]
		batch.To = max(batch.To, next.revision)
		if next.bookmark {
			break
		}
		batch.Changes = append(batch.Changes, next.change)
	}
	w.to = batch.To
	return batch, nil
}

// more waits for an event behind a batch that ends with the deletion of an Event: there may be others at its revision.
// opened is when it waited first for this batch.
func (w *stream) more(batch keepwatch.Batch, opened *time.Time) bool {
	n := len(batch.Changes)
	if !w.source.leased || n == 0 || w.failed != nil || batch.Changes[n-1].Type != keepwatch.Deleted ||
		batch.Changes[n-1].Revision != batch.To || batch.From == batch.To {
		return false
	}
	if opened.IsZero() {
		*opened = time.Now()
	}
	wait := min(deletions.Open, time.Until(opened.Add(maxOpens*deletions.Open)))
	if wait <= 0 {
		return false
	}
	event, ok, failure := w.receive(wait)
	if failure != nil && failure.Kind == keepwatch.Idle {
		return false
	}
	return w.take(event, ok, failure)
}

// idleTimeout bounds the silence of the server. It is negative, without limit, for a server that
// has no revisions: it sends no bookmarks.
func (w *stream) idleTimeout() time.Duration {
	if w.source.versions != nil {
		return -1
	}
	return w.source.idleTimeout
}

// read reads one event into the buffer. It reports whether there was one; see receive.
func (w *stream) read(timeout time.Duration) bool {
	return w.take(w.receive(timeout))
}

// take reads what receive has returned into the buffer. It reports whether there was an event.
func (w *stream) take(event watch.Event, ok bool, failure *keepwatch.Failure) bool {
	if failure != nil {
		w.fail(failure)
	}
	if !ok {
		return false
	}
	e, ok, failure := w.source.parse(event, w.newest)
	switch {
	case failure != nil:
		w.fail(failure)
	case ok:
		w.add(e)
	}
	return true
}

// add adds an event to the buffer, and before it the deletions that waited for its revision.
func (w *stream) add(e parsedEvent) {
	reached := w.newest
	if e.revision > reached {
		w.newest = e.revision
		pending, _ := w.deletions.Release(e.revision)
		for _, c := range pending {
			w.buffer = append(w.buffer, parsedEvent{change: c, revision: c.Revision})
		}
	}
	if w.source.leased && w.to < reached && w.deletions.Follows(e.change, reached) {
		w.deletions.Joined(e.change)
		w.buffer = append(w.buffer, e)
		return
	}
	if e.bookmark {
		if failure := w.deletions.Bookmark(e.revision); failure != nil {
			w.fail(failure)
			return
		}
	} else {
		waits, failure := w.deletions.Defer(e.change, 0, reached)
		if failure != nil {
			w.fail(failure)
		}
		if waits {
			if w.deletions.IsCut(w.source.leased) {
				w.source.cut = reached
			}
			return
		}
	}
	w.buffer = append(w.buffer, e)
}

func (w *stream) fail(failure *keepwatch.Failure) {
	w.failed = failure
	w.Close()
}

// receive waits for one event: without limit if timeout is negative, not at all if it is zero.
// ok is false if there was none.
func (w *stream) receive(timeout time.Duration) (event watch.Event, ok bool, failure *keepwatch.Failure) {
	op := "watch " + w.source.name
	if timeout == 0 {
		select {
		case event, ok = <-w.watch.ResultChan():
			if !ok {
				failure = keepwatch.Failed(keepwatch.Ended, "%s: the stream ended", op)
			}
		default:
		}
		return event, ok, failure
	}
	var silence <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		silence = timer.C
	}
	select {
	case event, ok = <-w.watch.ResultChan():
		if !ok {
			failure = keepwatch.Failed(keepwatch.Ended, "%s: the stream ended", op)
		}
	case <-silence:
		failure = keepwatch.Failed(keepwatch.Idle, "%s: no event and no bookmark for %v", op, timeout)
	case <-w.done:
		failure = keepwatch.Failed(keepwatch.Ended, "%s: closed", op)
	}
	return event, ok, failure
}

// Close ends the watch. It receives the remaining events, because a filter in front of the
// client's watch blocks until they are received.
func (w *stream) Close() {
	w.cancel(nil)
	w.stop.Do(func() {
		w.watch.Stop()
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		for {
			select {
			case _, open := <-w.watch.ResultChan():
				if !open {
					return
				}
			case <-timer.C:
				return
			}
		}
	})
}
