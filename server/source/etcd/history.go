package etcd

import (
	"context"
	"iter"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/readahead"
)

// history reads all changes between two revisions. Several watches share the range:
// the part of each ends where the next one's begins.
//
// etcd puts 1,000 revisions into one answer to a watch that is behind, and sends one
// every 100 ms (watchBatchMaxRevs and watchResyncPeriod in its mvcc package): a single
// watch reads 10,000 revisions a second. For each answer etcd scans all remaining
// revisions, once for all watches that are behind at that time.
type history struct {
	ready chan struct{} // closed when all watches are open, or one has failed
	parts []part
}

type part struct {
	watch *watch
	end   keepwatch.Revision
}

const (
	answerRevisions = 1000
	// historyParts bounds how many watches share a history. historyChanges and historyBytes
	// bound what each of them reads ahead while the first state is loaded.
	historyParts   = 4
	historyChanges = 16 * maxBatchChanges
	historyBytes   = 16 * maxBatchBytes
	// applyChanges is about how many changes the target receives at a time.
	applyChanges = 100
)

// openHistory starts to read the changes between two revisions.
func (s *Source) openHistory(ctx context.Context, from, to keepwatch.Revision) *history {
	h := &history{ready: make(chan struct{})}
	go func() {
		defer close(h.ready)
		h.openWatches(ctx, s, from, to)
	}()
	return h
}

// openWatches opens the watches, up to the first that fails.
func (h *history) openWatches(ctx context.Context, s *Source, from, to keepwatch.Revision) {
	n, err := s.partCount(ctx, from, to)
	if err != nil {
		return
	}
	begin := from
	for i := range n {
		w, failure := s.watch(ctx, begin, readahead.Limit{Changes: historyChanges, Bytes: historyBytes}, false)
		if failure != nil {
			return
		}
		begin = from + (to-from)*(i+1)/n
		h.parts = append(h.parts, part{w, begin})
	}
}

// partCount returns how many watches share a history: one if there are few objects that
// can have changed, or few revisions.
func (s *Source) partCount(ctx context.Context, from, to keepwatch.Revision) (keepwatch.Revision, error) {
	answers := (max(to, from) - from) / answerRevisions
	if answers == 0 {
		return 1, nil
	}
	count, err := s.read(ctx, &pb.RangeRequest{
		Key: s.prefix.first(), RangeEnd: s.prefix.end(), Revision: int64(from), CountOnly: true,
	})
	return min(historyParts, 1+answers, 1+keepwatch.Revision(count.GetCount()/firstPage)), err
}

// replay applies the history to a target, up to the first failure. A reflector resumes
// there, meets the same failure, and handles it.
func (h *history) replay(ctx context.Context, target keepwatch.Target) {
	<-h.ready
	for _, p := range h.parts {
		for target.Revision() < p.end {
			batch, err := p.watch.Next()
			if err != nil {
				return
			}
			for part := range splitBatch(batch, p.end) {
				if _, err := target.Apply(ctx, part); err != nil {
					return
				}
			}
		}
		p.watch.Close()
	}
}

// splitBatch divides a batch into small ones, and drops the changes above end: a target
// expires and delivers history by the batch.
func splitBatch(batch keepwatch.Batch, end keepwatch.Revision) iter.Seq[keepwatch.Batch] {
	return func(yield func(keepwatch.Batch) bool) {
		batch.To = min(batch.To, end)
		part := keepwatch.Batch{From: batch.From, To: batch.From}
		begin := 0
		for i, c := range batch.Changes {
			if c.Revision > end {
				batch.Changes = batch.Changes[:i]
				break
			}
			if c.Revision > part.To && i-begin >= applyChanges {
				part.Changes = batch.Changes[begin:i]
				if !yield(part) {
					return
				}
				part.From, begin = part.To, i
			}
			part.To = max(part.To, c.Revision)
		}
		part.To, part.Changes = batch.To, batch.Changes[begin:]
		yield(part)
	}
}

// close closes the watches.
func (h *history) close() {
	<-h.ready
	for _, p := range h.parts {
		p.watch.Close()
	}
}
