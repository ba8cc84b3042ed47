package operators

import (
	"slices"
	"strings"
	"testing"
)

// TestReadExpectations checks what a file of expectations may contain.
func TestReadExpectations(t *testing.T) {
	file := t.TempDir() + "/expected.yaml"
	for content, want := range map[string]string{
		"- {verdict: died, plan: 'forbidden:*', reason: it starts again}": "",
		"- {verdict: dead, reason: it starts again}":                      `expectation 1: the verdict "dead" is unknown`,
		"[{verdict: died, reason: a}, {verdict: died}]":                   "expectation 2: the reason is missing",
		"- {verdict: died, plan: 'forbidden:[', reason: a}":               "expectation 1: syntax error in pattern",
		"- {verdict: died, plans: forbidden, reason: a}":                  `unknown field "plans"`,
		"verdict: died": "cannot unmarshal",
	} {
		writeFile(t, file, content)
		all, err := ReadExpectations(file)
		switch {
		case want == "" && (err != nil || !slices.Equal(all, []Expectation{{"died", "forbidden:*", "it starts again"}})):
			t.Errorf("%s: %v, %v", content, all, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file)):
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
	if _, err := ReadExpectations(file + ".missing"); err == nil {
		t.Error("a missing file has expectations")
	}
}

// TestExpectations checks which findings an expectation has: those with its verdict, of the plans that its pattern has.
func TestExpectations(t *testing.T) {
	plan := &Plan{Kind: "forbidden", Place: Place{Step: 1, Verb: "update", Resource: "widgets.example.com",
		Subresource: "status", Namespace: "default", Name: "web", Nth: 2}}
	if got, want := plan.String(), "forbidden:1:update:widgets.example.com/status:default/web:2"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	for _, c := range []struct {
		pattern string
		plan    *Plan
		want    bool
	}{
		{"", plan, true},
		{"", nil, true},
		{"forbidden", plan, true},
		{"forb*", plan, true},
		{"failing", plan, false},
		{"forbidden", nil, false}, // without a fault
		{"*", nil, false},
		{"*", plan, true}, // its kind
		{"forbidden:1:update:widgets.example.com/status:default/web:2", plan, true},
		{"forbidden:1:update:widgets.example.com/status:default/*", plan, true},
		{"forbidden:*:update:*/status:*/web:*", plan, true},
		{"forbidden:*", plan, false}, // a slash
		{"forbidden:2:*/*/*", plan, false},
	} {
		e := Expectation{Verdict: Died.String(), Plan: c.pattern, Reason: "because"}
		if got := reasonFor(Finding{Verdict: Died, Plan: c.plan}, []Expectation{e}); (got == "because") != c.want {
			t.Errorf("%q of %v: %q, want %v", c.pattern, c.plan.text(), got, c.want)
		}
		if got := reasonFor(Finding{Verdict: Leaked, Plan: c.plan}, []Expectation{e}); got != "" {
			t.Errorf("%q of another verdict: %q", c.pattern, got)
		}
	}
	two := []Expectation{{"died", "failing", "first"}, {"died", "forbidden", "second"}, {"died", "", "third"}}
	if got := reasonFor(Finding{Verdict: Died, Plan: plan}, two); got != "second" {
		t.Errorf("%q, want the reason of the first one that has the finding", got)
	}
}

// TestExpectedFindings checks that a report with expected findings alone is a success, that JUnit's readers see them as
// skipped, and that another finding of the same plan is a failure.
func TestExpectedFindings(t *testing.T) {
	plan := Plan{Kind: "forbidden", Place: Place{Step: 1}}
	expected := Finding{Verdict: Died, Plan: &plan, Expected: "it starts again", Shown: 1, Of: 1}
	r := &Report{Results: []Result{{Plan: plan, Reached: true, Verdicts: []Verdict{Died}}}, Findings: []Finding{expected}}
	junit := func() string {
		var text strings.Builder
		if err := r.PrintJUnit(&text); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	var table strings.Builder
	if err := r.PrintTable(&table); err != nil || !strings.HasSuffix(table.String(), "\n0 findings, 1 expected\n") {
		t.Errorf("%v, %s", err, &table)
	}
	for _, want := range []string{`failures="0" skipped="1"`, `<skipped message="expected: it starts again"`} {
		if text := junit(); !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	r.Findings = append(r.Findings, Finding{Verdict: Leaked, Plan: &plan, Shown: 1, Of: 1})
	for _, want := range []string{`failures="1" skipped="0"`, `<failure message="leaked: `} {
		if text := junit(); !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if err := r.Err(); err == nil || err.Error() != "1 findings" {
		t.Error(err)
	}
}
