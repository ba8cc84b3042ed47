package kube

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/readahead"
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

// watch reads a stream ahead of its consumer. Its goroutine lives until the stream
// ends or Close.
type watch struct {
	*readahead.Buffer
	frames *frames
	ended  chan struct{} // closed when the goroutine has ended
}

// follow returns a watch that delivers first, and then the events of f.
func follow(f *frames, first keepwatch.Batch) *watch {
	limit := readahead.Limit{Changes: maxBatchEvents, Bytes: maxBatchBytes}
	w := &watch{Buffer: readahead.New(first, limit), frames: f, ended: make(chan struct{})}
	go w.run()
	return w
}

func (w *watch) run() {
	defer close(w.ended)
	defer w.frames.body.close()
	w.Fill(w.read)
}

// read reads one event.
func (w *watch) read() *keepwatch.Failure {
	e, failure := w.frames.next()
	if failure != nil {
		return failure
	}
	if e.bookmark() {
		return w.Put(readahead.Part{After: e.revision, To: e.revision, Ends: true})
	}
	return w.Put(readahead.Part{Changes: []keepwatch.Change{e.change}, Bytes: e.size, After: e.revision, To: e.revision})
}

// Close ends the watch, and waits until its goroutine has ended.
func (w *watch) Close() {
	w.End(keepwatch.Failed(keepwatch.Ended, "%s: closed", w.frames.op))
	w.frames.body.cancel(nil)
	<-w.ended
}
