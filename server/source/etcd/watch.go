package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/readahead"
)

// Bounds of a batch, and thereby of reading ahead.
const (
	maxBatchChanges = 1000
	maxBatchBytes   = 1 << 20
)

// Watch returns the events after from. Before it returns, a quorum read at from checks
// that etcd still has that history. Watch fails with Expired if etcd has compacted from.
// It fails with Rewound in three cases: the newest revision is below from (a watch from
// there would wait forever, kubernetes #107457), another cluster answers, or the newest
// write that the source has seen is not in the history; see [LastWrite].
//
// The stream starts at from, whose events Watch drops. etcd refuses that start as soon as
// the next revision is compacted, whose deletions could be missing (etcd #18089, #19179).
// A stream that starts at a future revision would not receive progress.
//
// Changes have the order in which etcd sent them. A revision that is not above the
// previous one begins a new batch: its From shows the target that the changes are
// repeated.
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

// watch opens a watch. adopt is as in checkCluster.
func (s *Source) watch(ctx context.Context, from keepwatch.Revision, limit readahead.Limit,
	adopt bool) (*watch, *keepwatch.Failure) {
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
// connection, and then in etcd. Its goroutines run until the stream ends or Close.
type watch struct {
	*readahead.Buffer
	*stream
	from      keepwatch.Revision
	tasks     sync.WaitGroup
	idleTimer *time.Timer   // runs while the watch waits for etcd
	wake      chan struct{} // wakes progressLoop
	revision  revision      // being received

	mu          sync.Mutex
	requested   keepwatch.Revision
	lastRequest time.Time // for progress; zero when requested was reached
}

// checkStart waits until the watch is registered, and checks that from is part of the
// cluster's history.
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

// receiveOne reads one message. idleTimer runs only while the watch waits for etcd: a
// slow consumer does not end the watch.
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

// idle ends a watch for which etcd has sent no message within the idle timeout.
func (w *watch) idle() {
	w.End(keepwatch.Failed(keepwatch.Idle, "watch %s: etcd sent nothing for %v", w.source.prefix, w.source.idleTimeout))
	w.cancel()
}

// Close ends the watch, and waits until its goroutines have ended.
func (w *watch) Close() {
	w.End(keepwatch.Failed(keepwatch.Ended, "watch %s: closed", w.source.prefix))
	w.idleTimer.Stop()
	w.cancel()
	w.tasks.Wait()
	w.source.unregister(w)
}
