package kafka_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/keepwatch/keepwatch/internal/kafkatest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/kafka"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var (
	seedFlag  = flag.Uint64("sinks.seed", 1, "draw changes and faults as a run did that printed this seed; 0 draws anew")
	stepsFlag = flag.Int("sinks.steps", 30, "how many things happen to the sources of a run")
)

func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64()
}

func newSink(t testing.TB, address string) *kafka.Sink {
	t.Helper()
	s, err := kafka.New(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// open opens the sink with the streams of sinktest.
func open(t testing.TB, s sink.Sink) []sink.Stored {
	t.Helper()
	stored, err := s.Open(t.Context(), sinktest.Streams())
	for began := time.Now(); errors.As(err, new(*sink.Unavailable)) && time.Since(began) < time.Minute; time.Sleep(50 * time.Millisecond) {
		stored, err = s.Open(t.Context(), sinktest.Streams()) // the broker may still start
	}
	if err != nil {
		t.Fatal(err)
	}
	return stored
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
	for key, value := range map[string]string{"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"} {
		config[key] = kadm.StringPtr(value)
	}
	admin := kadm.NewClient(server.Client())
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := admin.CreateTopic(t.Context(), 1, 1, config, name)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestWorld reads the records as a consumer with read_committed does, while the sources change, expire and are restored, commits
// fail, Kafka is killed and compacts, and connections break.
func TestWorld(t *testing.T) {
	t.Parallel() // it mostly waits
	seed := seed()
	random, count := rand.New(rand.NewPCG(seed, 9)), map[string]int{}
	var cutter *sinktest.Cutter
	server := kafkatest.Start(t, func(addr string) string {
		cutter = sinktest.NewCutter(t, addr)
		return cutter.Addr()
	})
	compacted(t, server, "keepwatch-world")
	s := newSink(t, "kafka://"+cutter.Addr()+"/world.{resource}")
	open(t, s)
	s.Close()
	began, killed := time.Now(), time.Duration(0)
	report, err := sinktest.Run(t.Context(), sinktest.Config{
		Sink: s, Tables: sinktest.NewConsumer(server.Consume(topics("world")...).Messages), Seed: seed, Steps: *stepsFlag, Patience: 3 * time.Minute,
		Disturb: func() {
			switch random.IntN(4) {
			case 0:
				count["killed"]++
				start := time.Now()
				server.Kill()
				server.Restart()
				killed += time.Since(start)
			case 1:
				count["cut"]++
				cutter.Cut()
			default:
				count["cut within a batch"]++
				cutter.CutWithin(6000, random)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("seed %d: %d cuts, %d gaps, %d commits failed, %d rewinds; %v; %v, of which restarts of Kafka %v",
		seed, report.Cuts, report.Gaps, report.Failed, report.Epochs, count, time.Since(began).Round(time.Second), killed.Round(time.Second))
	if report.Cuts < *stepsFlag/200+1 {
		t.Error("too little has happened")
	}
}

// lossy is a mutant: it loses one in 10 of the events, and has their cursors.
type lossy struct {
	sink.Sink
	n int
}

func (l *lossy) Write(ctx context.Context, batch sink.Batch) error {
	for i := range batch.Pieces {
		if p := &batch.Pieces[i]; len(p.Messages) > 0 {
			if l.n++; l.n%10 == 0 {
				p.Messages = p.Messages[1:]
			}
		}
	}
	return l.Sink.Write(ctx, batch)
}

// testMutants checks that cursors in front of their events, and lost events, are noticed.
func testMutants(t *testing.T, server *kafkatest.Server) {
	for name, mutant := range map[string]func(sink.Sink, uint64) sink.Sink{
		"split": sinktest.Split,
		"lossy": func(s sink.Sink, _ uint64) sink.Sink { return &lossy{Sink: s} },
	} {
		t.Run(name, func(t *testing.T) { testMutant(t, server, name, mutant) })
	}
}

func testMutant(t *testing.T, server *kafkatest.Server, name string, mutant func(sink.Sink, uint64) sink.Sink) {
	for seed := range uint64(5) {
		prefix := fmt.Sprint(name, seed)
		s := newSink(t, "kafka://"+server.Addr()+"/"+prefix+".{resource}")
		open(t, s)
		s.Close()
		report, err := sinktest.Run(t.Context(), sinktest.Config{
			Sink: mutant(s, seed), Tables: sinktest.NewConsumer(server.Consume(topics(prefix)...).Messages), Seed: seed, Steps: 40, Patience: 2 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if len(report.Problems) > 0 {
			t.Logf("seed %d: %s", seed, strings.TrimSpace(report.Problems[0]))
			return
		}
	}
	t.Error("no seed has shown the fault")
}
