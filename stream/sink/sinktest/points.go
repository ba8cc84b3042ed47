package sinktest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestPointAt compares the points of random times with those of a look at each state, in tables that two streams of one
// resource write by a clock that stands still, jumps, and goes back, with lists of what was there before. The sink is
// new. It may delete what has ended.
func TestPointAt(t *testing.T, s sink.Sink, seed uint64, snapshot func(read func(sink.Snapshot) error)) {
	t.Helper()
	w := newClockWriter(t, s, seed)
	for range 15 {
		for range 20 {
			w.step()
		}
		w.compare(snapshot)
	}
}

// FilledSink is a sink that fills the peaks of an earlier version.
type FilledSink interface {
	sink.Sink
	// Filling reports whether they are not complete.
	Filling() bool
}

// TestFillPeaks does as TestPointAt, in tables that forget makes those of a version without peaks, several times. The
// sink is closed and opened again while it fills them. check is called after some batches.
func TestFillPeaks(t *testing.T, s FilledSink, seed uint64, snapshot func(read func(sink.Snapshot) error),
	forget, check func()) {
	t.Helper()
	w := newClockWriter(t, s, seed)
	closed := func() {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for range 100 {
			w.step()
		}
		closed()
		forget()
		w.open()
		steps := 0
		for ; s.Filling(); steps++ {
			if steps == 5_000 {
				t.Fatalf("seed %d: it is not complete after %d batches", seed, steps)
			}
			w.step()
			if steps%4 == 0 {
				check()
				w.compare(snapshot)
			}
		}
		if steps < 10 {
			t.Errorf("seed %d: it is complete after %d batches", seed, steps)
		}
	}
}

// compare compares the points of random times with their definition.
func (w *clockWriter) compare(snapshot func(read func(sink.Snapshot) error)) {
	w.t.Helper()
	snapshot(func(tables sink.Snapshot) error {
		var states []sink.State
		if err := tables.States(w.t.Context(), sink.StateQuery{Resource: "pods"}, func(s sink.State) error {
			states = append(states, s)
			return nil
		}); err != nil {
			return err
		}
		for range 40 {
			at := w.times[w.random.IntN(len(w.times))].Add(time.Duration(w.random.IntN(3)-1) * time.Millisecond)
			want := pointAt(states, at)
			if got, err := tables.PointAt(w.t.Context(), []string{"pods", "others"}, at); err != nil || got != want {
				w.t.Fatalf("seed %d: at %v of %d states: %v, %v, want %v", w.seed, at, len(states), got, err, want)
			}
		}
		return nil
	})
}

// pointAt is the definition of a point of a time.
func pointAt(states []sink.State, at time.Time) (greatest sink.Point) {
	for _, s := range states {
		if !s.SeenFrom.After(at) && greatest.Before(s.From) {
			greatest = s.From
		}
		if s.To != nil && !s.SeenTo.After(at) && greatest.Before(*s.To) {
			greatest = *s.To
		}
	}
	return greatest
}

// newClockWriter returns one that has opened the sink, for the rest of the test.
func newClockWriter(t *testing.T, s sink.Sink, seed uint64) *clockWriter {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	w := &clockWriter{t: t, seed: seed, sink: s, random: r,
		now: time.Now().UTC().Truncate(time.Millisecond).Add(-72 * time.Hour)}
	for _, namespace := range []string{"first", "second"} {
		w.streams = append(w.streams, &clockStream{objects: map[string]keepwatch.Revision{}, Stream: sink.Stream{
			ID: stream.Identity{Resource: "pods", Namespace: namespace, Cluster: stream.Cluster{UID: "test"}}}})
	}
	w.open()
	t.Cleanup(func() { s.Close() })
	return w
}

// clockWriter writes random batches.
type clockWriter struct {
	seed     uint64
	t        *testing.T
	sink     sink.Sink
	random   *rand.Rand
	streams  []*clockStream
	now      time.Time
	times    []time.Time
	revision keepwatch.Revision
}

type clockStream struct {
	sink.Stream
	progress sink.Progress
	objects  map[string]keepwatch.Revision
}

func (w *clockWriter) open() {
	w.t.Helper()
	var streams []sink.Stream
	for _, s := range w.streams {
		streams = append(streams, s.Stream)
	}
	if _, err := w.sink.Open(w.t.Context(), streams); err != nil {
		w.t.Fatal(err)
	}
}

// step writes a batch of one stream, or opens the sink again.
func (w *clockWriter) step() {
	w.t.Helper()
	r := w.random
	switch r.IntN(30) {
	case 0:
		if err := w.sink.Close(); err != nil {
			w.t.Fatal(err)
		}
		w.open()
	case 1:
		w.now = w.now.Add(time.Duration(r.IntN(7200)) * time.Second)
	case 2:
		w.now = w.now.Add(-time.Duration(r.IntN(600)) * time.Second)
	case 3, 4, 5, 6:
	default:
		w.now = w.now.Add(time.Duration(r.IntN(30_000)) * time.Millisecond)
	}
	w.times = append(w.times, w.now)
	i := r.IntN(len(w.streams))
	s := w.streams[i]
	var messages []stream.Message
	if s.progress.Since == 0 || r.IntN(8) == 0 {
		messages = w.list(s)
	} else {
		for range 1 + r.IntN(3) {
			messages = append(messages, w.change(i, s))
		}
	}
	p := stream.Piece{Messages: messages, Cursor: w.revision, Count: uint64(len(s.objects)), Position: []byte(`{}`)}
	piece := sink.Piece{Stream: i, Piece: p, Before: s.progress, After: s.progress.After(p)}
	s.progress = piece.After
	if err := w.sink.Write(w.t.Context(), sink.Batch{Time: w.now, Pieces: []sink.Piece{piece}}); err != nil {
		w.t.Fatal(err)
	}
}

// change returns a change at the next revision.
func (w *clockWriter) change(i int, s *clockStream) stream.Event {
	w.revision++
	name := fmt.Sprintf("%d-%d", i, w.random.IntN(5))
	_, exists := s.objects[name]
	kind := keepwatch.Added
	switch {
	case exists && w.random.IntN(3) == 0:
		kind = keepwatch.Deleted
		delete(s.objects, name)
	case exists:
		kind = keepwatch.Modified
	}
	if kind != keepwatch.Deleted {
		s.objects[name] = w.revision
	}
	return pastEvent(kind, name, w.revision)
}

// list returns a list after a gap, of which some objects have other contents at their revisions.
func (w *clockWriter) list(s *clockStream) (all []stream.Message) {
	from := s.progress.Cursor
	w.revision += keepwatch.Revision(1 + w.random.IntN(10))
	if s.progress.Since > 0 {
		all = append(all, stream.Gap{From: from, To: w.revision, Reason: keepwatch.GapExpired})
	}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		at := s.objects[name]
		if w.random.IntN(3) == 0 {
			e := pastEvent(keepwatch.Modified, name, at)
			e.Object = &thing{name, at, fmt.Sprintf(`{"again":%d}`, w.random.IntN(1000))}
			all = append(all, e)
		}
	}
	return append(all, stream.Synced{Revision: w.revision, Count: uint64(len(s.objects))})
}
