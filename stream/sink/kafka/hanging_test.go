package kafka_test

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/kafkatest"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestHanging leaves transactions open that the coordinator has completed, as Kafka does when it is killed at the wrong moment
// (TestKills). The sink ends them as the coordinator has decided.
func TestHanging(t *testing.T) {
	t.Parallel() // it mostly waits
	server := kafkatest.Start(t, nil)
	off := "false"
	if _, err := kadm.NewClient(server.Client()).AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: "transaction.partition.verification.enable", Value: &off}}, 1); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name     string
		end      kgo.TransactionEndTry
		again    bool // a process has claimed the transactional id since, and ended
		topics   []string
		appended bool
	}{
		{"committed", kgo.TryCommit, false, []string{"pods", "state"}, true},
		{"committed, ended in the state topic", kgo.TryCommit, false, []string{"pods"}, true},
		{"committed, ended in the other topic", kgo.TryCommit, false, []string{"state"}, true},
		{"aborted", kgo.TryAbort, false, []string{"pods", "state"}, false},
		{"aborted, ended in the state topic", kgo.TryAbort, false, []string{"pods"}, false},
		{"decision lost", kgo.TryCommit, true, []string{"pods", "state"}, false},
		{"decision lost, ended in the state topic", kgo.TryCommit, true, []string{"pods"}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			prefix := strings.NewReplacer(" ", "-", ",", "").Replace(row.name)
			pods, state := prefix+".pods", "keepwatch-"+prefix
			address := "kafka://" + server.Addr() + "/" + prefix + ".{resource}"
			s := newSink(t, address)
			open(t, s)
			write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
			s.Close()
			p := newProducer(t, server, state)
			p.transaction(t, row.end, state)
			for _, name := range row.topics {
				topic, record := pods, kmsg.Record{Key: []byte("uid-b"), Value: []byte(`{"type":"ADDED","id":"uid-b/6"}`)}
				if name == "state" {
					topic, record = state, kmsg.Record{Key: []byte(`["object","pods","ns","b"]`), Value: []byte(`{"uid":"uid-b","revision":6}`)}
				}
				p.hang(t, topic, record)
			}
			p.client.Close()
			if row.again {
				newProducer(t, server, state).client.Close()
			}
			stored := open(t, s)
			stateHung := row.topics[len(row.topics)-1] == "state"
			if n := len(stored[0].Entries); (n == 2) != (row.appended && stateHung) || n == 0 {
				t.Errorf("stored: %+v", stored[0].Entries)
			}
			messages, err := server.Consume(pods).Messages(t.Context())
			if err != nil || (len(messages) == 2) != (row.appended && row.topics[0] == "pods") {
				t.Errorf("consumers have %q, %v", messages, err)
			}
			write(t, s, batch(2, 7, event(keepwatch.Added, "c", 7, `{}`)))
			if status, err := s.Status(t.Context()); err != nil || status[2].Progress.Cursor != 7 {
				t.Errorf("status: %+v, %v", status, err)
			}
		})
	}
	// A transaction of another producer in a topic of the sink is its own affair.
	s := newSink(t, "kafka://"+server.Addr()+"/shared")
	open(t, s)
	write(t, s, batch(1, 5, event(keepwatch.Added, "a", 5, `{}`)))
	s.Close()
	other := server.Client(kgo.TransactionalID("other"))
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: "shared", Key: []byte("k"), Value: []byte("other")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if stored, err := s.Open(t.Context(), sinktest.Streams()); err != nil || len(stored[0].Entries) != 1 {
		t.Errorf("beside another producer: %+v, %v", stored, err)
	}
	if err := other.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Errorf("the other producer's commit: %v", err)
	}
}

// producer is a process with a transactional id.
type producer struct {
	client *kgo.Client
	id     string           // the transactional id
	sent   map[string]int32 // records by topic
}

func newProducer(t *testing.T, server *kafkatest.Server, id string) *producer {
	t.Helper()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.NewPtrProduceRequest().Key(), 11) // later ones add partitions to a transaction, and this is asked not to happen
	p := &producer{server.Client(kgo.TransactionalID(id), kgo.MaxVersions(versions)), id, map[string]int32{}}
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
	if err := p.client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(`["object","","",""]`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p.sent[topic]++
	if err := p.client.EndTransaction(t.Context(), end); err != nil {
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
	request.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: text}}}}
	response, err := request.RequestWith(t.Context(), p.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}
