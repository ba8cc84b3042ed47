package kafka

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var (
	_ sink.Sink   = (*Sink)(nil)
	_ sink.Reader = (*Sink)(nil)
)

const (
	connectTimeout = 5 * time.Second // for each broker
	// metadataWait is the least interval in which the client asks which broker leads a partition.
	metadataWait = 200 * time.Millisecond
)

// Options configure a sink. The zero value is ready for use. The address says where the sink is, and may say how to
// connect.
type Options struct {
	Shape shape.Shape // of the values of records
	// TLS, if set, are the settings of TLS, in place of the address' parameters tls and ca.
	TLS *tls.Config
	// Password, if set, returns the password of the address' user. It is called at every login, from any goroutine.
	Password func() (string, error)
}

// Sink is topics of Kafka with a state topic.
type Sink struct {
	target      target
	token       string // of this writer
	partitioner kgo.TopicPartitioner

	opened    bool        // Open has succeeded before
	client    *kgo.Client // the producer; nil: closed
	streams   []followed
	committed broker.Committed
}

// followed is a stream that the sink stores.
type followed struct {
	topic  topic
	cursor *cursor
}

// New returns the sink of an address: kafka://[USER:PASSWORD@]HOST[:PORT][,...]/TOPICS?PARAMETERS, where TOPICS is a
// template such as k8s.{resource}. It connects to nothing. No error has a password of the address.
func New(address string, options Options) (*Sink, error) {
	t, err := parse(address, options)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, token: rand.Text(), partitioner: kgo.StickyKeyPartitioner(nil).ForTopic(""),
		committed: broker.Committed{}}, nil
}

// connect returns a client. It connects with its first request.
func (t target) connect(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(append([]kgo.Opt{
		kgo.ClientID("keepwatch-sync"), kgo.DialTimeout(connectTimeout), kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.RetryTimeout(answerTimeout), kgo.MetadataMinAge(metadataWait),
	}, t.options...), options...)...)
}

// Open connects, and makes the topics if they do not exist. See [sink.Sink]. The newest writer shuts out every other
// one, whose next Open fails.
func (s *Sink) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	if s.client != nil {
		return nil, errors.New("the sink is open")
	}
	stored, err := s.open(ctx, streams)
	if err != nil {
		_ = s.Close() // returns nil
		return nil, s.failure(err)
	}
	s.opened = true
	return stored, nil
}

func (s *Sink) open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	r, err := s.target.newReader()
	if err != nil {
		return nil, err
	}
	defer r.client.Close()
	admin := kadm.NewClient(r.client)
	topics, err := s.target.ensure(ctx, admin, streams)
	if err != nil {
		return nil, err
	}
	f := newFold()
	// A process that was replaced must not replace the other one in turn.
	if err := s.load(ctx, r, f); err != nil {
		return nil, err
	}
	if err := s.claimEnded(ctx, admin, scope{topics, f.topics()}); err != nil {
		return nil, err
	}
	if err := s.load(ctx, r, f); err != nil {
		return nil, err
	}
	if err := s.checkCommitted(f); err != nil {
		return nil, err
	}
	return s.enter(ctx, f, streams, topics)
}

// checkCommitted returns an error if the state topic does not have what this process has committed: it was deleted, or
// a broker that lacked its last records was elected (unclean.leader.election.enable).
func (s *Sink) checkCommitted(f *fold) error {
	if key, progress, lost := f.cursors.Lost(s.committed); lost {
		return refusef("the state topic %s has lost the cursor of %s at revision %d: it was deleted, or its last records were "+
			"lost with a broker; the next start delivers again what it lacks", s.target.state, key.Resource, progress.Cursor)
	}
	return nil
}

// load reads the state topic, and returns an error if another process has opened the sink since this one did.
func (s *Sink) load(ctx context.Context, r *reader, f *fold) error {
	if err := r.read(ctx, f); err != nil {
		return err
	}
	for _, c := range f.cursors {
		if s.opened && c.Active && c.Writer != s.token {
			return errTakenOver
		}
	}
	return nil
}

