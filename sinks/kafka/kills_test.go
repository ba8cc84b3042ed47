package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
	"github.com/keepwatch/keepwatch/sinks/kafka"
	"github.com/keepwatch/keepwatch/sinks/testonly/kafkatest"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var killsFlag = flag.Int("sinks.kills", 3, "how often TestKills kills the process that writes, with Kafka or without")

// writerVariable has the seed and the address of a process of this program that writes, in place of its tests.
const writerVariable = "KEEPWATCH_TEST_WRITER"

func TestMain(m *testing.M) {
	if seed, address, ok := strings.Cut(os.Getenv(writerVariable), " "); ok {
		fmt.Fprintln(os.Stderr, writeForever(seed, address))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writer adds and deletes random objects. Whenever it opens the sink, the objects must be those of the positions.
type writer struct {
	sink     *kafka.Sink
	random   *rand.Rand
	names    []map[string]bool // of the objects of each stream
	revision keepwatch.Revision
}

// opened is what a writer logs when it has opened the sink.
const opened = "opened at"

func writeForever(seed, address string) error {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	s, err := kafka.New(address, kafka.Options{})
	if err != nil {
		return err
	}
	for w := (&writer{sink: s, random: rand.New(rand.NewPCG(n, 0))}); ; {
		if err := w.open(context.Background()); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, opened, w.revision)
		for err == nil {
			err = s.Write(context.Background(), w.batch())
		}
		fmt.Fprintln(os.Stderr, err)
		err = s.Close()
	}
}

// open opens the sink as soon as the broker is there.
func (w *writer) open(ctx context.Context) error {
	stored, err := w.sink.Open(ctx, sinktest.Streams())
	for ; errors.As(err, new(*sink.Unavailable)); time.Sleep(20 * time.Millisecond) {
		stored, err = w.sink.Open(ctx, sinktest.Streams())
	}
	if err != nil {
		return err
	}
	w.names = nil
	for i, one := range stored {
		names := map[string]bool{}
		for e := range one.Entries.All() {
			names[e.Key.Name] = true
		}
		if want := position(names); one.Position != nil && string(one.Position) != string(want) {
			return fmt.Errorf("stream %d at %d: the position is %s, that of the %d objects %s", i, one.Progress.Cursor,
				one.Position, len(names), want)
		}
		w.names = append(w.names, names)
		w.revision = max(w.revision, one.Progress.Cursor)
	}
	return nil
}

// position is another text for another set of names.
func position(names map[string]bool) []byte {
	sum := uint64(0)
	for name := range names {
		h := fnv.New64a()
		h.Write([]byte(name))
		sum ^= h.Sum64()
	}
	return fmt.Appendf(nil, `{"count":%d,"sum":"%x"}`, len(names), sum)
}

// batch returns pieces of some of the streams.
func (w *writer) batch() sink.Batch {
	b := sink.Batch{Time: time.Now().UTC().Truncate(time.Millisecond)}
	for i, names := range w.names {
		if w.random.IntN(2) == 0 {
			continue
		}
		before := sink.Progress{Cursor: w.revision}
		var p stream.Piece
		for range w.random.IntN(20) {
			w.revision++
			name, kind := fmt.Sprint("o-", w.random.IntN(100)), keepwatch.Added
			if names[name] {
				kind = keepwatch.Deleted
				delete(names, name)
			} else {
				names[name] = true
			}
			p.Messages = append(p.Messages, sinktest.Event(kind, name, w.revision, `"`+strings.Repeat("x",
				w.random.IntN(10_000))+`"`))
		}
		p.Cursor, p.Count, p.Position = w.revision, uint64(len(names)), position(names)
		b.Pieces = append(b.Pieces, sink.Piece{Stream: i, Piece: p, Before: before, After: before.After(p)})
	}
	return b
}

// TestKills kills the process that writes, and Kafka before or after it, at any moment. Each change is there once, and
// what the next process finds is what the last one has committed. Kafka 4.3 completes a transaction without its markers
// when it is killed in front of them (KAFKA-20734): -sinks.kills 100 meets that.
func TestKills(t *testing.T) {
	t.Parallel() // it mostly waits
	server := kafkatest.Start(t, nil)
	address := "kafka://" + server.Addr() + "/kills.{resource}"
	log := filepath.Join(t.TempDir(), "log")
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-sinks.seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	process := startWriter(t, random.Uint64(), address, log)
	seen := 0
	for range *killsFlag {
		waitOpened(t, process, log, seen)
		moment(random)
		when := random.IntN(4)
		if when == 0 { // the writer goes on
			server.Kill()
			server.Restart()
			moment(random)
		}
		if when == 1 {
			server.Kill()
		}
		process.Kill()
		seen = countOpened(t, log)
		process = startWriter(t, random.Uint64(), address, log)
		if when == 2 {
			moment(random)
			server.Kill()
		}
		if when == 1 || when == 2 {
			server.Restart()
		}
	}
	process.Kill()
	w := &writer{sink: newSink(t, address)}
	if err := w.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range sinktest.Streams() {
		if names := receivedOnce(t, server, "kills."+s.ID.Resource); !maps.Equal(names, w.names[i]) {
			t.Errorf("%s: consumers have %d objects, the index has %d", s.ID.Resource, len(names), len(w.names[i]))
		}
	}
}

// moment lets a part of a transaction pass: the kill is to meet any.
func moment(random *rand.Rand) { time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) }

func startWriter(t *testing.T, seed uint64, address, log string) *child.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", writerVariable, seed, address))
	p, err := child.Start(cmd, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// waitOpened waits until the sink was opened more often than was seen.
func waitOpened(t *testing.T, p *child.Process, log string, seen int) {
	t.Helper()
	for countOpened(t, log) <= seen {
		select {
		case <-p.Done():
			text, err := os.ReadFile(log)
			t.Fatalf("the writer has ended: %s, %v", text, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func countOpened(t *testing.T, log string) int {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), opened)
}

// receivedOnce returns the objects that a consumer of a topic has at the end. The changes of an object are ADDED and
// DELETED in turn: none is there twice, and none is missing.
func receivedOnce(t *testing.T, server *kafkatest.Server, topic string) map[string]bool {
	t.Helper()
	messages, err := server.Consume(topic).Messages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, text := range messages {
		var change struct{ Type, ID string }
		if err := json.Unmarshal(text, &change); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		uid, _, _ := strings.Cut(change.ID, "/")
		name := strings.TrimPrefix(uid, "uid-")
		if added := change.Type == "ADDED"; added == names[name] {
			t.Errorf("%s: %s of %s is there twice, or the change before it is missing", topic, change.ID, change.Type)
		} else if added {
			names[name] = true
		} else {
			delete(names, name)
		}
	}
	return names
}
