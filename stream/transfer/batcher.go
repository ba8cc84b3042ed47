package transfer

import (
	"context"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// batcher commits the pieces that wait at the same time as one batch. Each stream waits for
// its piece, so that a batch has at most one of each.
type batcher struct {
	*session
	queue    chan request
	time     time.Time // of the last batch
	commits  int
	progress []sink.Progress
}

// request is a piece that waits. committed receives the outcome, and has room for it.
type request struct {
	piece     sink.Piece
	committed chan error
}

func newBatcher(s *session, stored []sink.Stored) *batcher {
	b := &batcher{session: s, queue: make(chan request)}
	for _, s := range stored {
		b.progress = append(b.progress, s.Progress)
		if s.Time.After(b.time) {
			b.time = s.Time
		}
	}
	return b
}

// write waits until a piece is committed or an error occurs. If ctx is done while the piece is being committed, it
// waits for the outcome: a stream with a state of its own commits what was delivered.
func (b *batcher) write(ctx context.Context, p sink.Piece) error {
	r := request{p, make(chan error, 1)}
	select {
	case b.queue <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return <-r.committed
}

// checkEvery is how often a sink without writes is checked. A server that was replaced by one which lacks the last
// commits is noticed by it: no change of the source may follow.
const checkEvery = 15 * time.Second

// run commits batches until ctx is done or an error occurs, which it returns.
func (b *batcher) run(ctx context.Context) error {
	idle := time.NewTicker(checkEvery)
	defer idle.Stop()
	for {
		var waiting []request
		select {
		case r := <-b.queue:
			waiting = append(waiting, r)
		case <-idle.C:
			if err := b.check(ctx); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for more := true; more; {
			select {
			case r := <-b.queue:
				waiting = append(waiting, r)
			default:
				more = false
			}
		}
		err := b.commit(ctx, waiting)
		idle.Reset(checkEvery)
		for _, r := range waiting {
			r.committed <- err
		}
		if err == nil {
			err = b.checkEpochs()
		}
		if err != nil {
			return err
		}
	}
}

// check checks the sink, if it can be.
func (b *batcher) check(ctx context.Context) error {
	if c, ok := b.sink.(sink.Checker); ok {
		return c.Check(ctx)
	}
	return nil
}

func (b *batcher) commit(ctx context.Context, waiting []request) error {
	batch := sink.Batch{Time: b.nextTime()}
	for _, r := range waiting {
		batch.Pieces = append(batch.Pieces, r.piece)
	}
	if err := b.sink.Write(ctx, batch); err != nil {
		for _, p := range batch.Pieces {
			b.refused[p.Stream] = true
		}
		return err
	}
	b.time = batch.Time
	b.commits++
	for _, p := range batch.Pieces {
		b.progress[p.Stream] = p.After
		b.advanced[p.Stream] = b.advanced[p.Stream] || advances(p)
	}
	b.Transfer.committed(batch)
	return nil
}

// advances reports whether a piece moves its stream, or confirms it. A gap that is declared again, and the pages of a
// list that is started over, do not.
func advances(p sink.Piece) bool {
	return p.Before.Before(p.After) || slices.ContainsFunc(p.Messages, func(m stream.Message) bool {
		_, synced := m.(stream.Synced)
		return synced
	})
}

// nextTime returns the time of the next batch, which is not before the last one's, although the clock may have been set
// back.
func (b *batcher) nextTime() time.Time {
	if now := b.options.Clock.Now(); now.After(b.time) {
		return now
	}
	return b.time
}

// checkEpochs returns errRewound if a stream is in an epoch that another stream of its line
// has not reached, and was not above it when the session began.
func (b *batcher) checkEpochs() error {
	newest, oldest := map[int]int{}, map[int]int{} // line → epoch
	for i, p := range b.progress {
		line := b.resources[i].Line
		newest[line] = max(newest[line], p.Epoch)
		if reached := max(p.Epoch, p.Floor); p.Started() {
			if least, ok := oldest[line]; !ok || reached < least {
				oldest[line] = reached
			}
		}
	}
	for line, reached := range oldest {
		if newest[line] > reached {
			return errRewound
		}
	}
	return nil
}
