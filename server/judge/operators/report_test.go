package operators

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestGaps checks that each format of a report says what was not judged, and why.
func TestGaps(t *testing.T) {
	plan := func(kind string) Plan { return Plan{Kind: kind, Place: Place{Step: 1}} }
	r := &Report{
		NoPlace: []string{"namespace-gone"}, LeftOut: 7,
		Results: []Result{
			{Plan: plan("downtime"), Reason: "an object is still being deleted"},
			{Plan: plan("outage"), Failed: true, Reason: "the server did not start"},
		},
	}
	stopped := &Report{Stopped: "restless", Findings: []Finding{{Verdict: Restless, Expected: "it polls"}}}
	for name, c := range map[string]struct {
		report *Report
		want   []string
	}{
		"table": {r, []string{"no place for: namespace-gone", "7 plans were left out", "outage:1: the server did not start"}},
		"junit": {r, []string{`name="namespace-gone"`, `<skipped message="an object is still being deleted"`,
			`<failure message="the server did not start"`, `failures="1" skipped="2"`}},
		"html": {r, []string{"no place for: namespace-gone", "7 plans were left out", "the server did not start"}},
		"json": {r, []string{`"noPlace"`, `"leftOut": 7`, `"failed": true`,
			`"reason": "an object is still being deleted"`}},
		"stopped table": {stopped, []string{"no plan was run: restless"}},
		"stopped junit": {stopped, []string{`<failure message="restless"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			var err error
			switch format := name[strings.LastIndex(name, " ")+1:]; format {
			case "table":
				err = c.report.PrintTable(&text)
			case "junit":
				err = c.report.PrintJUnit(&text)
			case "html":
				err = c.report.PrintHTML(&text)
			case "json":
				err = c.report.PrintJSON(&text)
			}
			for _, part := range c.want {
				if err != nil || !strings.Contains(text.String(), part) {
					t.Errorf("%v, no %s in\n%s", err, part, &text)
				}
			}
		})
	}
}

// TestNothingJudged checks that a report is no success if none of the plans that were asked for has run.
func TestNothingJudged(t *testing.T) {
	all := []Result{{Plan: Plan{Kind: "downtime"}, Reached: true}}
	failed := []Result{{Plan: Plan{Kind: "downtime"}, Failed: true, Reason: "the server did not start"}}
	for want, r := range map[string]*Report{
		"no plan was run: restless": {Stopped: "restless"},
		"no plan was run: the workload has no place for conflict, throttled": {NoPlace: []string{"conflict", "throttled"}},
		"1 plans could not be judged":                                        {Results: failed},
		"":                                                                   {Results: all, NoPlace: []string{"conflict"}},
	} {
		if err := r.Err(); fmt.Sprint(err) != want && (want != "" || err != nil) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (&Report{}).Err(); err != nil { // with --plan none
		t.Error(err)
	}
}

// TestShownRequests checks that the end of a long record is shown, and what the judge did in between.
func TestShownRequests(t *testing.T) {
	o := &outcome{plan: &Plan{Place: Place{Step: 1}}, ended: 2}
	for i := range 100 {
		r := Request{Place: Place{Step: 1 + i/60, Verb: "create", Name: fmt.Sprint(i)}}
		if i == 50 {
			r = Request{Place: Place{Step: 1}, Note: "the fault"}
		}
		o.requests = append(o.requests, r)
	}
	var got []string
	for _, r := range o.shownRequests() {
		if r.Verb == "" {
			got = append(got, r.Note)
		}
	}
	all := o.shownRequests()
	if want := []string{"35 more writes", "the fault", "34 more writes"}; !slices.Equal(got, want) ||
		all[0].Name != "0" || all[len(all)-1].Name != "99" || len(all) != maxShown+3 {
		t.Errorf("%q, want %q: %v", got, want, all)
	}
	o.requests = o.requests[:maxShown]
	if all := o.shownRequests(); len(all) != maxShown {
		t.Errorf("%d of %d requests", len(all), maxShown)
	}
}

// TestRepeatHasFlags checks that the command that repeats a finding has the flags without which it is another one.
func TestRepeatHasFlags(t *testing.T) {
	o, err := Options{Operator: Operator{Command: []string{"manager", "--port={port}"}}, Workload: "steps", Seed: 1,
		Webhooks: []string{"hooks"}, Parallel: 1}.complete()
	if err != nil {
		t.Fatal(err)
	}
	const want = "keepwatch judge --webhooks hooks --workload steps --simulate=false --parallel 1 --plan none --seed 1 " +
		"-- manager '--port={port}'"
	if got := (&Report{Seed: 1, options: o}).Repeat(Finding{}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLabelled checks that each line of an operator's output has its label, however it is written.
func TestLabelled(t *testing.T) {
	var text strings.Builder
	l := labelled{to: &text, label: "> "}
	for _, part := range []string{"a", "b\n\nc\nd", "\n", "e"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	l.end()
	l.end()
	if want := "> ab\n> \n> c\n> d\n> e\n"; text.String() != want {
		t.Errorf("%q, want %q", &text, want)
	}
	text.Reset()
	if _, err := l.Write([]byte(strings.Repeat("x", 2*maxLine+1) + "\n")); err != nil || strings.Count(text.String(), "> ") != 3 {
		t.Errorf("%v, %d lines", err, strings.Count(text.String(), "> "))
	}
}
