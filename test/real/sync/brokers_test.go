package sync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/internal/kafkatest"
	"github.com/keepwatch/keepwatch/internal/natstest"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestKafka runs the storm with Kafka, which is killed, too. A consumer with read_committed reads every change once.
func TestKafka(t *testing.T) {
	if !*kafkaFlag {
		t.Skip("the storm with Kafka is NOT run: it needs -sync.kafka, as make test-sinks has it")
	}
	broker := kafkatest.Start(t, nil)
	var topics []string
	for _, name := range names() {
		topics = append(topics, "storm."+name)
	}
	r := &runner{received: consumed(sinktest.NewConsumer(broker.Consume(topics...).Messages))}
	r.run(t, "kafka://"+broker.Addr()+"/storm.{resource}", func() {
		broker.Kill()
		broker.Restart()
	})
}

// TestNATS runs the storm with a stream of NATS JetStream, which is killed, too. A consumer reads every change once.
func TestNATS(t *testing.T) {
	server := natstest.Start(t, "")
	r := &runner{received: consumed(sinktest.NewConsumer(natstest.Messages(server.JetStream(), "STORM")))}
	r.run(t, "nats://"+server.Addr()+"/STORM", func() {
		server.Kill()
		server.Restart()
	})
}

// TestNATSCluster runs the storm with a stream that three servers replicate, of which the leader is killed.
func TestNATSCluster(t *testing.T) {
	cluster := natstest.StartCluster(t)
	js := cluster.JetStream()
	leaders := 0
	r := &runner{received: consumed(sinktest.NewConsumer(natstest.Messages(js, "STORM")))}
	r.run(t, "nats://"+cluster.Addrs()+"/STORM?replicas=3", func() {
		leader := cluster.Leader(t.Context(), js, "STORM")
		if leader == nil {
			return // none is elected yet
		}
		leaders++
		leader.Kill()
		if r.random.IntN(2) == 0 {
			for next := leader; (next == nil || next == leader) && t.Context().Err() == nil; {
				next = cluster.Leader(t.Context(), js, "STORM")
			}
		}
		leader.Restart()
	})
	t.Logf("%d leaders were killed", leaders)
	if leaders == 0 {
		t.Error("no leader was killed")
	}
}

// TestNATSBucket runs the storm with a bucket of NATS JetStream, which has the current objects, and no history.
func TestNATSBucket(t *testing.T) {
	server := natstest.Start(t, "")
	js := server.JetStream()
	r := &runner{received: &received{
		current: func(ctx context.Context, _ int) (rows []sinktest.Row, err error) {
			objects, err := natstest.Objects(ctx, js, "storm")
			for key, text := range objects {
				resource, _, _ := strings.Cut(key, ".")
				if resource = strings.ReplaceAll(resource, "_", "."); slices.Contains(names(), resource) { // the others are the sync's
					row, invalid := sinktest.RowOf(resource, text)
					rows, err = append(rows, row), errors.Join(err, invalid)
				}
			}
			return rows, err
		},
		judge: func(*runner) {},
	}}
	r.run(t, "nats://"+server.Addr()+"/?kv=storm", func() {
		server.Kill()
		server.Restart()
	})
}

// consumed is what a consumer of messages has.
func consumed(c *sinktest.Consumer) *received {
	return &received{c.Current, func(r *runner) { r.judgeMessages(c) }}
}

// judgeMessages compares everything that was read with the writes, as judge does.
func (r *runner) judgeMessages(consumer *sinktest.Consumer) {
	t := r.t
	problems, err := consumer.Invariants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	deleted := map[string]map[string]bool{} // resource → UID → whether the object was deleted
	states := consumer.States()
	for _, s := range states {
		if deleted[s.Resource] == nil {
			deleted[s.Resource] = map[string]bool{}
		}
		deleted[s.Resource][s.UID] = s.Deleted
	}
	gaps := consumer.Gaps()
	r.judgeObjects(func(resource string) map[string]bool { return deleted[resource] }, func(resource string) []stream.Gap { return gaps[resource] })
	t.Logf("%d states", len(states))
}
