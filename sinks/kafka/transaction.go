package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// answerTimeout bounds the wait for a broker that does not answer.
	answerTimeout = 30 * time.Second
	// requestTimeout bounds the sending of a request, and the wait for its answer, which may take the client's
	// 10 s longer after produced records: answerTimeout then. Less than answerTimeout: another broker may answer.
	requestTimeout = 20 * time.Second
	// transactionTimeout is after what time the broker ends a transaction whose process has ended. A process that
	// opens the sink ends it at once.
	transactionTimeout = 5 * time.Minute
	// windowBytes bounds what is sent and not acknowledged, if no single record is larger. It has to pass within
	// requestTimeout: with a larger window, a slow connection would time out in the same transaction for ever.
	windowBytes = 512 << 10
	// batchBytes bounds the records of one request for a partition, which may be a single large one.
	batchBytes = 16 << 20
	// closeTimeout bounds the end of a transaction when the process ends.
	closeTimeout = 5 * time.Second
)

// commit commits records in one transaction, and waits until it has ended in each of their partitions. After an error
// it is not known whether they were committed.
func (s *Sink) commit(ctx context.Context, records []*kgo.Record) error {
	producer, _, err := s.client.ProducerID(ctx) // the commit may change it
	if err != nil {
		return err
	}
	if err := s.client.BeginTransaction(); err != nil {
		return err
	}
	if err := s.produce(ctx, records); err != nil {
		if ctx.Err() != nil {
			s.abort(ctx) // no other Open follows, which would
		}
		return err
	}
	if err := s.endTransaction(ctx); err != nil {
		return err
	}
	last, err := lastOffsets(records)
	if err != nil {
		return err
	}
	return s.awaitEnd(ctx, producer, last)
}

// produce sends records, and waits until they are acknowledged.
func (s *Sink) produce(ctx context.Context, records []*kgo.Record) error {
	w := &window{changed: make(chan struct{}, 1)}
	for _, r := range records {
		if err := w.wait(ctx, windowBytes); err != nil {
			return err
		}
		w.add(r)
		s.client.Produce(ctx, r, w.acknowledged)
	}
	return w.wait(ctx, 0)
}

func (s *Sink) endTransaction(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return s.client.EndTransaction(ctx, kgo.TryCommit)
}

// abort ends a transaction that is not committed, as far as the broker answers: until then, consumers wait.
func (s *Sink) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if s.client.AbortBufferedRecords(ctx) == nil {
		_ = s.client.EndTransaction(ctx, kgo.TryAbort)
	}
}

// window is what is sent and not acknowledged.
type window struct {
	changed chan struct{} // has room for one

	mu    sync.Mutex
	bytes int
	err   error // the first one
}

// size returns how much a record occupies. It is more than 0.
func size(r *kgo.Record) int { return 1 + len(r.Key) + len(r.Value) }

func (w *window) add(r *kgo.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += size(r)
}

// acknowledged is called by the client, also after commit has returned an error.
func (w *window) acknowledged(r *kgo.Record, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes -= size(r)
	if errors.Is(err, kerr.MessageTooLarge) {
		err = fmt.Errorf("topic %s: a record has %d bytes: raise its max.message.bytes: %w", r.Topic, size(r), err)
	}
	if w.err == nil {
		w.err = err
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// wait waits until the window has so many bytes at most, or returns the error of a record. It waits as long as
// the broker acknowledges something.
func (w *window) wait(ctx context.Context, bytes int) error {
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	for {
		w.mu.Lock()
		done, err := w.bytes <= bytes, w.err
		w.mu.Unlock()
		if err != nil || done {
			return err
		}
		select {
		case <-w.changed:
			timer.Reset(answerTimeout)
		case <-timer.C:
			return fmt.Errorf("no record was acknowledged for %v", answerTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
