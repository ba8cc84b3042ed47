package sinktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// pastWriter writes batches of pieces of the stream of pods, the first one.
type pastWriter struct {
	sink.Sink
	progress sink.Progress
}

// openPast opens a sink for the duration of the test.
func openPast(t *testing.T, s sink.Sink) *pastWriter {
	t.Helper()
	if _, err := s.Open(t.Context(), Streams()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &pastWriter{Sink: s}
}

// write commits a piece.
func (w *pastWriter) write(t *testing.T, count uint64, cursor keepwatch.Revision, now time.Time,
	messages ...stream.Message) {
	t.Helper()
	p := stream.Piece{Messages: messages, Cursor: cursor, Count: count, Position: []byte(`{}`)}
	piece := sink.Piece{Piece: p, Before: w.progress, After: w.progress.After(p)}
	w.progress = piece.After
	if err := w.Write(t.Context(), sink.Batch{Time: now, Pieces: []sink.Piece{piece}}); err != nil {
		t.Fatal(err)
	}
}

func pastEvent(kind keepwatch.ChangeType, name string, at keepwatch.Revision) stream.Event {
	return stream.Event{Type: kind, Revision: at, Object: &thing{name, at, fmt.Sprintf(`{"revision":%d}`, at)}}
}

// statesOf returns the selected states of pods in short, "a 3-5" for example, in the order of their ids.
func statesOf(t *testing.T, tables sink.Snapshot, q sink.StateQuery) string {
	t.Helper()
	q.Resource = "pods"
	var all []sink.State
	err := tables.States(t.Context(), q, func(s sink.State) error {
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b sink.State) int { return int(a.ID - b.ID) })
	var short []string
	for _, s := range all {
		text := fmt.Sprintf("%s %d-", s.Key.Name, s.From.Revision)
		if s.To != nil {
			text += s.To.Revision.String()
		}
		if s.Deleted {
			text += " deleted"
		}
		short = append(short, text)
	}
	return strings.Join(short, ", ")
}

// statusOfPods returns the status of the stream of pods.
func statusOfPods(t *testing.T, tables sink.Snapshot) sink.Status {
	t.Helper()
	status, err := tables.Status(t.Context())
	i := slices.IndexFunc(status, func(s sink.Status) bool { return s.ID.Resource == "pods" })
	if err != nil || i < 0 {
		t.Fatalf("status %+v, %v", status, err)
	}
	return status[i]
}

// TestHistory checks what a database shows of the past, while the sink is open for writing. The sink is new.
func TestHistory(t *testing.T, s sink.Sink, snapshot func(read func(sink.Snapshot) error)) {
	t.Helper()
	streams := Streams()
	streams[0].Type = &sink.Type{Version: "v1", Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true}
	open := func() {
		t.Helper()
		if _, err := s.Open(t.Context(), streams); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the type is stored once
		open()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	open()
	t.Cleanup(func() { s.Close() })
	began := time.Now().UTC().Truncate(time.Millisecond)
	at := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
	w := &pastWriter{Sink: s}
	w.write(t, 2, 6, at(0), pastEvent(keepwatch.Added, "a", 3), pastEvent(keepwatch.Added, "b", 5),
		stream.Synced{Revision: 6, Count: 2})
	w.write(t, 1, 8, at(1), pastEvent(keepwatch.Modified, "a", 7), pastEvent(keepwatch.Deleted, "b", 8))
	w.write(t, 2, 20, at(2), stream.Gap{From: 8, To: 20, Reason: keepwatch.GapExpired}, pastEvent(keepwatch.Added, "c",
		15),
		stream.Synced{Revision: 20, Count: 2})
	snapshot(func(tables sink.Snapshot) error {
		if of := statusOfPods(t, tables); of.First != (sink.Point{Revision: 6}) || !of.FirstSeen.Equal(at(0)) {
			t.Errorf("status %+v", of)
		}
		gaps, err := tables.Gaps(t.Context())
		if want := (sink.StoredGap{Resource: "pods", From: 8, To: 20, Reason: keepwatch.GapExpired, Seen: at(2), Began: at(1),
			Ended: at(2)}); err != nil ||
			len(gaps) != 1 || gaps[0] != want {
			t.Errorf("gaps %+v, %v", gaps, err)
		}
		types, err := tables.Types(t.Context())
		if err != nil || len(types) != 1 || types[0].Resource != "pods" || types[0].Type.Kind != "Pod" {
			t.Errorf("types %+v, %v", types, err)
		}
		testStates(t, tables, at(2))
		if o, err := tables.Example(t.Context(), "pods"); err != nil || o == nil || o.Key.Name != "c" || len(o.Object) == 0 {
			t.Errorf("an example: %+v, %v", o, err)
		}
		if o, err := tables.Example(t.Context(), "nothing"); err != nil || o != nil {
			t.Errorf("an example of nothing: %+v, %v", o, err)
		}
		for minutes, want := range []keepwatch.Revision{5, 8, 15} {
			if p, err := tables.PointAt(t.Context(), []string{"pods", "others"}, at(minutes)); err != nil || p.Revision != want {
				t.Errorf("after %d minutes: %v, %v, want %d", minutes, p, err, want)
			}
		}
		if p, err := tables.PointAt(t.Context(), []string{"pods"}, at(-1)); err != nil || p != (sink.Point{}) {
			t.Errorf("before the beginning: %v, %v", p, err)
		}
		if seen, err := tables.SeenAt(t.Context(), []string{"pods"}, sink.Point{Revision: 9}); err != nil ||
			!seen.Equal(at(1)) {
			t.Errorf("the time of revision 9: %v, %v", seen, err)
		}
		for limit, want := range map[int]string{2: "[{0 7} {0 8}]", 100: "[{0 7} {0 8} {0 15}]"} {
			points, err := tables.PointsAfter(t.Context(), "pods", "ns", sink.Point{Revision: 5}, limit)
			if err != nil || fmt.Sprint(points) != want {
				t.Errorf("points: %v, %v, want %s", points, err, want)
			}
		}
		for _, without := range []bool{false, true} {
			q := sink.StateQuery{Resource: "pods", WithoutObjects: without}
			if err := tables.States(t.Context(), q, func(s sink.State) error {
				if (len(s.Object) == 0) != without {
					t.Errorf("without objects %t: %s has %q", without, s.Key, s.Object)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		failed := errors.New("enough")
		if err := tables.States(t.Context(), sink.StateQuery{Resource: "pods"}, func(sink.State) error {
			return failed
		}); err != failed {
			t.Errorf("an error of the reader: %v", err)
		}
		return nil
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The clock was set back since the last batch, whose states have the first type.
	streams[0].Type, streams[0].Seen = &sink.Type{Version: "v2", Kind: "Pod", Namespaced: true}, at(1)
	open()
	snapshot(func(tables sink.Snapshot) error {
		types, err := tables.Types(t.Context())
		if err != nil || len(types) != 2 || types[1].Type.Version != "v2" || !types[1].Seen.Equal(at(2)) {
			t.Errorf("after another type: %+v, %v, want one from %v on", types, err, at(2))
		}
		return nil
	})
}

func testStates(t *testing.T, tables sink.Snapshot, gap time.Time) {
	t.Helper()
	point := func(at keepwatch.Revision) *sink.Point { return &sink.Point{Revision: at} }
	for _, row := range []struct {
		name, want string
		q          sink.StateQuery
	}{
		{"all", "a 3-7, b 5-8 deleted, a 7-, c 15-", sink.StateQuery{}},
		{"one", "a 3-7, a 7-", sink.StateQuery{Namespace: "ns", Name: "a"}},
		{"some", "a 3-7, a 7-, c 15-", sink.StateQuery{Namespace: "ns", Names: []string{"c", "none", "a"}}},
		{"some of another namespace", "", sink.StateQuery{Names: []string{"a"}}},
		{"changes of some", "a 3-7, a 7-", sink.StateQuery{Namespace: "ns", Names: []string{"a", "b"}, After: point(6),
			UpTo: point(7)}},
		{"another namespace", "", sink.StateQuery{Namespace: "n"}},
		{"before the first state", "", sink.StateQuery{At: point(2)}},
		{"the first state", "a 3-7, b 5-8 deleted", sink.StateQuery{At: point(6)}},
		{"before the deletion", "b 5-8 deleted, a 7-", sink.StateQuery{At: point(7)}},
		{"after it", "a 7-", sink.StateQuery{At: point(8)}},
		{"the newest", "a 7-, c 15-", sink.StateQuery{At: point(20)}},
		{"what is new two revisions later", "a 7-", sink.StateQuery{At: point(8), NotAt: point(6)}},
		{"what was there two revisions before", "a 3-7, b 5-8 deleted", sink.StateQuery{At: point(6), NotAt: point(8)}},
		{"what is new of a namespace", "c 15-", sink.StateQuery{At: point(20), NotAt: point(7), Namespace: "ns"}},
		{"what was there of a namespace", "b 5-8 deleted", sink.StateQuery{At: point(7), NotAt: point(20), Namespace: "ns"}},
		{"what is new of one", "", sink.StateQuery{At: point(20), NotAt: point(7), Namespace: "ns", Name: "a"}},
		{"what differs at one point", "", sink.StateQuery{At: point(7), NotAt: point(7)}},
		{"changes", "b 5-8 deleted, c 15-", sink.StateQuery{After: point(7), UpTo: point(20)}},
		{"changes since a time", "c 15-", sink.StateQuery{After: point(7), UpTo: point(20), Since: gap}},
	} {
		if got := statesOf(t, tables, row.q); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// TestGapTimes checks the times between which the state is not known: from the last transaction before a gap to the end
// of its list, which may be started over. The sink is new.
func TestGapTimes(t *testing.T, s sink.Sink, snapshot func(read func(sink.Snapshot) error)) {
	t.Helper()
	w := openPast(t, s)
	begin := time.Now().UTC().Truncate(time.Millisecond)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	wants := func(want string) {
		t.Helper()
		snapshot(func(tables sink.Snapshot) error {
			gaps, err := tables.Gaps(t.Context())
			var all []string
			for _, g := range gaps {
				text := fmt.Sprintf("%d-%d: %v", g.From, g.To, g.Began.Sub(begin))
				if !g.Ended.IsZero() {
					text += fmt.Sprintf("-%v", g.Ended.Sub(begin))
				}
				all = append(all, text)
			}
			if got := strings.Join(all, ", "); err != nil || got != want {
				t.Errorf("gaps %q, %v, want %q", got, err, want)
			}
			return nil
		})
	}
	w.write(t, 1, 2, at(0), pastEvent(keepwatch.Added, "a", 1), stream.Synced{Revision: 2, Count: 1})
	w.write(t, 1, 9, at(1)) // a bookmark
	w.write(t, 1, 9, at(30), stream.Gap{From: 9, To: 20, Reason: keepwatch.GapDowntime})
	wants("9-20: 1m0s")
	w.write(t, 2, 9, at(31), pastEvent(keepwatch.Added, "b", 15))
	w.write(t, 2, 9, at(32), stream.Gap{From: 9, To: 25, Reason: keepwatch.GapDowntime})
	wants("9-20: 1m0s, 9-25: 31m0s")
	w.write(t, 2, 25, at(33), stream.Synced{Revision: 25, Count: 2})
	w.write(t, 2, 30, at(34))
	wants("9-20: 1m0s-33m0s, 9-25: 31m0s-33m0s")
	w.write(t, 2, 40, at(60), stream.Gap{From: 30, To: 40, Reason: keepwatch.GapExpired}, stream.Synced{Revision: 40,
		Count: 2})
	wants("9-20: 1m0s-33m0s, 9-25: 31m0s-33m0s, 30-40: 34m0s-1h0m0s")
}

// TestHistoryOfAnIncompleteList checks that the history begins at the first complete list, also if states that had
// ended before it were deleted. The retention of the sink is an hour.
func TestHistoryOfAnIncompleteList(t *testing.T, s sink.Sink, snapshot func(read func(sink.Snapshot) error)) {
	t.Helper()
	w := openPast(t, s)
	now := time.Now().UTC().Truncate(time.Millisecond)
	first := func() (of sink.Point) {
		snapshot(func(tables sink.Snapshot) error {
			of = statusOfPods(t, tables).First
			return nil
		})
		return of
	}
	w.write(t, 1, 0, now.Add(-3*time.Hour), pastEvent(keepwatch.Added, "a", 1))
	w.write(t, 1, 0, now.Add(-2*time.Hour), pastEvent(keepwatch.Modified, "a", 5))
	w.write(t, 1, 0, now)
	if of := first(); of != (sink.Point{}) {
		t.Errorf("without a complete list the history begins at %v", of)
	}
	w.write(t, 1, 9, now.Add(time.Second), stream.Synced{Revision: 9, Count: 1})
	if of := first(); of != (sink.Point{Revision: 9}) {
		t.Errorf("the history begins at %v, want 9", of)
	}
}

// TestHistoryBeginsLater checks that the beginning of the history moves when states are deleted that ended more than
// an hour ago, which is the retention of the sink.
func TestHistoryBeginsLater(t *testing.T, s sink.Sink, snapshot func(read func(sink.Snapshot) error)) {
	t.Helper()
	w := openPast(t, s)
	now := time.Now().UTC().Truncate(time.Millisecond)
	w.write(t, 1, 2, now.Add(-3*time.Hour), pastEvent(keepwatch.Added, "a", 1), stream.Synced{Revision: 2, Count: 1})
	w.write(t, 1, 5, now.Add(-2*time.Hour), pastEvent(keepwatch.Modified, "a", 5))
	w.write(t, 1, 7, now)
	snapshot(func(tables sink.Snapshot) error {
		if of := statusOfPods(t, tables); of.First != (sink.Point{Revision: 5}) ||
			!of.FirstSeen.Equal(now.Add(-2*time.Hour)) {
			t.Errorf("status %+v", of)
		}
		if got := statesOf(t, tables, sink.StateQuery{}); got != "a 5-" {
			t.Errorf("states %s", got)
		}
		return nil
	})
}

// TestRetentionOfTypes checks that each type has its own retention: that of pods is an hour, that of config maps is
// for ever, and all else is three hours.
func TestRetentionOfTypes(t *testing.T, s sink.Sink, snapshot func(read func(sink.Snapshot) error)) {
	t.Helper()
	Open(t, s)
	t.Cleanup(func() { s.Close() })
	now := time.Now().UTC().Truncate(time.Millisecond)
	progress := make([]sink.Progress, len(Streams()))
	write := func(at time.Time, cursor keepwatch.Revision, message func(stream int) stream.Message) {
		batch := sink.Batch{Time: at}
		for i := range progress {
			p := stream.Piece{Messages: []stream.Message{message(i)}, Cursor: cursor, Count: 1, Position: []byte(`{}`)}
			piece := sink.Piece{Stream: i, Piece: p, Before: progress[i], After: progress[i].After(p)}
			progress[i] = piece.After
			batch.Pieces = append(batch.Pieces, piece)
		}
		Write(t, s, batch)
	}
	write(now.Add(-5*time.Hour), 0, func(int) stream.Message { return pastEvent(keepwatch.Added, "a", 1) })
	write(now.Add(-5*time.Hour), 2, func(int) stream.Message { return stream.Synced{Revision: 2, Count: 1} })
	for i, hours := range []int{4, 2, 0} {
		at := keepwatch.Revision(10 * (i + 1))
		write(now.Add(-time.Duration(hours)*time.Hour), at, func(int) stream.Message {
			return pastEvent(keepwatch.Modified, "a", at)
		})
	}
	snapshot(func(tables sink.Snapshot) error {
		status, err := tables.Status(t.Context())
		if err != nil {
			return err
		}
		for _, of := range status {
			var ends []keepwatch.Revision
			if err := tables.States(t.Context(), sink.StateQuery{Resource: of.ID.Resource}, func(s sink.State) error {
				if s.To != nil {
					ends = append(ends, s.To.Revision)
				}
				return nil
			}); err != nil {
				return err
			}
			slices.Sort(ends)
			want, first := []keepwatch.Revision{20, 30}, keepwatch.Revision(10)
			switch of.ID.Resource {
			case "pods":
				want, first = []keepwatch.Revision{30}, 20
			case "configmaps":
				want, first = []keepwatch.Revision{10, 20, 30}, 2
			}
			if !slices.Equal(ends, want) || of.First.Revision != first {
				t.Errorf("%s: ends %v and a history from %d on, want %v, %d", of.ID.Resource, ends, of.First.Revision, want, first)
			}
		}
		return nil
	})
}

// TestRetentionOfRewritten checks that the retention of a type deletes a state that ended more than an hour ago,
// although more states than one sweep reads ended later at earlier revisions: a list had other content of objects at
// their revisions.
func TestRetentionOfRewritten(t *testing.T, s sink.Sink, snapshot func(read func(sink.Snapshot) error)) {
	t.Helper()
	w := openPast(t, s)
	now := time.Now().UTC().Truncate(time.Millisecond)
	var added, listed []stream.Message
	for i, name := range []string{"a", "b", "c"} {
		at := keepwatch.Revision(i + 1)
		added = append(added, pastEvent(keepwatch.Added, name, at))
		listed = append(listed, stream.Event{Type: keepwatch.Modified, Revision: at, Object: &thing{name, at, `{"other":1}`}})
	}
	added = append(added, pastEvent(keepwatch.Added, "d", 4), stream.Synced{Revision: 4, Count: 4})
	w.write(t, 4, 4, now.Add(-3*time.Hour), added...)
	w.write(t, 4, 5, now.Add(-65*time.Minute), pastEvent(keepwatch.Modified, "d", 5))
	w.write(t, 4, 6, now.Add(-50*time.Minute), listed...)
	w.write(t, 4, 7, now)
	snapshot(func(tables sink.Snapshot) error {
		if got := statesOf(t, tables, sink.StateQuery{}); got != "a 1-1, b 2-2, c 3-3, d 5-, a 1-, b 2-, c 3-" {
			t.Errorf("states %s", got)
		}
		return nil
	})
}

// RetentionOfTypes are the options of [TestRetentionOfTypes] and [TestRetentionOfRewritten].
var RetentionOfTypes = map[string]time.Duration{"pods": time.Hour, "configmaps": 0}
