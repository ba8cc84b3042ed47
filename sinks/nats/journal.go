package nats

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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
	most   int             // messages of a batch
	answer time.Duration   // answerTimeout
}

func newJournal(conn *nats.Conn, js jetstream.JetStream, stream jetstream.Stream, closed <-chan struct{}) *journal {
	return &journal{
		conn: conn, js: js, stream: stream, name: stream.CachedInfo().Config.Name, closed: closed,
		most: batchMessages, answer: answerTimeout,
	}
}

const (
	// batchMessages is the server's limit of an atomic batch, unless its configuration has a lower one. batchBytes bounds
	// what the server has of a batch in memory.
	batchMessages = 1000
	batchBytes    = 4 << 20
	// batchHeaders is more than the bytes of the headers that publish adds to a message.
	batchHeaders = 500
	// windowBytes bounds what is sent of a batch before the server has acknowledged a part of it. It has to pass within
	// answerTimeout: with larger windows, a slow connection would time out in the same batch for ever.
	windowBytes = 512 << 10
	// A message of aloneBytes or more is no part of a batch. The server gives up a batch of which it receives no message
	// for 10 s (max_batch_timeout), also while one is on its way.
	aloneBytes = 128 << 10
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
// ones. A batch for which there is no room is published in halves: a bucket with a limit has no room for a batch that
// replaces entries, and has room for each of them.
func (j *journal) append(ctx context.Context, messages []*nats.Msg) error {
	for len(messages) > 0 {
		count, err := j.fitting(messages)
		if err != nil {
			return err
		}
		err = j.publish(ctx, messages[:count])
		switch {
		case err == nil:
			messages = messages[count:]
		case count > 1 && tooLarge(err):
			j.most = count / 2
		default:
			return err
		}
	}
	return nil
}

// fitting returns how many of the first messages are a batch.
func (j *journal) fitting(messages []*nats.Msg) (count int, err error) {
	total, accepted := 0, int(j.conn.MaxPayload())-batchHeaders
	for _, m := range messages {
		size := m.Size() - len(m.Subject)
		if size > accepted {
			return 0, sink.Unavailablef(
				"%s: the message has %d bytes with its headers, and the server has room for %d: raise its max_payload", m.Subject,
				size, accepted)
		}
		alone := size >= aloneBytes
		if total += size; count == j.most || count > 0 && (alone || total > batchBytes) {
			break
		}
		if count++; alone {
			break
		}
	}
	return count, nil
}

// publish stores all of the messages behind the last one, or none. Single messages would not do, of which several are
// sent before the first one is acknowledged: if another process stores a message meanwhile, the second one of ours
// finds the sequence that it expects, and is stored without the first.
func (j *journal) publish(ctx context.Context, messages []*nats.Msg) error {
	setBatch(messages)
	first, last := messages[0], messages[len(messages)-1]
	first.Header.Set(jetstream.ExpectedStreamHeader, j.name)
	first.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(j.last, 10))
	sent := 0
	for _, m := range messages[:len(messages)-1] {
		if sent += m.Size(); sent < windowBytes {
			if err := j.conn.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		if err := j.publishPart(ctx, m); err != nil {
			return err
		}
		sent = 0
	}
	ctx, cancel := context.WithTimeout(ctx, j.answer)
	defer cancel()
	ack, err := j.js.PublishMsg(ctx, last)
	var reported *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return j.noStream(last)
	case errors.As(err, &reported):
		return reported // which begins with "nats: ", and the error around it does, too
	case err != nil:
		return err
	case ack.Duplicate || ack.Sequence != j.last+uint64(len(messages)):
		return sink.Unavailablef("%s has message %d as %d", j.name, j.last+uint64(len(messages)), ack.Sequence)
	}
	j.last = ack.Sequence
	return nil
}

// publishPart publishes a message of a batch, which is not the last one, and waits until the server has what was sent
// of the batch. It acknowledges with an empty message, or reports why it has given up the batch (ADR-50 of NATS).
func (j *journal) publishPart(ctx context.Context, m *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, j.answer)
	defer cancel()
	reply, err := j.conn.RequestMsgWithContext(ctx, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return j.noStream(m)
	case errors.Is(err, context.DeadlineExceeded):
		return sink.Unavailablef(
			"%s has not acknowledged a part of a batch within %v; if this repeats, the connection is too slow, or the user may not publish to %s: %w", j.name, j.answer, m.Subject, err)
	case err != nil || len(reply.Data) == 0:
		return err
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Error == nil {
		return sink.Unavailablef("%s answers to a part of a batch: %q", j.name, reply.Data)
	}
	return answer.Error
}

func (j *journal) noStream(m *nats.Msg) error {
	return sink.Unavailablef("no stream accepts the subject %s: add it to the subjects of %s", m.Subject, j.name)
}

// setBatch makes messages a batch that is stored as a whole. One message alone needs none.
func setBatch(messages []*nats.Msg) {
	id := rand.Text()
	for i, m := range messages {
		for _, name := range []string{batchHeader, batchSequenceHeader, batchCommitHeader, jetstream.ExpectedStreamHeader,
			jetstream.ExpectedLastSeqHeader} {
			m.Header.Del(name) // of a larger batch
		}
		if len(messages) > 1 {
			m.Header.Set(batchHeader, id)
			m.Header.Set(batchSequenceHeader, strconv.Itoa(i+1))
		}
	}
	if len(messages) > 1 {
		messages[len(messages)-1].Header.Set(batchCommitHeader, "1")
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

// readAll is read of messages to which the last one belongs. A consumer is at any of the replicas, and that may be
// behind.
func (j *journal) readAll(ctx context.Context, from jetstream.ConsumerConfig, visit func(nats.Header,
	uint64) error) error {
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
func (j *journal) read(ctx context.Context, from jetstream.ConsumerConfig, visit func(nats.Header,
	uint64) error) error {
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
				return refusef("message %d of %s: %w", at, j.name, err)
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
