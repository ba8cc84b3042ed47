package nats

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var (
	_ sink.Sink    = (*Sink)(nil)
	_ sink.Checker = (*Sink)(nil)
	_ sink.Reader  = (*Sink)(nil)
)

const (
	connectTimeout = 5 * time.Second // for each server
	// A connection is given up when the server has not answered maxPings pings: later than after answerTimeout, since a
	// ping waits behind the messages before it.
	pingInterval = 10 * time.Second
	maxPings     = 3
	closeTimeout = 5 * time.Second
)

// Options configure a sink. The zero value is ready for use. The address says where the sink is, and may say how to
// connect.
type Options struct {
	Shape shape.Shape // of the messages of a stream; a bucket has none
	// TLS, if set, are the settings of TLS, in place of the address' parameters tls and ca.
	TLS *tls.Config
	// Password, if set, returns the password of the address' user. It is called at every login, from any goroutine.
	Password func() (string, error)
}

// Sink is a stream of JetStream and a bucket beside it, or a bucket only.
type Sink struct {
	target target
	token  string // of this writer

	opened  bool // Open has succeeded before
	claimed bool // see claim
	conn    *nats.Conn
	closed  chan struct{} // closed with the connection
	js      jetstream.JetStream
	log     *journal // nil: the bucket is the sink
	bucket  *journal
	streams []sink.Stream
	cursors []*cursor // of each stream

	committed broker.Committed
}

// New returns the sink of an address: nats://[USER:PASSWORD@]HOST[:PORT][,...]/STREAM?subject=TEMPLATE, or
// nats://HOST/?kv=BUCKET. It connects to nothing. No error has a password of the address.
func New(address string, options Options) (*Sink, error) {
	t, err := parse(address, options)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, token: rand.Text(), committed: broker.Committed{}}, nil
}

// Open connects, and makes the stream and the bucket if they do not exist. See [sink.Sink]. The newest writer
// shuts out every other one, whose next Open fails.
func (s *Sink) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	if s.conn != nil {
		return nil, errors.New("the sink is open")
	}
	stored, err := s.open(ctx, streams)
	if err != nil {
		_ = s.Close() // of a connection that is given up
		return nil, s.failure(err)
	}
	s.opened = true
	return stored, nil
}

func (s *Sink) open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	if err := s.connect(); err != nil {
		return nil, err
	}
	var err error
	if s.bucket, err = s.openBucket(ctx); err != nil {
		return nil, err
	}
	if s.target.stream != "" {
		if s.log, err = s.openLog(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.check(ctx, streams); err != nil {
		return nil, err
	}
	if err := s.claim(ctx); err != nil {
		return nil, err
	}
	f := newFold()
	if err := s.read(ctx, f); err != nil {
		return nil, err
	}
	return s.enter(ctx, f, streams)
}

func (s *Sink) connect() error {
	closed := make(chan struct{})
	options := append([]nats.Option{
		nats.Name("keepwatch sync"), nats.Timeout(connectTimeout), nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.NoReconnect(), // the sink is opened again
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // what fails has no acknowledgement
	}, s.target.options...)
	if c := s.target.credentials; c != nil {
		password, err := c.Password()
		if err != nil {
			return &sink.Unavailable{Err: err}
		}
		options = append(options, nats.UserInfo(c.User, password))
	}
	conn, err := nats.Connect(s.target.servers, options...)
	if err != nil {
		return err
	}
	s.conn, s.closed = conn, closed
	s.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(answerTimeout))
	return err
}

