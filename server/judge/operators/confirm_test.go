package operators

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// ends is the outcome of a run without a fault, with the state after each step.
func ends(states ...state) *outcome {
	o := &outcome{applied: make([][]string, len(states)), watched: make([]map[string]bool, len(states))}
	for _, s := range states {
		o.arrive(s, 1, 0, typeSet{{Version: "v1", Resource: "widgets"}: true})
	}
	return o
}

// TestConfirm checks what becomes of the findings of two plans when more runs without a fault are made: the first plan
// ends with another value of a field, and with an object too many; the second one with that object alone.
func TestConfirm(t *testing.T) {
	web := func(color string) state { return state{"widgets shop/web": {"spec.color": color}} }
	both := func(first, second string) *outcome { return ends(state{}, web(first), web(second)) }
	same := []*outcome{both("red", "red"), both("red", "red"), both("red", "red")}
	early := []*outcome{same[0], same[1], ends(state{}, web("red"))}
	less := []*outcome{same[0], same[1], ends(state{}, web("red"), state{})}
	other := []*outcome{same[0], same[1], both("red", "blue")}
	atFirst := []*outcome{both("red", "red"), both("blue", "red"), both("green", "red")}
	for _, c := range []struct {
		name    string
		first   []*outcome   // of the reference
		more    [][]*outcome // the attempts
		again   []Verdict    // of the first plan, if it runs again
		without Verdict
		want    string // the findings of the report, and of each plan
		runs    []int  // the plans that run again
	}{
		{name: "equal values", first: same, more: [][]*outcome{same}, want: "[] [duplicated diverged] [duplicated]"},
		{name: "other values", first: same, more: [][]*outcome{other}, again: []Verdict{Duplicated},
			want: "[] [duplicated] [duplicated]", runs: []int{1}},
		{name: "a finding without fields that does not show again", first: same, more: [][]*outcome{other},
			again: []Verdict{Diverged}, want: "[] [diverged duplicated] [duplicated]", runs: []int{1}},
		{name: "other values at another step", first: atFirst, more: [][]*outcome{other}, again: []Verdict{Duplicated},
			want: "[] [duplicated] [duplicated]", runs: []int{1}},
		{name: "one run with too little quiet", first: same, more: [][]*outcome{less, same},
			want: "[] [duplicated diverged] [duplicated]"},
		{name: "too little quiet, then other values", first: same, more: [][]*outcome{early, less, other},
			again: []Verdict{Duplicated}, want: "[] [duplicated] [duplicated]", runs: []int{1}},
		{name: "no attempt is like the first runs", first: same, more: [][]*outcome{less, less, early},
			want: "[unstable] [duplicated] [duplicated]"},
		{name: "no attempt is, and nobody asks", first: same, more: [][]*outcome{less, less, less}, without: Unstable,
			want: "[] [duplicated] [duplicated]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref, unstable := learn(c.first)
			if len(unstable) > 0 {
				t.Fatal(unstable)
			}
			ref.quiet = time.Second
			o, r := Options{without: c.without}, &Report{}
			var found [][]Finding
			for n, differences := range [][]difference{
				{{key: "widgets shop/web", path: "spec.color", want: "red", have: "blue"}, {key: "pods shop/a", have: there}},
				{{key: "pods shop/a", have: there}},
			} {
				plan := Plan{Kind: "failing", Place: Place{Step: n + 1}}
				findings := judgeOutcomes([]*outcome{{plan: &plan, ended: 2, differences: differences}}, ref, o)
				r.Results = append(r.Results, Result{Plan: plan, Reached: true, Verdicts: verdictsOf(findings)})
				found = append(found, findings)
			}
			quiet, ran := ref.quiet, []int(nil)
			runs := furtherRuns{
				without: func(_ context.Context, o Options) ([]*outcome, error) {
					if o.Quiet != quiet || len(c.more) == 0 {
						t.Errorf("runs with %v of quiet, want %v", o.Quiet, quiet)
						return same, nil
					}
					more := c.more[0]
					quiet, c.more = 2*quiet, c.more[1:]
					return more, nil
				},
				ofPlan: func(_ context.Context, wider *reference, plan Plan) (Result, []Finding, error) {
					if ran = append(ran, plan.Place.Step); wider.quiet != quiet/2 {
						t.Errorf("the plan has %v of quiet, the reference %v", wider.quiet, quiet/2)
					}
					var findings []Finding
					for _, v := range c.again {
						findings = append(findings, Finding{Verdict: v, Plan: &plan})
					}
					return Result{Plan: plan, Reached: true, Verdicts: c.again}, findings, nil
				},
			}
			if err := r.confirm(t.Context(), runs, o, ref, found); err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(verdictsOf(r.Findings), verdictsOf(found[0]), verdictsOf(found[1]))
			if got != c.want || !slices.Equal(ran, c.runs) {
				t.Errorf("%s, and the plans %v run again; want %s and %v", got, ran, c.want, c.runs)
			}
			for i, result := range r.Results {
				if !slices.Equal(result.Verdicts, verdictsOf(found[i])) {
					t.Errorf("the result has %v", result.Verdicts)
				}
			}
			if len(c.more) > 0 {
				t.Errorf("%d attempts are left", len(c.more))
			}
		})
	}
}
