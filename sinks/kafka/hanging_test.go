package kafka_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/testonly/kafkatest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestHanging leaves transactions open that the coordinator has completed, as Kafka does when it is killed at the wrong
// moment (TestKills). The sink ends them as the coordinator has decided.
func TestHanging(t *testing.T) {
	t.Parallel() // it mostly waits
	server := kafkatest.Start(t, nil)
	off := "false"
	if _, err := kadm.NewClient(server.Client()).AlterBrokerConfigs(t.Context(),
		[]kadm.AlterConfig{{Name: "transaction.partition.verification.enable", Value: &off}}, 1); err != nil {
		t.Fatal(err)
	}
	const normal, committing = 5 * time.Minute, 5*time.Minute - time.Millisecond // the timeouts of claims
	both := []string{"pods", "state"}
	for _, row := range []struct {
		name    string
		end     kgo.TransactionEndTry
		topics  []string      // in which the transaction hangs
		crashes int           // processes that ended when they had claimed the transactional id
		ending  time.Duration // the timeout of a process that has begun to end it, and ended
		want    kgo.TransactionEndTry
	}{
		{"committed", kgo.TryCommit, both, 0, 0, kgo.TryCommit},
		{"committed, ended in the state topic", kgo.TryCommit, both[:1], 0, 0, kgo.TryCommit},
		{"committed, ended in the other topic", kgo.TryCommit, both[1:], 0, 0, kgo.TryCommit},
		{"aborted", kgo.TryAbort, both, 0, 0, kgo.TryAbort},
		{"aborted, ended in the state topic", kgo.TryAbort, both[:1], 0, 0, kgo.TryAbort},
		{"committed, claimed", kgo.TryCommit, both, 1, 0, kgo.TryCommit},
		{"committed, claimed twice", kgo.TryCommit, both[:1], 2, 0, kgo.TryCommit},
		{"aborted, claimed", kgo.TryAbort, both[:1], 2, 0, kgo.TryAbort},
		{"committed, begun to end", kgo.TryCommit, both[:1], 0, committing, kgo.TryCommit},
		{"aborted, begun to end", kgo.TryAbort, both, 0, normal, kgo.TryAbort},
	} {
		t.Run(row.name, func(t *testing.T) {
			prefix := strings.NewReplacer(" ", "-", ",", "").Replace(row.name)
			pods, state := prefix+".pods", "keepwatch-"+prefix
			s := newSink(t, "kafka://"+server.Addr()+"/"+prefix+".{resource}")
			open(t, s)
			write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
			s.Close()
			p := newProducer(t, server, state, normal)
			p.transaction(t, row.end, state)
			hangs := map[string]bool{}
			for _, name := range row.topics {
				hangs[name] = true
				topic, record := pods, kmsg.Record{Key: []byte("uid-b"), Value: []byte(`{"type":"ADDED","id":"uid-b/6"}`)}
				if name == "state" {
					topic, record = state, kmsg.Record{Key: []byte(`["object","pods","ns","b"]`),
						Value: []byte(`{"uid":"uid-b","revision":6}`)}
				}
				p.hang(t, topic, record)
			}
			p.client.Close()
			for range row.crashes {
				if err := s.ClaimOnly(t.Context(), pods, state); err != nil {
					t.Fatal(err)
				}
			}
			if row.ending > 0 {
				p = newProducer(t, server, state, row.ending)
				p.begin(t, pods)
				p.client.Close()
			}
			stored := open(t, s)
			if n := stored[0].Entries.Len(); (n == 2) != (bool(row.want) && hangs["state"]) || n == 0 {
				t.Errorf("stored: %+v", slices.Collect(stored[0].Entries.All()))
			}
			messages, err := server.Consume(pods).Messages(t.Context())
			if err != nil || (len(messages) == 2) != (bool(row.want) && hangs["pods"]) {
				t.Errorf("consumers have %q, %v", messages, err)
			}
			write(t, s, batch(2, 7, event(keepwatch.Added, "c", 7, `{}`)))
			if status, err := s.Status(t.Context()); err != nil || status[2].Progress.Cursor != 7 {
				t.Errorf("status: %+v, %v", status, err)
			}
			found, err := kadm.NewClient(server.Client()).DescribeTransactions(t.Context(), state)
			if err != nil || found[state].TimeoutMillis != int32(normal.Milliseconds()) {
				t.Errorf("the process has the timeout %d, %v", found[state].TimeoutMillis, err)
			}
		})
	}
	t.Run("foreign", func(t *testing.T) { testForeign(t, server) })
	t.Run("earlier producer", func(t *testing.T) { testEarlierProducer(t, server) })
}

