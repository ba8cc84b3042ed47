package difference

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

func state(revision int, color, phase string) *sink.State {
	return &sink.State{
		Resource: "pods", Key: keepwatch.Key{Namespace: "shop", Name: "web"},
		From:     sink.Point{Revision: keepwatch.Revision(revision)},
		SeenFrom: time.Date(2026, 11, 28, 10, revision, 0, 0, time.UTC),
		Object: fmt.Appendf(nil,
			`{"kind":"Pod","metadata":{"name":"web","resourceVersion":"%d","managedFields":[{"manager":"m%d"}]},"spec":{"color":%q},"status":{"phase":%q}}`,
			revision, revision, color, phase),
	}
}

// A difference shows what is desired, and status and managedFields only if they are asked for.
func TestUnified(t *testing.T) {
	changed := Difference{Before: state(1, "green", "Running"), After: state(2, "red", "Failed")}
	same := Difference{Before: state(1, "green", "Running"), After: state(2, "green", "Failed")}
	for name, row := range map[string]struct {
		d     Difference
		shown Shown
		want  string // the changed lines
	}{
		"desired":      {changed, Shown{}, "-  color: green +  color: red"},
		"status":       {changed, Shown{Status: true}, "-  color: green +  color: red -  phase: Running +  phase: Failed"},
		"managers":     {same, Shown{ManagedFields: true}, "-  - manager: m1 +  - manager: m2"},
		"nothing":      {same, Shown{}, ""},
		"status alone": {same, Shown{Status: true}, "-  phase: Running +  phase: Failed"},
		"a new object": {Difference{After: state(2, "red", "x")}, Shown{},
			"+kind: Pod +metadata: +  name: web +spec: +  color: red"},
		"a deleted one": {Difference{Before: state(2, "red", "x")}, Shown{},
			"-kind: Pod -metadata: -  name: web -spec: -  color: red"},
		"the other way ": {Difference{Before: changed.After, After: changed.Before}, Shown{},
			"-  color: red +  color: green"},
	} {
		text, err := row.d.Unified(row.shown, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		var changed []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); (line[0] == '+' || line[0] == '-') && !strings.HasPrefix(line, "---") &&
				!strings.HasPrefix(line, "+++") {
				changed = append(changed, line)
			}
		}
		if got := strings.Join(changed, " "); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
	text, err := changed.Unified(Shown{}, time.FixedZone("", 3600))
	want := "--- pods/web -n shop\trevision 1, 2026-11-28T11:01:00+01:00\n+++ pods/web -n shop\trevision 2, 2026-11-28T11:02:00+01:00\n"
	if err != nil || !strings.HasPrefix(text, want) {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := (Difference{After: &sink.State{Object: []byte("{")}}).Unified(Shown{}, time.UTC); err == nil {
		t.Error("a damaged object has no error")
	}
}

// churned is a history in memory, of which only states are read.
type churned struct {
	states []sink.State
	named  int // queries with a name
}

type churnedTables struct {
	sink.Snapshot
	*churned
}

func (c *churned) Close() error { return nil }

func (c *churned) Snapshot(_ context.Context, read func(sink.Snapshot) error) error {
	return read(churnedTables{nil, c})
}

func (churnedTables) Status(context.Context) ([]sink.Status, error)    { return nil, nil }
func (churnedTables) Gaps(context.Context) ([]sink.StoredGap, error)   { return nil, nil }
func (churnedTables) Types(context.Context) ([]sink.StoredType, error) { return nil, nil }

func (t churnedTables) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	if q.Name != "" {
		t.named++
	}
	for _, s := range t.states {
		if q.Name != "" && q.Name != s.Key.Name || !validAt(s, *q.At) || q.NotAt != nil && validAt(s, *q.NotAt) {
			continue
		}
		if err := yield(s); err != nil {
			return err
		}
	}
	return nil
}

func validAt(s sink.State, at sink.Point) bool {
	return !at.Before(s.From) && (s.To == nil || at.Before(*s.To))
}

// Each has the states of both points, in order and in both directions, however few objects may be in memory, and not
// those in between.
func TestEach(t *testing.T) {
	const names, changes = 20, 400
	c := &churned{}
	current := map[int]int{}
	for i := range changes {
		n := i * 7 % names
		s := *state(i+1, fmt.Sprint("color", i), "Running")
		s.Key.Name, s.ID = fmt.Sprintf("pod-%02d", n), int64(i+1)
		prior, exists := current[n]
		if exists {
			c.states[prior].To, c.states[prior].Deleted = &s.From, i%11 == 0
			delete(current, n)
		}
		if !exists || !c.states[prior].Deleted {
			current[n] = len(c.states)
			c.states = append(c.states, s)
		}
	}
	point := func(revision int) sink.Point { return sink.Point{Revision: keepwatch.Revision(revision)} }
	find := func(name string, at sink.Point) string {
		for _, s := range c.states {
			if s.Key.Name == name && validAt(s, at) {
				return string(s.Object)
			}
		}
		return ""
	}
	text := func(s *sink.State) string {
		if s == nil {
			return ""
		}
		return string(s.Object)
	}
	for _, most := range []int{0, 1000, 1 << 20} {
		for _, row := range [][2]int{{100, 350}, {350, 100}, {200, 201}, {5, 400}, {50, 50}} {
			from, to := point(row[0]), point(row[1])
			var got, want []string
			c.named = 0
			err := history.New(c, history.Options{}).View(t.Context(), func(v *history.View) error {
				return each(t.Context(), v, history.Objects{Resource: "pods"}, from, to, most, func(d Difference) error {
					got = append(got, d.Key.Name+text(d.Before)+text(d.After))
					return nil
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			for n := range names {
				name := fmt.Sprintf("pod-%02d", n)
				if before, after := find(name, from), find(name, to); before != after {
					want = append(want, name+before+after)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d bytes, %v: %d objects, want %d", most, row, len(got), len(want))
			}
			if most != 1000 && (c.named == 0) != (most > 0 || len(want) == 0) {
				t.Errorf("%d bytes, %v: %d objects were read again", most, row, c.named)
			}
		}
	}
}
