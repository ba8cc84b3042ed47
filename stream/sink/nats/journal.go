package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// journal is a stream of JetStream that one writer appends to.
type journal struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	name   string
	closed <-chan struct{} // the connection is gone
	last   uint64          // sequence of the last message
	max    int64           // bytes of a message
}

const (
	// windowMessages and windowBytes bound what is published and not acknowledged.
	windowMessages = 1000
	windowBytes    = 16 << 20
	// answerTimeout bounds the wait for a server that does not answer, and readTimeout that for all
	// messages of a journal.
	answerTimeout = 30 * time.Second
	readTimeout   = 10 * time.Minute
	fetchMessages = 500
)

// published is a message without acknowledgement.
type published struct {
	message *nats.Msg
	ack     jetstream.PubAckFuture
}

// append publishes messages, and waits until all are stored. After an error, the journal has some of the first
// ones.
func (j *journal) append(ctx context.Context, messages []*nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var window []published
	size := 0
	for _, m := range messages {
		if int64(m.Size()) > j.max {
			return sink.Unavailablef("%s: the message has %d bytes, and the server accepts %d: raise its max_payload", m.Subject, m.Size(), j.max)
		}
		for len(window) > 0 && (len(window) == windowMessages || size+m.Size() > windowBytes) {
			if err := j.await(ctx, window[0]); err != nil {
				return err
			}
			size -= window[0].message.Size()
			window = window[1:]
		}
		p, err := j.publish(m, len(window))
		if err != nil {
			return err
		}
		window, size = append(window, p), size+m.Size()
	}
	for _, p := range window {
		if err := j.await(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// publish sends a message behind others that are not acknowledged yet.
func (j *journal) publish(m *nats.Msg, behind int) (published, error) {
	m.Header.Set(jetstream.ExpectedStreamHeader, j.name)
	m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(j.last+uint64(behind), 10))
	ack, err := j.js.PublishMsgAsync(m)
	return published{m, ack}, err
}

// await waits for the acknowledgement of the oldest message without one.
func (j *journal) await(ctx context.Context, p published) error {
	select {
	case ack := <-p.ack.Ok():
		if ack.Duplicate || ack.Sequence != j.last+1 {
			return sink.Unavailablef("%s has message %d already as %d", j.name, j.last+1, ack.Sequence)
		}
		j.last = ack.Sequence
		return nil
	case err := <-p.ack.Err():
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			return sink.Unavailablef("no stream accepts the subject %s: add it to the subjects of %s", p.message.Subject, j.name)
		}
		return err
	case <-j.closed:
		return nats.ErrConnectionClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// load sets the last sequence to the newest one.
func (j *journal) load(ctx context.Context) (first uint64, err error) {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	j.last = info.State.LastSeq
	return info.State.FirstSeq, nil
}

// readAll is read of messages to which the last one belongs. A consumer is at any of the replicas, and that may be behind.
func (j *journal) readAll(ctx context.Context, from jetstream.ConsumerConfig, visit func(nats.Header, uint64) error) error {
	var at uint64
	err := j.read(ctx, from, func(h nats.Header, sequence uint64) error {
		at = sequence
		return visit(h, sequence)
	})
	if err == nil && at != j.last && j.stream.CachedInfo().Config.Replicas > 1 {
		return sink.Unavailablef("a replica of %s has messages up to %d of %d", j.name, at, j.last)
	}
	return err
}

// read visits the headers of messages up to the last one, in order. A replica that is behind has not all of them.
func (j *journal) read(ctx context.Context, from jetstream.ConsumerConfig, visit func(nats.Header, uint64) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	from.AckPolicy, from.HeadersOnly, from.MemoryStorage, from.Replicas = jetstream.AckNonePolicy, true, true, 1
	from.InactiveThreshold = time.Minute
	consumer, err := j.stream.CreateConsumer(ctx, from)
	if err != nil {
		return err
	}
	defer func() { // the server drops it after InactiveThreshold, too
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = j.stream.DeleteConsumer(ctx, consumer.CachedInfo().Name)
	}()
	var received, at uint64
	for pending := consumer.CachedInfo().NumPending; pending > 0 && at < j.last; {
		batch, err := consumer.Fetch(int(min(fetchMessages, pending)), jetstream.FetchMaxWait(answerTimeout))
		if err != nil {
			return err
		}
		before := received
		for {
			m, err := j.receive(batch)
			if err != nil {
				return err
			}
			if m == nil {
				break
			}
			data, err := m.Metadata()
			if err != nil {
				return err
			}
			received++
			if data.Sequence.Consumer != received {
				return sink.Unavailablef("a message of %s was lost", j.name)
			}
			pending, at = data.NumPending, data.Sequence.Stream
			if at > j.last {
				continue
			}
			if err := visit(m.Headers(), at); err != nil {
				return fmt.Errorf("message %d of %s: %w", at, j.name, err)
			}
		}
		if received == before {
			return sink.Unavailablef("%s sends no messages", j.name)
		}
	}
	return ctx.Err()
}

// receive returns the next message of a batch, or nil at its end.
func (j *journal) receive(batch jetstream.MessageBatch) (jetstream.Msg, error) {
	select {
	case m, ok := <-batch.Messages():
		if !ok {
			return nil, batch.Error()
		}
		return m, nil
	case <-j.closed: // which the batch notices after answerTimeout
		return nil, nats.ErrConnectionClosed
	}
}