// claimEnded makes this process the only one that can commit, when no transaction of the transactional id is open in
// topics.
func (s *Sink) claimEnded(ctx context.Context, admin *kadm.Client, topics scope) error {
	commit, err := s.findDecision(ctx, admin, topics)
	if err != nil {
		return err
	}
	if err := s.claim(ctx, topics.current, claimTimeout(commit)); err != nil {
		return err
	}
	ended, err := s.endHanging(ctx, admin, topics, kgo.TransactionEndTry(commit))
	if err != nil || !ended && !commit {
		return err
	}
	s.client.Close() // a request of its epoch that is sent again must not end a later transaction
	return s.claim(ctx, topics.current, claimTimeout(false))
}

// claim makes this process the only one that can commit. The timeout is that of its transactions.
func (s *Sink) claim(ctx context.Context, topics map[string]topic, timeout time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	s.client, err = s.target.connect(
		kgo.TransactionalID(s.target.state), kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), // nothing follows the records that a transaction waits for
		kgo.ProducerBatchMaxBytesFn(func(name string) int32 {
			if t, ok := topics[name]; ok {
				return min(t.maxBytes, batchBytes)
			}
			return maxMessageBytes
		}),
	)
	if err != nil {
		return err
	}
	_, _, err = s.client.ProducerID(ctx)
	return err
}

// enter makes this process the writer of the streams.
func (s *Sink) enter(ctx context.Context, f *fold, streams []sink.Stream,
	topics map[string]topic) ([]sink.Stored, error) {
	s.streams = nil
	active := map[broker.StreamKey]bool{}
	var stored []sink.Stored
	if err := f.cursors.EnterCluster(streams); err != nil {
		return nil, refusal{err}
	}
	for _, wanted := range streams {
		key := broker.KeyOf(wanted.ID)
		active[key] = true
		c := f.cursors[key]
		if c == nil {
			c = &cursor{}
			f.cursors[key] = c
		}
		t := topics[s.target.topicOf(wanted.ID)]
		found, err := c.enter(wanted, t, s.token, f.objects)
		if err != nil {
			return nil, refusef("%s: %w", wanted.ID.Resource, err)
		}
		t.partitions = c.Partitions
		s.streams, stored = append(s.streams, followed{t, c}), append(stored, found)
	}
	var records []*kgo.Record
	for key, c := range f.cursors {
		c.Active = active[key]
		records = append(records, s.cursorRecord(c))
	}
	if err := s.commit(ctx, records); err != nil {
		return nil, err
	}
	for i, wanted := range streams {
		s.committed[broker.KeyOf(wanted.ID)] = stored[i].Progress
	}
	return stored, nil
}

// enter makes the stream an active one of a writer, and returns what is stored of it.
func (c *cursor) enter(wanted sink.Stream, t topic, writer string, objects *broker.Index) (sink.Stored, error) {
	if err := c.Enter(wanted, writer); err != nil {
		return sink.Stored{}, err
	}
	if written := len(c.Position) > 0; written && c.Topic != t.name {
		return sink.Stored{}, fmt.Errorf("its records are in topic %s, not in %s: "+
			"give the same topics, or another state topic to begin anew", c.Topic, t.name)
	} else if written && c.TopicID != t.id {
		return sink.Stored{}, fmt.Errorf("topic %s was deleted and made anew: "+
			"delete the state topic, too, to begin anew", t.name)
	}
	if len(c.Position) == 0 || c.Partitions == 0 { // 0: of a cursor that was written before they were counted
		c.Partitions = t.partitions
	}
	c.Topic, c.TopicID = t.name, t.id
	return c.Stored(objects)
}

// Write commits the records of a batch, the index and the cursors in one transaction. See [sink.Sink].
func (s *Sink) Write(ctx context.Context, batch sink.Batch) error {
	if s.client == nil {
		return sink.Unavailablef("kafka: the sink is closed")
	}
	var records []*kgo.Record
	for _, p := range batch.Pieces {
		more, err := s.records(p, batch.Time)
		if err != nil {
			return err
		}
		c := s.streams[p.Stream].cursor
		c.Advance(p, batch.Time)
		records = append(append(records, more...), s.cursorRecord(c))
	}
	if err := s.commit(ctx, records); err != nil {
		return s.failure(err)
	}
	for _, p := range batch.Pieces {
		s.committed[broker.KeyOf(s.streams[p.Stream].cursor.Identity)] = p.After
	}
	return nil
}

// Close ends the connections.
func (s *Sink) Close() error {
	if s.client != nil {
		s.client.Close()
	}
	s.client = nil
	return nil
}
