package history_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// grown is a random history of pods with gaps, of more revisions than are read at a time.
func grown(r *rand.Rand) *tables {
	t := &tables{status: []sink.Status{followed("pods", 10, 0)}}
	current, revision := map[string]int{}, 5
	for revision < 3000 {
		name := fmt.Sprint("p", r.IntN(40))
		s := state(name, revision, 0, revision/60, 0)
		s.ID = int64(len(t.states) + 1)
		i, exists := current[name]
		if exists {
			end := s.From
			t.states[i].To, t.states[i].SeenTo, t.states[i].Deleted = &end, s.SeenFrom, r.IntN(5) == 0
			delete(current, name)
		}
		if !exists || !t.states[i].Deleted {
			current[name] = len(t.states)
			t.states = append(t.states, s)
		}
		revision += 1 + r.IntN(3)
		if r.IntN(150) == 0 && revision > 20 {
			reason := []keepwatch.GapReason{keepwatch.GapExpired, sink.GapThinned}[r.IntN(2)]
			from, to := revision, revision+r.IntN(30)
			t.gaps = append(t.gaps, sink.StoredGap{Resource: "pods", From: keepwatch.Revision(from),
				To: keepwatch.Revision(to), Reason: reason, Seen: minute(to / 60), Began: minute(from / 60),
				Ended: minute(to / 60)})
			if reason != sink.GapThinned || r.IntN(2) == 0 {
				revision = to + 1
			}
		}
	}
	t.status[0].Progress.Cursor = keepwatch.Revision(revision)
	return t
}

// collected returns what Events must deliver: all states at once, sorted.
func (t *tables) collected(name string) (all []string) {
	type event struct {
		at    int
		order int
		text  string
	}
	gapOf := func(at sink.Point) *sink.StoredGap {
		for _, g := range slices.Backward(t.gaps) {
			if g.From < at.Revision && at.Revision <= g.To {
				return &g
			}
		}
		return nil
	}
	var events []event
	last, changed := map[keepwatch.Key]sink.State{}, map[sink.StoredGap]bool{}
	for _, s := range t.states {
		if name != "" && s.Key.Name != name {
			continue
		}
		kind, gap := "ADDED", gapOf(s.From)
		if p, ok := last[s.Key]; ok && !p.Deleted {
			kind = "MODIFIED"
		} else if s.From.Revision <= 10 {
			kind = "EXISTED"
		}
		if gap != nil {
			changed[*gap] = true
			kind += " in a gap"
		}
		last[s.Key] = s
		events = append(events, event{int(s.From.Revision), 0, kind + " " + s.Key.Name})
		if s.Deleted {
			text := "DELETED "
			if g := gapOf(*s.To); g != nil && g.Reason != sink.GapThinned {
				text = "DELETED in a gap "
			}
			events = append(events, event{int(s.To.Revision), 0, text + s.Key.Name})
		}
	}
	if len(events) == 0 {
		return nil
	}
	first := slices.MinFunc(events, func(a, b event) int { return a.at - b.at }).at
	for _, g := range t.gaps {
		if first < int(g.To) && (g.Reason != sink.GapThinned || changed[g]) {
			events = append(events, event{int(g.From), 1, "GAP " + string(g.Reason)})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(a.at-b.at, a.order-b.order) })
	for _, e := range events {
		all = append(all, fmt.Sprintf("%d %s", e.at, e.text))
	}
	return all
}

func texts(events []history.Event) (all []string) {
	for _, e := range events {
		text := fmt.Sprintf("%d %s", e.Point.Revision, e.Type)
		switch {
		case e.Type == history.Missing:
			text += " " + string(e.Gap.Reason)
		case e.Gap != nil:
			text += " in a gap " + e.State.Key.Name
		default:
			text += " " + e.State.Key.Name
		}
		all = append(all, text)
	}
	return all
}