// read reads the bucket, and what the stream has more.
func (s *Sink) read(ctx context.Context, f *fold) error {
	if _, err := s.bucket.load(ctx); err != nil {
		return err
	}
	if err := s.readCursors(ctx, f); err != nil {
		return err
	}
	newest := jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: s.prefix() +
		">"}
	if err := s.bucket.readAll(ctx, newest, func(h nats.Header, _ uint64) error { return f.add(h) }); err != nil {
		return err
	}
	switch {
	// Not after the stream is read: a writer that was replaced may have left a last piece there.
	case f.writer != "" && f.writer != s.token: // empty: the bucket was deleted
		return errTakenOver
	case s.log == nil:
		return nil
	}
	first, err := s.log.load(ctx)
	if err != nil {
		return err
	}
	complete := f.sequence()
	switch {
	case complete > s.log.last:
		return fmt.Errorf("stream %s ends at message %d, although message %d was acknowledged: %w", s.log.name, s.log.last,
			complete, errLost)
	case complete == s.log.last:
		return nil
	case first > complete+1:
		cause := errLost
		if c := s.log.stream.CachedInfo().Config; complete > 0 && (c.MaxAge > 0 || c.MaxBytes > 0 || c.MaxMsgs > 0) {
			cause = errExpired
		}
		return fmt.Errorf("stream %s begins at message %d, and bucket %s has the objects up to message %d: %w", s.log.name,
			first, s.target.bucket, complete, cause)
	}
	return s.log.readAll(ctx, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: complete + 1}, func(h nats.Header, _ uint64) error { return f.addBehind(h) })
}

// check refuses streams that do not fit what the bucket has. It is asked before the claim, which would end the writer
// that they do fit.
func (s *Sink) check(ctx context.Context, streams []sink.Stream) error {
	if _, err := s.bucket.load(ctx); err != nil {
		return err
	}
	f := newFold()
	if err := s.readCursors(ctx, f); err != nil {
		return err
	}
	if err := f.cursors.EnterCluster(streams); err != nil {
		return refusal{err}
	}
	for _, wanted := range streams {
		c := f.cursors[broker.KeyOf(wanted.ID)]
		var err error
		if c != nil {
			err = c.Enter(wanted, s.token)
		}
		if c == nil || len(c.Position) == 0 {
			for _, other := range f.cursors {
				err = cmp.Or(err, other.CheckOverlap(wanted.ID))
			}
		}
		if err != nil {
			return refusef("%s: %w", wanted.ID.Resource, err)
		}
	}
	return nil
}

// claim makes this process the writer, once, before it reads: no other one can write to the bucket without opening
// the sink again, and then it ends. A message that carries no expectation does so, however often the other one
// writes.
func (s *Sink) claim(ctx context.Context) error {
	if s.claimed {
		return nil
	}
	m := nats.NewMsg(s.prefix() + cursorsKey + "_writer")
	m.Header.Set(writerHeader, s.token)
	_, err := s.js.PublishMsg(ctx, m)
	s.claimed = err == nil
	return err
}

// enter begins the streams, and writes what the bucket does not have.
func (s *Sink) enter(ctx context.Context, f *fold, streams []sink.Stream) ([]sink.Stored, error) {
	if err := f.finish(); err != nil {
		return nil, err
	}
	if err := s.checkCommitted(f); err != nil {
		return nil, err
	}
	if err := f.cursors.EnterCluster(streams); err != nil {
		return nil, refusal{err}
	}
	s.streams, s.cursors = streams, nil
	followed := map[broker.StreamKey]bool{}
	var stored []sink.Stored
	for _, wanted := range streams {
		key := broker.KeyOf(wanted.ID)
		followed[key] = true
		c := f.cursors[key]
		if c == nil {
			c = &cursor{}
			f.cursors[key] = c
		}
		if err := c.Enter(wanted, s.token); err != nil {
			return nil, refusef("%s: %w", wanted.ID.Resource, err)
		}
		found, err := c.Stored(f.objects)
		if err != nil {
			return nil, refusef("%s: %w", wanted.ID.Resource, err)
		}
		s.cursors, stored = append(s.cursors, c), append(stored, found)
	}
	var messages []*nats.Msg
	for _, x := range f.changed {
		messages = append(messages, s.bucketMessage(x))
	}
	var last *cursor
	for key, c := range f.cursors {
		c.Active = followed[key]
		if last != nil {
			messages = append(messages, s.cursorMessage(last))
		}
		last = c
	}
	if last != nil {
		// The bucket is complete with the last message.
		if s.log != nil {
			last.Sequence = s.log.last
		}
		messages = append(messages, s.cursorMessage(last))
	}
	if err := s.bucket.append(ctx, messages); err != nil {
		return nil, err
	}
	for i, wanted := range streams {
		s.committed[broker.KeyOf(wanted.ID)] = stored[i].Progress
	}
	return stored, nil
}

