package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
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
	w, failure := s.watch(ctx, from, ahead{maxBatchChanges, maxBatchBytes}, true)
	if failure != nil {
		return nil, failure
	}
	return w, nil
}

// ahead is how far a watch reads ahead: one revision in any case.
type ahead struct {
	changes int
	bytes   int // of values
}

// watch opens a watch. If another cluster answers than the one that is being followed,
// that one is followed from now on if adopt says so; see same.
func (s *Source) watch(ctx context.Context, from keepwatch.Revision, most ahead, adopt bool) (*watch, *keepwatch.Failure) {
	stream, failure := s.dial(ctx, s.prefix.first(), s.prefix.end(), from)
	if failure != nil {
		return nil, failure
	}
	w := &watch{stream: stream, from: from, ahead: most, next: keepwatch.Batch{From: from, To: from}, due: make(chan struct{}, 1)}
	w.moved.L = &w.mu
	w.silence = time.AfterFunc(s.idleTimeout, w.idle)
	s.register(w)
	if failure := s.rewound(w.confirm(adopt)); failure != nil {
		w.end(failure)
		w.Close()
		return nil, w.failure
	}
	w.tasks.Go(w.receive)
	w.tasks.Go(w.tend)
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

// watch reads ahead of its consumer, within a bound. What is beyond it stays in the
// connection, and then with etcd. Its goroutines live until the stream
// ends or Close.
type watch struct {
	*stream
	from     keepwatch.Revision
	ahead    ahead
	tasks    sync.WaitGroup
	silence  *time.Timer   // runs while we wait for etcd
	due      chan struct{} // has one when tend has something to look at
	revision revision      // that is being received

	mu      sync.Mutex
	moved   sync.Cond       // next or failure has changed
	next    keepwatch.Batch // what was received and not taken; To never goes back
	bytes   int             // of its values
	news    bool            // next says something; false: From == To, and no changes
	full    bool            // receive waits for next to be taken
	wanted  keepwatch.Revision
	asked   time.Time // for progress, the last time; zero when wanted is reached
	failure *keepwatch.Failure
}

// confirm waits until the watch is registered and then checks that from is part of
// the cluster's history.
func (w *watch) confirm(adopt bool) *keepwatch.Failure {
	if failure := w.created(); failure != nil {
		return failure
	}
	h, err := w.source.touch(w.ctx, w.from)
	if err != nil {
		return w.source.failure(w.ctx, "watch", err)
	}
	if failure := w.source.same("watch", h, adopt); failure != nil {
		return failure
	}
	if failure := w.source.confirmPast(w.ctx); failure != nil {
		return failure
	}
	w.want(keepwatch.Revision(h.Revision))
	return nil
}

// receive reads the stream to its end.
func (w *watch) receive() {
	defer w.cancel()
	defer w.silence.Stop()
	for {
		w.silence.Reset(w.source.idleTimeout)
		response, failure := w.stream.next()
		if failure == nil {
			failure = w.take(response)
		}
		if failure != nil {
			w.end(failure)
			return
		}
	}
}

// put adds a revision to the next batch once there is room. One without changes is
// progress. It reports whether the watch is still open.
func (w *watch) put(r *revision) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.failure == nil && !w.fits(r) {
		w.full = true
		w.silence.Stop()
		w.moved.Wait()
	}
	w.full = false
	if w.failure != nil {
		return false
	}
	w.next.Changes = append(w.next.Changes, r.changes...)
	w.bytes += r.bytes
	w.news = w.news || len(r.changes) > 0 || r.number > w.next.To
	w.next.To = max(w.next.To, r.number)
	if w.next.To >= w.wanted {
		w.asked = time.Time{}
	}
	w.moved.Broadcast()
	return true
}

func (w *watch) fits(r *revision) bool {
	return !w.news || len(r.changes) == 0 || r.number > w.next.To &&
		len(w.next.Changes)+len(r.changes) <= w.ahead.changes && w.bytes+r.bytes <= w.ahead.bytes
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

// idle ends a watch in which etcd has been silent for too long.
func (w *watch) idle() {
	w.end(keepwatch.Failed(keepwatch.Idle, "watch %s: etcd was silent for %v", w.source.prefix, w.source.idleTimeout))
	w.cancel()
}

// Next returns what has been received, which is no more than the watch reads ahead, and
// waits while that is nothing.
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
	w.bytes, w.news = 0, false
	w.moved.Broadcast()
	return batch, nil
}

// Close ends the watch and waits until it holds nothing any more.
func (w *watch) Close() {
	w.end(keepwatch.Failed(keepwatch.Ended, "watch %s: closed", w.source.prefix))
	w.silence.Stop()
	w.cancel()
	w.tasks.Wait()
	w.source.unregister(w)
}
