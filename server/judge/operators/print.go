package operators

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/internal/report"
)

// Repeat returns the flags of keepwatch judge that repeat a finding.
func (r *Report) Repeat(f Finding) string {
	if f.Plan == nil {
		return fmt.Sprintf("--plan none --seed %d", r.Seed)
	}
	return fmt.Sprintf("--plan '%v' --seed %d", f.Plan, r.Seed)
}

// PrintTable writes the report for people: a line a kind of plans, then each finding with what it rests on.
func (r *Report) PrintTable(w io.Writer) error {
	fmt.Fprintf(w, "%s, judged with %d steps and %d writes, seed %d, in %v\n\n",
		report.Printable(r.Operator), len(r.Steps), len(r.Places), r.Seed, r.Took.Round(time.Second))
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "PLANS\tRUN\tPASSED\tNOT REACHED\tWHAT HAPPENS")
	for _, kind := range Kinds {
		var run, passed, missed int
		for _, result := range r.Results {
			if result.Plan.Kind != kind.Name {
				continue
			}
			run++
			switch {
			case !result.Reached:
				missed++
			case len(result.Verdicts) == 0:
				passed++
			}
		}
		if run > 0 {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", kind.Name, run, passed, missed, kind.Sentence)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, f := range r.Unexpected() {
		r.printFinding(w, f)
	}
	expected := len(r.Findings) - len(r.Unexpected())
	_, err := fmt.Fprintf(w, "\n%d findings, %d expected\n", len(r.Unexpected()), expected)
	return err
}

func (r *Report) printFinding(w io.Writer, f Finding) {
	what := "without a fault"
	if f.Plan != nil {
		kind, _ := kindOf(f.Plan.Kind)
		what = fmt.Sprintf("%s: %s", f.Plan, kind.Sentence)
	}
	fmt.Fprintf(w, "\n%v, in %d of %d runs: %s\n", f.Verdict, f.Shown, f.Of, f.Verdict.Sentence())
	fmt.Fprintf(w, "  %s\n", report.Printable(what))
	for _, fact := range f.Facts {
		fmt.Fprintf(w, "  ! %s\n", report.Printable(fact))
	}
	for _, q := range f.Requests {
		fmt.Fprintf(w, "  %s\n", report.Printable(q.String()))
	}
	fmt.Fprintf(w, "  repeat: %s\n", report.Printable(r.Repeat(f)))
}

// String is the request as a line of a report.
func (q Request) String() string {
	at := fmt.Sprintf("%7.3fs step %d", q.After.Seconds(), q.Step)
	switch {
	case q.Verb == "":
		return at + " -- " + q.Note
	case q.Status == 0:
		return fmt.Sprintf("%s [%d] %s: no answer", at, q.Instance, q.words())
	default:
		return fmt.Sprintf("%s [%d] %s: %d", at, q.Instance, q.words(), q.Status)
	}
}

// PrintJSON writes the report as one JSON object.
func (r *Report) PrintJSON(w io.Writer) error { return report.WriteJSON(w, r) }

// PrintJUnit writes the report in JUnit's format: a plan is a test case, and so are the runs without a fault. A plan whose
// place was not reached, and one whose findings are expected, is skipped.
func (r *Report) PrintJUnit(w io.Writer) error {
	suite := report.Suite{Name: "judge " + r.Operator, Time: r.Took.Seconds()}
	suite.Cases = append(suite.Cases, r.junit("without a fault", func(f Finding) bool { return f.Plan == nil }))
	for _, result := range r.Results {
		c := r.junit(result.Plan.String(), func(f Finding) bool { return f.Plan != nil && *f.Plan == result.Plan })
		if !result.Reached {
			c.Skipped = &report.Message{Message: "the operator did not come to this write"}
		}
		suite.Cases = append(suite.Cases, c)
	}
	return suite.Write(w)
}

// junit is the test case of some findings.
func (r *Report) junit(name string, has func(Finding) bool) report.Case {
	c := report.Case{Name: name, Class: "judge"}
	for _, f := range r.Findings {
		if !has(f) {
			continue
		}
		if f.Expected != "" {
			c.Skipped = &report.Message{Message: "expected: " + f.Expected}
			continue
		}
		var text strings.Builder
		r.printFinding(&text, f)
		if c.Failure == nil {
			c.Failure = &report.Message{Message: f.Verdict.String() + ": " + f.Verdict.Sentence()}
		}
		c.Failure.Text += text.String()
	}
	if c.Failure != nil {
		c.Skipped = nil
	}
	return c
}
