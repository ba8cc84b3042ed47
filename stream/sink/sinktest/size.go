package sinktest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// LargestState bounds the objects of [TestMaxSize], of which a batch has at most a dozen.
const LargestState = 9000

// SizeReport is what a sink of [TestMaxSize] has reported: its option Expired.
type SizeReport struct {
	t   *testing.T
	all sink.Expiry
}

// NewSizeReport returns an empty report.
func NewSizeReport(t *testing.T) *SizeReport { return &SizeReport{t: t} }

// Expired adds what was deleted.
func (r *SizeReport) Expired(e sink.Expiry) {
	if e.Reason != sink.ExpiredBySize || e.Excess != 0 || e.States == 0 || e.Until.Before(r.all.Until) {
		r.t.Errorf("%+v after %+v", e, r.all)
	}
	e.States += r.all.States
	r.all = e
}

// States returns how many states were deleted.
func (r *SizeReport) States() int { return r.all.States }

// TestMaxSize changes random objects of a new sink that is bounded to about 100 states, and calls check after each
// batch. The states that ended first are deleted, and each state that the history claims to have is there.
func TestMaxSize(
	t *testing.T, seed uint64, s sink.Sink, reported *SizeReport, check func(step int),
	snapshot func(read func(sink.Snapshot) error),
) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	Open(t, s)
	began := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	states, all := map[string]keepwatch.Revision{}, map[keepwatch.Revision]map[string]keepwatch.Revision{}
	revision, written := keepwatch.Revision(1), 0
	for step := range 70 {
		var messages []stream.Message
		for range 1 + random.IntN(12) {
			revision++
			name := fmt.Sprintf("o%d", random.IntN(20))
			kind := keepwatch.Modified
			switch _, exists := states[name]; {
			case !exists:
				kind = keepwatch.Added
			case random.IntN(4) == 0:
				kind = keepwatch.Deleted
			}
			text := fmt.Sprintf(`{"revision":%d,"text":%q}`, revision, strings.Repeat("x", 1+random.IntN(LargestState)))
			messages = append(messages, stream.Event{Type: kind, Revision: revision, Object: &thing{name, revision, text}})
			if states[name] = revision; kind == keepwatch.Deleted {
				delete(states, name)
			} else {
				written++
			}
			all[revision] = maps.Clone(states)
		}
		if step == 0 {
			messages = append(messages, stream.Synced{Revision: revision, Count: uint64(len(states))})
		}
		p := stream.Piece{Messages: messages, Cursor: revision, Count: uint64(len(states)), Position: []byte(`{}`)}
		piece := sink.Piece{Piece: p, Before: sink.Progress{Cursor: 1, Since: 1}, After: sink.Progress{Cursor: revision,
			Since: 2}}
		Write(t, s, sink.Batch{Time: began.Add(time.Duration(step) * time.Second), Pieces: []sink.Piece{piece}})
		check(step)
	}
	snapshot(func(tables sink.Snapshot) error {
		of := statusOfPods(t, tables)
		if of.First.Revision < 100 || revision-of.First.Revision < 5 || !of.FirstSeen.Equal(reported.all.Until) {
			t.Errorf("the history of %d revisions begins at %+v, %v; %+v was deleted", revision, of.First, of.FirstSeen,
				reported.all)
		}
		for at := of.First.Revision; at <= revision; at++ {
			found := map[string]keepwatch.Revision{}
			err := tables.States(t.Context(), sink.StateQuery{Resource: "pods", At: &sink.Point{Revision: at}},
				func(s sink.State) error {
					found[s.Key.Name] = s.From.Revision
					return nil
				})
			if err != nil || !maps.Equal(found, all[at]) {
				t.Errorf("at %d: %v, %v, want %v", at, found, err, all[at])
			}
		}
		stored := 0
		if err := tables.States(t.Context(), sink.StateQuery{Resource: "pods"}, func(s sink.State) error {
			if stored++; s.To != nil && s.SeenTo.Before(reported.all.Until) {
				t.Errorf("%+v is stored, and what ended by %v was deleted", s, reported.all.Until)
			}
			return nil
		}); err != nil {
			return err
		}
		if stored+reported.all.States != written {
			t.Errorf("%d states are stored and %d were deleted, of %d", stored, reported.all.States, written)
		}
		return nil
	})
}

// TestMaxSizeTooSmall checks that current states are never deleted, and that the excess is reported, and its end. The
// sink is new, and has a size of 200 kB; reported returns what it has reported.
func TestMaxSizeTooSmall(t *testing.T, s sink.Sink, reported func() []sink.Expiry,
	snapshot func(read func(sink.Snapshot) error)) {
	t.Helper()
	w := openPast(t, s)
	begin := time.Now().UTC().Truncate(time.Millisecond)
	minute := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }
	event := func(kind keepwatch.ChangeType, name string, at keepwatch.Revision, size int) stream.Message {
		text := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", size))
		return stream.Event{Type: kind, Revision: at, Object: &thing{name, at, text}}
	}
	w.write(t, 2, 2, minute(0), event(keepwatch.Added, "a", 1, 10), event(keepwatch.Added, "b", 2, 300_000),
		stream.Synced{Revision: 2, Count: 2})
	w.write(t, 2, 3, minute(1), event(keepwatch.Modified, "a", 3, 10))
	if all := reported(); len(all) != 2 || all[0].States != 0 || all[0].Excess < 100_000 || all[1].States != 1 ||
		all[1].Excess < 100_000 {
		t.Fatalf("%+v", all)
	}
	w.write(t, 2, 3, minute(2))
	if all := reported(); len(all) != 2 {
		t.Errorf("an equal excess is reported again: %+v", all[2:])
	}
	w.write(t, 1, 4, minute(3), event(keepwatch.Deleted, "b", 4, 300_000))
	if all := reported(); len(all) != 3 || all[2].States != 1 || all[2].Excess != 0 {
		t.Errorf("%+v", all)
	}
	snapshot(func(tables sink.Snapshot) error {
		if got := statesOf(t, tables, sink.StateQuery{}); got != "a 3-" {
			t.Errorf("the states are %q", got)
		}
		return nil
	})
}