// Events that are read a few at a time are those of all states at once, of all objects and of one, and between two
// points those between them.
func TestEventsOfALongHistory(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	database := grown(r)
	view(t, database, func(v *history.View) {
		for _, name := range []string{"", "p0", "p7", "none"} {
			got, want := texts(eventsOf(t, v, name, sink.Point{}, sink.Point{})), database.collected(name)
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("%q: %d events, want %d; the %dth: %q, want %q", name, len(got), len(want), i,
						got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
				}
			}
		}
		all := eventsOf(t, v, "", sink.Point{}, sink.Point{})
		for range 20 {
			from := r.IntN(3000) + 1
			after, upTo := at(from), at(from+r.IntN(1500))
			var want []string
			for i, e := range all {
				within := after.Before(e.Point) && !upTo.Before(e.Point)
				if e.Type == history.Missing {
					end := at(int(e.Gap.To))
					within = after.Before(end) && e.Point.Before(upTo)
				}
				if within {
					want = append(want, texts(all[i : i+1])[0])
				}
			}
			if got := texts(eventsOf(t, v, "", after, upTo)); !slices.Equal(got, want) {
				t.Fatalf("after %d up to %d: %d events, want %d", after.Revision, upTo.Revision, len(got), len(want))
			}
		}
		for range v.Events(t.Context(), history.Objects{Resource: "pods"}, sink.Point{}, sink.Point{}) {
			break // a reader that wants no more gets no more
		}
	})
}

// However much is stored at a few points, or at one, a bounded part of the objects is read at a time.
func TestEventsOfLargePoints(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	const objects, size, held = 300, 1000, 20_000
	database := &asked{tables: &tables{status: []sink.Status{followed("pods", 10, 5000)}}}
	add := func(name string, from, to int) {
		s := state(name, from, to, from/60, to/60)
		s.ID = int64(len(database.states) + 1)
		s.Object = fmt.Appendf(nil, `{"metadata":{"name":%q},"x":%q}`, name, strings.Repeat("x", size))
		database.states = append(database.states, s)
	}
	for i := range objects {
		name := fmt.Sprint("p", i)
		switch from := 20 + 2*i + r.IntN(2); r.IntN(4) {
		case 0: // it is changed at the revision at which most are deleted
			add(name, from, 2000)
			add(name, 2000, 0)
		case 1: // another object has the name then
			add(name, from, -2000)
			add(name, 2000, 0)
			database.states[len(database.states)-1].UID = "other"
		default:
			add(name, from, -2000)
		}
	}
	view(t, database, func(v *history.View) {
		sorted := func() []string {
			all := texts(eventsOf(t, v, "", sink.Point{}, sink.Point{}))
			slices.Sort(all) // objects are in no order at one revision
			return all
		}
		want := sorted()
		history.SetPartBytes(v, held)
		database.most, database.named = 0, 0
		got := sorted()
		if !slices.Equal(got, want) || len(want) < 2*objects {
			t.Errorf("%d events, want %d", len(got), len(want))
		}
		if database.most > held+2*size || database.named == 0 || database.named > objects/3 {
			t.Errorf("%d bytes of objects at a time, %d queries for %d objects", database.most, database.named, objects)
		}
		last := sink.Point{}
		for _, e := range eventsOf(t, v, "", sink.Point{}, sink.Point{}) {
			if e.Point.Before(last) || e.State == nil || len(e.State.Object) < size || e.Type == history.Modified &&
				e.Prior == nil {
				t.Fatalf("after %v: %+v", last, e)
			}
			last = e.Point
		}
	})
}

// Merged sequences are in the order of all of them, and the first error is the last element.
func TestMerge(t *testing.T) {
	numbers := func(err error, all ...int) func(func(history.Event, error) bool) {
		return func(yield func(history.Event, error) bool) {
			for _, n := range all {
				if !yield(history.Event{Point: at(n)}, nil) {
					return
				}
			}
			if err != nil {
				yield(history.Event{}, err)
			}
		}
	}
	less := func(a, b history.Event) bool { return a.Point.Before(b.Point) }
	failed := fmt.Errorf("failed")
	for _, row := range []struct {
		err  error
		want string
	}{{nil, "[1 2 3 3 5 8 9]"}, {failed, "[1 2] failed"}} {
		var got []int
		var end string
		for e, err := range history.Merge(less, numbers(nil, 1, 3, 9), numbers(nil), numbers(row.err, 2),
			numbers(nil, 3, 5, 8)) {
			if err != nil {
				end = " " + err.Error()
				continue
			}
			got = append(got, int(e.Point.Revision))
		}
		if text := fmt.Sprint(got) + end; text != row.want {
			t.Errorf("%s, want %s", text, row.want)
		}
	}
}
