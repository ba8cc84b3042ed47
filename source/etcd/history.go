package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/keepwatch/keepwatch"
)

// history is what has happened between two revisions, read by watches that share it:
// each one's part ends where the next one's begins.
//
// etcd puts 1,000 revisions into one answer to a watch that is behind, and sends one
// every 100 ms (watchBatchMaxRevs and watchResyncPeriod in its mvcc package): a single
// watch reads 10,000 revisions a second. It looks through all that is left for each
// answer, but once for all watches that are behind at that time.
type history struct {
	parts []part
}

type part struct {
	watch keepwatch.Watch
	end   keepwatch.Revision
}

const (
	answerRevisions = 1000
	// historyParts bounds how many watches share a history.
	historyParts = 8
)

// history opens the watches, which read ahead as far as a watch does. It fails with
// Expired if from is compacted.
func (s *Source) history(ctx context.Context, from, to keepwatch.Revision) (_ *history, err error) {
	n, err := s.partsOf(ctx, from, to)
	if err != nil {
		return nil, s.failure(ctx, "seed", err)
	}
	h := &history{}
	begin := from
	for i := range n {
		w, err := s.Watch(ctx, begin)
		if err != nil {
			h.close()
			return nil, err
		}
		begin = from + (to-from)*(i+1)/n
		h.parts = append(h.parts, part{w, begin})
	}
	return h, nil
}

// partsOf is how many watches a history is worth: one, if there are few objects to
// which something can have happened, or few revisions.
func (s *Source) partsOf(ctx context.Context, from, to keepwatch.Revision) (keepwatch.Revision, error) {
	answers := (max(to, from) - from) / answerRevisions
	if answers == 0 {
		return 1, nil
	}
	count, err := s.read(ctx, &pb.RangeRequest{
		Key: s.prefix.first(), RangeEnd: s.prefix.end(), Revision: int64(from), CountOnly: true,
	})
	return min(historyParts, 1+answers, 1+keepwatch.Revision(count.GetCount()/firstPage)), err
}

// replay lets a target take the history, as far as that can be read.
func (h *history) replay(ctx context.Context, target keepwatch.Target) error {
	for _, p := range h.parts {
		for target.Held() < p.end {
			batch, err := p.watch.Next()
			if err != nil {
				return err
			}
			if _, err := target.Apply(ctx, until(batch, p.end)); err != nil {
				return err
			}
		}
		p.watch.Close()
	}
	return nil
}

// until is a batch without what is behind a revision.
func until(batch keepwatch.Batch, end keepwatch.Revision) keepwatch.Batch {
	if batch.To <= end {
		return batch
	}
	batch.To = end
	for i, c := range batch.Changes {
		if c.Revision > end {
			batch.Changes = batch.Changes[:i]
			break
		}
	}
	return batch
}

// close ends the watches that are still open.
func (h *history) close() {
	for _, p := range h.parts {
		p.watch.Close()
	}
}
