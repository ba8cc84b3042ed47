package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/readahead"
)

// A batch takes what is at hand, by default up to here.
const (
	maxBatchChanges = 1000
	maxBatchBytes   = 1 << 20
)

// Watch opens the history after from. Before it returns, a quorum read at from has
// shown that the history is there and is still the same one: from is Expired when
// etcd has compacted it, and Rewound when the cluster's newest revision is below it
// (a watch from there would wait for ever, kubernetes #107457), the cluster is
// another one, or the newest write that was seen is not in its history; see [Past].
//
// etcd is asked to begin at from itself, of which nothing is passed on: it refuses
// that as soon as the revision behind from is compacted, whose deletions it may
// have dropped (etcd #18089, #19179). And a watch that begins in the future gets no
// answer when it asks for progress.
//
// Changes come in the order in which etcd sent them. A revision that is not above
// what the stream has shown already begins a new batch: a target sees by From that
// it is old, and tells a repetition from news.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	if from == 0 {
		return nil, keepwatch.Failed(keepwatch.InvariantViolation, "watch %s: no revision to begin from", s.prefix)
	}
	w, failure := s.watch(ctx, from, readahead.Limit{Changes: maxBatchChanges, Bytes: maxBatchBytes}, true)
	if failure != nil {
		return nil, failure
	}
	return w, nil
}

// watch opens a watch. If another cluster answers than the one that is being followed,
// that one is followed from now on if adopt says so; see same.
func (s *Source) watch(ctx context.Context, from keepwatch.Revision, limit readahead.Limit, adopt bool) (*watch, *keepwatch.Failure) {
	stream, failure := s.openStream(ctx, s.prefix.first(), s.prefix.end(), from)
	if failure != nil {
		return nil, failure
	}
	w := &watch{
		Buffer: readahead.New(keepwatch.Batch{From: from, To: from}, limit),
		stream: stream, from: from, wake: make(chan struct{}, 1),
	}
	w.idleTimer = time.AfterFunc(s.idleTimeout, w.idle)
	s.register(w)
	if failure := s.reportRewind(w.checkStart(adopt)); failure != nil {
		failure = w.End(failure)
		w.Close()
		return nil, failure
	}
	w.tasks.Go(w.receive)
	w.tasks.Go(w.progressLoop)
	return w, nil
}

func (s *Source) register(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[w] = struct{}{}
}

func (s *Source) unregister(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, w)
}

// watch reads a stream ahead of its consumer. Messages that do not fit stay in the
// connection, and then in etcd. Its goroutines live until the stream ends or Close.
type watch struct {
	*readahead.Buffer
	*stream
	from      keepwatch.Revision
	tasks     sync.WaitGroup
	idleTimer *time.Timer   // runs while the watch waits for etcd
	wake      chan struct{} // has one when tend has something to look at
	revision  revision      // that is being received

	mu          sync.Mutex
	requested   keepwatch.Revision
	lastRequest time.Time // for progress, the last time; zero when wanted is reached
}

// confirm waits until the watch is registered and then checks that from is part of
// the cluster's history.
func (w *watch) checkStart(adopt bool) *keepwatch.Failure {
	if failure := w.waitCreated(); failure != nil {
		return failure
	}
	h, err := w.source.readHeader(w.ctx, w.from)
	if err != nil {
		return w.source.failure(w.ctx, "watch", err)
	}
	if failure := w.source.checkCluster("watch", h, adopt); failure != nil {
		return failure
	}
	if failure := w.source.checkLastWrite(w.ctx); failure != nil {
		return failure
	}
	w.requestProgress(keepwatch.Revision(h.Revision))
	return nil
}

// receive reads the stream to its end.
func (w *watch) receive() {
	defer w.cancel()
	w.Fill(w.receiveOne)
}

// receiveOne reads one message. The consumer may be slow without an end to the watch:
// silence is bounded only while the watch waits for etcd.
func (w *watch) receiveOne() *keepwatch.Failure {
	w.idleTimer.Reset(w.source.idleTimeout)
	response, failure := w.stream.next()
	w.idleTimer.Stop()
	if failure != nil {
		return failure
	}
	return w.addResponse(response)
}

// put adds a part to the next batch once there is room.
func (w *watch) put(p readahead.Part) *keepwatch.Failure {
	if failure := w.Put(p); failure != nil {
		return failure
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Revision() >= w.requested {
		w.lastRequest = time.Time{}
	}
	return nil
}

// idle ends a watch in which etcd has been silent for too long.
func (w *watch) idle() {
	w.End(keepwatch.Failed(keepwatch.Idle, "watch %s: etcd was silent for %v", w.source.prefix, w.source.idleTimeout))
	w.cancel()
}

// Close ends the watch and waits until it holds nothing any more.
func (w *watch) Close() {
	w.End(keepwatch.Failed(keepwatch.Ended, "watch %s: closed", w.source.prefix))
	w.idleTimer.Stop()
	w.cancel()
	w.tasks.Wait()
	w.source.unregister(w)
}
