package nats

import (
	"context"
	"crypto/rand"
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
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	name   string
	closed <-chan struct{} // the connection is gone
	last   uint64          // sequence of the last message
}

func newJournal(conn *nats.Conn, js jetstream.JetStream, stream jetstream.Stream, closed <-chan struct{}) *journal {
	return &journal{conn: conn, js: js, stream: stream, name: stream.CachedInfo().Config.Name, closed: closed}
}

const (
	// batchMessages is the server's limit of an atomic batch; batchBytes bounds what it has in memory.
	batchMessages = 1000
	batchBytes    = 4 << 20
	// answerTimeout bounds the wait for a server that does not answer, and readTimeout that for all
	// messages of a journal.
	answerTimeout = 30 * time.Second
	readTimeout   = 10 * time.Minute
	fetchMessages = 500
)

// Headers of a message of an atomic batch, which are in no constants of the client (ADR-50 of NATS).
const (
	batchHeader         = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence"
	batchCommitHeader   = "Nats-Batch-Commit"
)

// append publishes messages, and waits until all are stored. After an error, the journal has some of the first
// ones.
func (j *journal) append(ctx context.Context, messages []*nats.Msg) error {
	for len(messages) > 0 {
		count, size := 0, 0
		for _, m := range messages {
			if int64(m.Size()) > j.conn.MaxPayload()-batchHeaders {
				return sink.Unavailablef("%s: the message has %d bytes, and the server accepts %d: raise its max_payload", m.Subject, m.Size(), j.conn.MaxPayload())
			}
			if size += m.Size(); count == batchMessages || count > 0 && size > batchBytes {
				break
			}
			count++
		}
		if err := j.publish(ctx, messages[:count]); err != nil {
			return err
		}
		messages = messages[count:]
	}
	return nil
}

// batchHeaders is more than the bytes of the headers that publish adds.
const batchHeaders = 500

// publish stores all of the messages behind the last one, or none: had they been published one by one, the message of another
// process that is stored between them would make the sequence that one of them expects come true without those before it.
func (j *journal) publish(ctx context.Context, messages []*nats.Msg) error {
	first, last := messages[0], messages[len(messages)-1]
	first.Header.Set(jetstream.ExpectedStreamHeader, j.name)
	first.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(j.last, 10))
	if len(messages) > 1 {
		batch := rand.Text()
		for i, m := range messages {
			m.Header.Set(batchHeader, batch)
			m.Header.Set(batchSequenceHeader, strconv.Itoa(i+1))
		}
		last.Header.Set(batchCommitHeader, "1")
		for _, m := range messages[:len(messages)-1] {
			if err := j.conn.PublishMsg(m); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	ack, err := j.js.PublishMsg(ctx, last)
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return sink.Unavailablef("no stream accepts the subject %s: add it to the subjects of %s", last.Subject, j.name)
	case err != nil:
		return err
	case ack.Duplicate || ack.Sequence != j.last+uint64(len(messages)):
		return sink.Unavailablef("%s has message %d as %d", j.name, j.last+uint64(len(messages)), ack.Sequence)
	}
	j.last = ack.Sequence
	return nil
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
