package kube

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/deletions"
	"github.com/keepwatch/keepwatch/internal/readahead"
)

// watchAccept has the Accept headers of watches in JSON, by Representation.
var watchAccept = [...]string{
	WholeObjects: "application/json",
	TableRows:    listAccept[TableRows],
	MetadataOnly: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
}

// maxBatchEvents bounds a batch, and thereby reading ahead, besides Options.BatchBytes.
const maxBatchEvents = 1000

// Watch returns the events after from.
//
// A Kubernetes API writes one object per revision, so a batch can end after any event but the deletion of an Event:
// those that share a lease of etcd's are deleted at one revision, and are in one batch if they arrive within 20 ms of
// each other. If a stream ends before the others are delivered, a watch from that revision is Expired.
//
// Changes have the order in which the server sent them. Other deletions at the revision that the stream has reached are
// changes of the next one: a server that resumes a watch over history that it does not have may send them. An event
// below an earlier revision of the stream begins a new batch, as does every event after a bookmark: the batch's From
// shows a target that the change is repeated. So does a bookmark at the revision of the last change, which a batch of
// both would not show. A bookmark below an earlier revision of the stream is a ProtocolViolation.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	if from == 0 {
		return nil, keepwatch.Failed(keepwatch.InvariantViolation, "watch %s: no revision to begin from", s.name)
	}
	if failure := s.definition.failure("watch " + s.name); failure != nil {
		return nil, failure
	}
	if s.cut.Load() == uint64(from) {
		return nil, keepwatch.Failed(keepwatch.Expired,
			"watch %s: the stream ended within the deletions at revision %v, which are not sent again", s.name, from)
	}
	q := s.watchQuery()
	q.Set("resourceVersion", from.String())
	x, failure := s.get(ctx, "watch", s.accept(watchAccept), q)
	if failure != nil {
		return nil, failure
	}
	return s.follow(s.frames(x, from), keepwatch.Batch{From: from, To: from}), nil
}

func (s *Source) leased() bool { return deletions.Leased(s.resource.GroupResource()) }

// watchQuery requests bookmarks, and an end.
func (s *Source) watchQuery() url.Values {
	q := maps.Clone(s.baseQuery)
	q.Set("watch", "true")
	q.Set("allowWatchBookmarks", "true")
	q.Set("timeoutSeconds", strconv.FormatInt(int64(s.timeout()/time.Second), 10))
	return q
}

// timeout returns that of the next watch. The default is client-go's: streams are distributed over API
// servers again after one was unavailable, and proxies need not keep streams open for the server's default
// of 30 to 60 minutes.
func (s *Source) timeout() time.Duration {
	if s.watchTimeout != nil {
		if d := s.watchTimeout(); d > 0 {
			return d
		}
	}
	return 5*time.Minute + rand.N(5*time.Minute+time.Second)
}

// follow returns a watch that delivers first, and then the events of f, and that ends if the definition of the resource
// has changed.
func (s *Source) follow(f *frames, first keepwatch.Batch) *watch {
	w := follow(f, first, s.batchBytes)
	w.tasks.Go(func() { s.watchDefinition(f.requestCtx, w) })
	return w
}

// watch reads a stream ahead of its consumer. Its goroutines run until the stream
// ends or Close.
type watch struct {
	*readahead.Buffer
	frames    *frames
	deletions deletions.Pending
	tasks     sync.WaitGroup // its goroutines
}

// follow returns a watch that delivers first, and then the events of f.
func follow(f *frames, first keepwatch.Batch, maxBytes int) *watch {
	limit := readahead.Limit{Changes: maxBatchEvents, Bytes: maxBytes}
	w := &watch{Buffer: readahead.New(first, limit), frames: f}
	w.tasks.Go(w.run)
	return w
}

func (w *watch) run() {
	defer w.frames.body.close()
	w.Fill(w.read)
}

// read reads one event.
func (w *watch) read() *keepwatch.Failure {
	reached := w.frames.newest
	e, failure := w.frames.next()
	if failure != nil {
		return failure
	}
	p := readahead.Part{After: e.revision, To: e.revision, Ends: e.bookmark()}
	if e.revision > reached {
		p.Changes, p.Bytes = w.deletions.Release(e.revision)
	}
	if e.bookmark() {
		if failure := w.deletions.Bookmark(e.revision); failure != nil {
			return failure
		}
		return w.Put(p)
	}
	if e.change.Type == keepwatch.Deleted && w.frames.source.leased() {
		p.Open = w.frames.source.leaseOpen
		if w.join(e, p, reached) {
			return nil
		}
	}
	if waits, failure := w.deletions.Defer(e.change, e.size, reached); waits {
		if w.deletions.IsCut(w.frames.source.leased()) {
			w.frames.source.cut.Store(uint64(reached))
		}
		return failure
	}
	p.Changes, p.Bytes = append(p.Changes, e.change), p.Bytes+e.size
	return w.Put(p)
}

// join reports whether a deletion has joined the batch of another one at its revision.
func (w *watch) join(e event, p readahead.Part, reached keepwatch.Revision) bool {
	if !w.deletions.Follows(e.change, reached) {
		return false
	}
	p.Changes, p.Bytes = []keepwatch.Change{e.change}, e.size
	joins := w.Join(p)
	if joins {
		w.deletions.Joined(e.change)
	}
	return joins
}

// Close ends the watch, and waits until its goroutines have ended.
func (w *watch) Close() {
	w.end(keepwatch.Failed(keepwatch.Ended, "%s: closed", w.frames.op))
	w.tasks.Wait()
}

// end ends the watch with a failure.
func (w *watch) end(failure *keepwatch.Failure) {
	w.End(failure)
	w.frames.body.cancel(nil)
}
