package difference

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
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
