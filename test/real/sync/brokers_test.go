package sync

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch/sinks/testonly/kafkatest"
	"github.com/keepwatch/keepwatch/sinks/testonly/natstest"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// messages are the contents of a broker, as a consumer reads them: every change once.
type messages struct{ *sinktest.Consumer }

// consume returns the messages that next returns.
func consume(next func(context.Context) ([][]byte, error)) messages {
	c := sinktest.NewConsumer(next)
	c.CurrentTexts = true
	return messages{c}
}

// received reads all messages, after their order was judged.
func (m messages) received(t *testing.T) *received {
	problems, err := m.Invariants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	return &received{m.States(), m.Gaps()}
}

func missingKafka() string { return kafkatest.Missing() }

// followKafka publishes to Kafka. A consumer with read_committed reads every change once.
func followKafka(t *testing.T) *follower {
	var cutter *sinktest.Cutter
	broker := kafkatest.Start(t, func(server string) string {
		cutter = sinktest.NewCutter(t, server)
		return cutter.Addr()
	})
	var topics []string
	for _, name := range names() {
		topics = append(topics, "storm."+name)
	}
	return &follower{
		contents: consume(broker.Consume(topics...).Messages),
		to:       "kafka://" + cutter.Addr() + "/storm.{resource}",
		killSink: func(*rand.Rand) {
			broker.Kill()
			broker.Restart()
		},
		cut: cutWith(cutter),
	}
}

// followNATS publishes to a stream of NATS JetStream. A consumer reads every change once.
func followNATS(t *testing.T) *follower {
	server := natstest.Start(t, "")
	cutter := sinktest.NewCutter(t, server.Addr())
	return &follower{
		contents: consume(natstest.Messages(server.JetStream(), "STORM")),
		to:       "nats://" + cutter.Addr() + "/STORM",
		killSink: func(*rand.Rand) {
			server.Kill()
			server.Restart()
		},
		cut: cutWith(cutter),
	}
}

// cluster is a stream that three servers replicate.
type cluster struct {
	messages
	servers natstest.Cluster
	js      jetstream.JetStream
	leaders int // that were killed
}

// followNATSCluster publishes to a stream that three servers replicate, of which the leader is killed.
func followNATSCluster(t *testing.T) *follower {
	servers := natstest.StartCluster(t)
	js := servers.JetStream()
	c := &cluster{consume(natstest.Messages(js, "STORM")), servers, js, 0}
	return &follower{contents: c, to: "nats://" + servers.Addrs() + "/STORM?replicas=3",
		killSink: func(random *rand.Rand) { c.killLeader(t.Context(), random) }}
}

// killLeader kills the leader, and starts it again: at once, or when another one was elected.
func (c *cluster) killLeader(ctx context.Context, random *rand.Rand) {
	var leader *natstest.Server
	for leader == nil && ctx.Err() == nil { // until one is elected
		leader = c.servers.Leader(ctx, c.js, "STORM")
	}
	if leader == nil {
		return // the test has ended
	}
	c.leaders++
	leader.Kill()
	if random.IntN(2) == 0 {
		for next := leader; (next == nil || next == leader) && ctx.Err() == nil; {
			next = c.servers.Leader(ctx, c.js, "STORM")
		}
	}
	leader.Restart()
}

func (c *cluster) received(t *testing.T) *received {
	t.Logf("%d leaders were killed", c.leaders)
	return c.messages.received(t)
}

// bucket is a bucket of NATS JetStream, which has the current objects, and no history.
type bucket struct{ js jetstream.JetStream }

func followNATSBucket(t *testing.T) *follower {
	server := natstest.Start(t, "")
	cutter := sinktest.NewCutter(t, server.Addr())
	return &follower{
		contents: bucket{server.JetStream()},
		to:       "nats://" + cutter.Addr() + "/?kv=storm",
		killSink: func(*rand.Rand) {
			server.Kill()
			server.Restart()
		},
		cut: cutWith(cutter),
	}
}

// Current returns the objects of the bucket.
func (b bucket) Current(ctx context.Context, _ int) (rows []sinktest.Row, err error) {
	objects, err := natstest.Objects(ctx, b.js, "storm")
	for key, text := range objects {
		resource, _, _ := strings.Cut(key, ".")
		// the others are the sync's
		if resource = strings.ReplaceAll(resource, "_", "."); slices.Contains(names(), resource) {
			row, invalid := sinktest.RowOf(resource, text)
			rows, err = append(rows, row), errors.Join(err, invalid)
		}
	}
	return rows, err
}

func (bucket) received(*testing.T) *received { return nil }
