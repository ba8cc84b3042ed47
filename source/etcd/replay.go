package etcd

import (
	"context"

	"github.com/keepwatch/keepwatch"
)

const (
	// answerRevisions is how many revisions etcd puts into one answer to a watch that
	// is behind, and of those it sends one every 100 ms (watchBatchMaxRevs and
	// watchResyncPeriod in its mvcc package): a single watch reads 10,000 a second.
	answerRevisions = 1000
	// replaySpans is how many watches share a history that takes more than one answer.
	replaySpans = 8
)

// replay brings a target to a revision by the history since the one that it holds.
func (s *Source) replay(ctx context.Context, target keepwatch.Target, to keepwatch.Revision) error {
	from := target.Held()
	first, err := s.Watch(ctx, from)
	if err != nil {
		return err
	}
	defer first.Close()
	if err := follow(ctx, first, target, to, answerRevisions); err != nil {
		return err
	}
	ends := spans(from, target.Held(), to)
	watches := []keepwatch.Watch{first}
	for _, end := range ends[:len(ends)-1] {
		w, err := s.Watch(ctx, end)
		if err != nil {
			return err
		}
		defer w.Close()
		watches = append(watches, w)
	}
	for i, end := range ends {
		if err := follow(ctx, watches[i], target, end, 0); err != nil {
			return err
		}
		watches[i].Close()
	}
	return nil
}

// spans divides the revisions up to one among watches, given up to where the first
// answer to the first watch has led: it returns where each watch ends and the next one
// begins. There are not more than there are answers to come.
func spans(from, answered, to keepwatch.Revision) []keepwatch.Revision {
	left := max(to, answered) - answered
	n := min(replaySpans, 1+left/max(1, answered-from))
	ends := make([]keepwatch.Revision, n)
	for i := range ends {
		ends[i] = answered + left*keepwatch.Revision(i+1)/n
	}
	return ends
}

// follow has a target take what a watch tells, up to a revision, and no more than
// about so many changes; 0 is no bound.
func follow(ctx context.Context, w keepwatch.Watch, target keepwatch.Target, to keepwatch.Revision, most int) error {
	for n := 0; target.Held() < to && (most == 0 || n < most); {
		batch, err := w.Next()
		if err != nil {
			return err
		}
		n += len(batch.Changes)
		if _, err := target.Apply(ctx, until(batch, to)); err != nil {
			return err
		}
	}
	return nil
}

// until is a batch without what is behind a revision.
func until(batch keepwatch.Batch, to keepwatch.Revision) keepwatch.Batch {
	if batch.To <= to {
		return batch
	}
	batch.To = to
	for i, c := range batch.Changes {
		if c.Revision > to {
			batch.Changes = batch.Changes[:i]
			break
		}
	}
	return batch
}
