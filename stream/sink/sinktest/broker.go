package sinktest

import (
	cryptorand "crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Open opens a sink with the streams of [Streams], as soon as it is available.
func Open(t testing.TB, s sink.Sink) []sink.Stored {
	t.Helper()
	stored, err := TryOpen(t, s, Streams())
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// TryOpen opens a sink, and waits while it is unavailable: its broker still starts, or a topic that the sink has just
// made has no leader yet.
func TryOpen(t testing.TB, s sink.Sink, streams []sink.Stream) (stored []sink.Stored, err error) {
	t.Helper()
	await.State(t, "the sink is available", func() (bool, string) {
		stored, err = s.Open(t.Context(), streams)
		return !errors.As(err, new(*sink.Unavailable)), fmt.Sprint(err)
	})
	return stored, err
}

// Write writes a batch, which must succeed.
func Write(t testing.TB, s sink.Sink, b sink.Batch) {
	t.Helper()
	if err := s.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// WriteSlowly writes a batch while the server receives so many bytes per second. It must succeed, and take longer than
// the time of the sink that is tested.
func WriteSlowly(t testing.TB, s sink.Sink, cutter *Cutter, rate int, b sink.Batch, longer time.Duration) {
	t.Helper()
	cutter.Slow(rate)
	defer cutter.Slow(0)
	began := time.Now()
	Write(t, s, b)
	if took := time.Since(began); took < longer {
		t.Errorf("it took only %v", took)
	}
}

// Batch returns a batch with one piece of the first stream.
func Batch(count uint64, at keepwatch.Revision, messages ...stream.Message) sink.Batch {
	p := stream.Piece{Messages: messages, Cursor: at, Count: count, Position: fmt.Appendf(nil,
		`{"cursor":%d,"told":%d,"count":%d,"serial":0}`, at, at, count)}
	before := sink.Progress{}
	return sink.Batch{Time: time.Now().UTC().Truncate(time.Millisecond), Pieces: []sink.Piece{{Piece: p, Before: before,
		After: before.After(p)}}}
}

// Event returns the event of an object in the namespace ns, with any body.
func Event(kind keepwatch.ChangeType, name string, at keepwatch.Revision, json string) stream.Event {
	o := &thing{name, at, json}
	change := keepwatch.Change{Type: kind, Revision: at, Object: o}
	return stream.Event{Type: kind, Revision: at, ID: change.ID(), Object: o}
}

// Large returns a batch with one piece of the first stream: so many objects of so many bytes, which no compression
// makes smaller.
func Large(objects, bytes int) sink.Batch {
	var messages []stream.Message
	for i := range objects {
		messages = append(messages, Event(keepwatch.Added, fmt.Sprint("o-", i), keepwatch.Revision(1+i),
			Incompressible(bytes)))
	}
	return Batch(uint64(objects), keepwatch.Revision(objects), messages...)
}

// Incompressible returns a JSON object of about so many bytes, which no compression makes much smaller.
func Incompressible(bytes int) string {
	text := make([]byte, bytes*3/4)
	_, _ = cryptorand.Read(text) // it never fails
	return `{"text":"` + base64.StdEncoding.EncodeToString(text) + `"}`
}

type thing struct {
	name     string
	revision keepwatch.Revision
	json     string
}

func (o *thing) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "ns", Name: o.name} }
func (o *thing) UID() keepwatch.UID           { return keepwatch.UID("uid-" + o.name) }
func (o *thing) Revision() keepwatch.Revision { return o.revision }
func (o *thing) JSON() []byte                 { return []byte(o.json) }
func (o *thing) Metadata() []byte             { return []byte(`{}`) }

// RunBroker is [Run] with a broker that restarts, and whose connections through cutter stall and break, also within a
// batch. The seed 0 draws one.
func RunBroker(t *testing.T, c Config, cutter *Cutter, restart func()) {
	t.Helper()
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	random, count := rand.New(rand.NewPCG(c.Seed, 9)), map[string]int{}
	c.Patience = await.Deadline
	c.Disturb = func() {
		switch random.IntN(5) {
		case 0:
			count["killed"]++
			restart()
		case 1:
			count["cut"]++
			cutter.Cut()
		case 2:
			count["stalled"]++
			cutter.Stall()
			time.AfterFunc(time.Duration(random.IntN(1000))*time.Millisecond, cutter.Resume)
		default:
			count["cut within a batch"]++
			cutter.CutWithin(6000, random)
		}
	}
	report, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("seed %d: %d cuts, %d gaps, %d commits failed, %d rewinds; %v", c.Seed, report.Cuts, report.Gaps, report.Failed,
		report.Epochs, count)
	if !c.CurrentOnly && report.Cuts < c.Steps/200+1 {
		t.Error("too little has happened")
	}
}
