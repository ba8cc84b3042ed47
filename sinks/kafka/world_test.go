package kafka_test

import (
	"flag"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/kafka"
	"github.com/keepwatch/keepwatch/sinks/testonly/kafkatest"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var (
	seedFlag  = flag.Uint64("sinks.seed", 1, "draw changes and faults as a run did that printed this seed; 0 draws anew")
	stepsFlag = flag.Int("sinks.steps", 30, "how many things happen to the sources of a run")
)

func newSink(t testing.TB, address string) *kafka.Sink {
	t.Helper()
	s, err := kafka.New(address, kafka.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// topics returns the topics of the streams of sinktest.
func topics(prefix string) (names []string) {
	for _, s := range sinktest.Streams() {
		names = append(names, prefix+"."+s.ID.Resource)
	}
	return names
}

// compacted makes a state topic that Kafka compacts all the time.
func compacted(t *testing.T, server *kafkatest.Server, name string) {
	t.Helper()
	config := map[string]*string{}
	for key, value := range map[string]string{"cleanup.policy": "compact", "segment.ms": "300",
		"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"} {
		config[key] = kadm.StringPtr(value)
	}
	admin := kadm.NewClient(server.Client())
	for end := time.Now().Add(await.Deadline); ; time.Sleep(100 * time.Millisecond) {
		_, err := admin.CreateTopic(t.Context(), 1, 1, config, name)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestWorld reads the records as a consumer with read_committed does, while the sources change, expire and are
// restored, commits fail, Kafka is killed and compacts, and connections break.
func TestWorld(t *testing.T) {
	t.Parallel() // it mostly waits
	var cutter *sinktest.Cutter
	server := kafkatest.Start(t, func(addr string) string {
		cutter = sinktest.NewCutter(t, addr)
		return cutter.Addr()
	})
	compacted(t, server, "keepwatch-world")
	s := newSink(t, "kafka://"+cutter.Addr()+"/world.{resource}")
	open(t, s)
	s.Close()
	sinktest.RunBroker(t, sinktest.Config{
		Sink: s, Tables: sinktest.NewConsumer(server.Consume(topics("world")...).Messages), Seed: *seedFlag,
		Steps: *stepsFlag,
	}, cutter, func() {
		server.Kill()
		server.Restart()
	})
}

// testMutants checks that sinks with a planted fault are noticed.
func testMutants(t *testing.T, server *kafkatest.Server) {
	sinktest.TestMutants(t, nil, func(t *testing.T, name string) sinktest.Config {
		s := newSink(t, "kafka://"+server.Addr()+"/"+name+".{resource}")
		open(t, s)
		s.Close()
		return sinktest.Config{Sink: s, Tables: sinktest.NewConsumer(server.Consume(topics(name)...).Messages)}
	})
}