// testForeign writes while a transaction of another producer is open in the same topic: it is not the sink's.
func testForeign(t *testing.T, server *kafkatest.Server) {
	s := newSink(t, "kafka://"+server.Addr()+"/shared")
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	other := server.Client(kgo.TransactionalID("other"))
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: "shared", Key: []byte("k"),
		Value: []byte("other")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	write(t, s, batch(2, 6, event(keepwatch.Added, "b", 6, `{}`)))
	s.Close()
	if stored := open(t, s); stored[0].Entries.Len() != 2 {
		t.Errorf("stored: %+v", stored[0])
	}
	if err := other.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Errorf("the other producer's commit: %v", err)
	}
	if messages, err := server.Consume("shared").Messages(t.Context()); err != nil || len(messages) != 3 {
		t.Errorf("consumers have %q, %v", messages, err)
	}
}

// testEarlierProducer leaves a transaction open that is of a producer with another id: nobody but an administrator can
// end it.
func testEarlierProducer(t *testing.T, server *kafkatest.Server) {
	s := newSink(t, "kafka://"+server.Addr()+"/earlier.{resource}")
	open(t, s)
	s.Close()
	p := newProducer(t, server, "another id", 5*time.Minute)
	p.hang(t, "keepwatch-earlier", kmsg.Record{Key: []byte(`["object","pods","ns","b"]`)})
	if _, err := s.Open(t.Context(), sinktest.Streams()); err == nil || errors.As(err, new(*sink.Unavailable)) ||
		!strings.Contains(err.Error(), "kafka-transactions.sh") {
		t.Errorf("it opens: %v", err)
	}
}

// producer is a process with a transactional id.
type producer struct {
	client *kgo.Client
	id     string           // the transactional id
	sent   map[string]int32 // records by topic
}

func newProducer(t *testing.T, server *kafkatest.Server, id string, timeout time.Duration) *producer {
	t.Helper()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.NewPtrProduceRequest().Key(), 11) // later ones add partitions to a transaction
	versions.SetMaxKeyVersion(kmsg.NewPtrAddPartitionsToTxnRequest().Key(), 3)
	p := &producer{server.Client(kgo.TransactionalID(id), kgo.TransactionTimeout(timeout), kgo.MaxVersions(versions)), id,
		map[string]int32{}}
	if _, _, err := p.client.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// transaction ends a transaction with a record that has no meaning in the state topic.
func (p *producer) transaction(t *testing.T, end kgo.TransactionEndTry, topic string) {
	t.Helper()
	if err := p.client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := p.client.ProduceSync(t.Context(), &kgo.Record{Topic: topic,
		Key: []byte(`["object","","",""]`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p.sent[topic]++
	if err := p.client.EndTransaction(t.Context(), end); err != nil {
		t.Fatal(err)
	}
}

// begin begins a transaction in a topic, without a record.
func (p *producer) begin(t *testing.T, topic string) {
	t.Helper()
	id, epoch, err := p.client.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := kmsg.NewPtrAddPartitionsToTxnRequest()
	request.TransactionalID, request.ProducerID, request.ProducerEpoch = p.id, id, epoch
	request.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	response, err := request.RequestWith(t.Context(), p.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hang appends a record to a partition that the coordinator does not know of.
func (p *producer) hang(t *testing.T, topic string, record kmsg.Record) {
	t.Helper()
	id, epoch, err := p.client.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 1 << 4, // of a transaction
		ProducerID: id, ProducerEpoch: epoch, FirstSequence: p.sent[topic], NumRecords: 1, Records: record.AppendTo(nil),
	}
	text := batch.AppendTo(nil)
	const length, sum, summed = 8, 17, 21 // offsets of the length behind it, of the checksum, and of what it is of
	binary.BigEndian.PutUint32(text[length:], uint32(len(text)-length-4))
	binary.BigEndian.PutUint32(text[sum:], crc32.Checksum(text[summed:], crc32.MakeTable(crc32.Castagnoli)))
	request := kmsg.NewPtrProduceRequest()
	request.TransactionID, request.Acks, request.TimeoutMillis = &p.id, -1, 5000
	request.Topics = []kmsg.ProduceRequestTopic{{Topic: topic,
		Partitions: []kmsg.ProduceRequestTopicPartition{{Records: text}}}}
	response, err := request.RequestWith(t.Context(), p.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}