// checkCommitted returns an error if the bucket, and what the stream has more, is less than what this process has
// committed.
func (s *Sink) checkCommitted(f *fold) error {
	if key, progress, lost := f.cursors.Lost(s.committed); lost {
		return fmt.Errorf("bucket %s has lost the cursor of %s at revision %d: %w", s.target.bucket, key.Resource,
			progress.Cursor, errLost)
	}
	return nil
}

// Write publishes the messages of a batch, and then their objects and cursors to the bucket. See [sink.Sink]: a piece
// is stored when its last message is.
func (s *Sink) Write(ctx context.Context, batch sink.Batch) error {
	if s.conn == nil {
		return sink.Unavailablef("nats: the sink is closed")
	}
	if err := s.write(ctx, batch); err != nil {
		return s.failure(err)
	}
	return nil
}

func (s *Sink) write(ctx context.Context, batch sink.Batch) error {
	var log, bucket []*nats.Msg
	for _, p := range batch.Pieces {
		id, c := s.streams[p.Stream].ID, s.cursors[p.Stream]
		items := s.items(p)
		c.Advance(p, batch.Time)
		c.passed()
		if s.log != nil {
			messages, err := s.logMessages(shape.Origin{ID: id, Snapshot: !p.Before.Started(), Time: batch.Time}, items)
			if err != nil {
				return refusef("%s: %w", id.Resource, err)
			}
			setHeader(messages[len(messages)-1].Header, cursorHeader, c)
			log = append(log, messages...)
			c.Sequence = s.log.last + uint64(len(log))
		}
		messages, err := s.bucketMessages(items)
		if err != nil {
			return refusef("%s: %w", id.Resource, err)
		}
		bucket = append(append(bucket, messages...), s.cursorMessage(c))
	}
	if s.log != nil {
		if err := s.log.append(ctx, log); err != nil {
			return err
		}
	}
	if err := s.bucket.append(ctx, bucket); err != nil {
		return err
	}
	for _, p := range batch.Pieces {
		s.committed[broker.KeyOf(s.streams[p.Stream].ID)] = p.After
	}
	return nil
}

// Check asks the server whether stream and bucket are as this process has left them. If they are not, the next Open
// finds out what has happened. Nothing else would notice a bucket that was purged, whose sequence goes on: its readers
// would miss all objects that do not change. See [sink.Checker].
func (s *Sink) Check(ctx context.Context) error {
	if s.conn == nil {
		return sink.Unavailablef("nats: the sink is closed")
	}
	if err := s.checkStored(ctx); err != nil {
		return s.failure(err)
	}
	return nil
}

func (s *Sink) checkStored(ctx context.Context) error {
	for _, j := range []*journal{s.log, s.bucket} {
		if j == nil {
			continue
		}
		info, err := j.stream.Info(ctx)
		if err != nil {
			return err
		}
		least := uint64(0) // messages
		if j == s.bucket {
			for _, c := range s.cursors {
				least += c.Objects + 1
			}
		}
		if info.State.LastSeq != j.last || info.State.Msgs < least {
			return sink.Unavailablef("another program has changed %s: it has %d messages up to %d, and must have %d or more up to %d",
				j.name, info.State.Msgs, info.State.LastSeq, least, j.last)
		}
	}
	return nil
}

// Close ends the connection.
func (s *Sink) Close() error {
	if s.conn != nil {
		s.conn.Close()
	}
	s.conn, s.js, s.log, s.bucket = nil, nil, nil, nil
	return nil
}
