package operators

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printable replaces what could control a terminal: an operator chooses names and values.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

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
		printable(r.Operator), len(r.Steps), len(r.Places), r.Seed, r.Took.Round(time.Second))
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
	fmt.Fprintf(w, "  %s\n", printable(what))
	for _, fact := range f.Facts {
		fmt.Fprintf(w, "  ! %s\n", printable(fact))
	}
	for _, q := range f.Requests {
		fmt.Fprintf(w, "  %s\n", printable(q.String()))
	}
	fmt.Fprintf(w, "  repeat: %s\n", printable(r.Repeat(f)))
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
func (r *Report) PrintJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// The elements of JUnit's format that test reports in CI systems read.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     float64     `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// PrintJUnit writes the report in JUnit's format: a plan is a test case, and so are the runs without a fault. A plan whose
// place was not reached, and one whose findings are expected, is skipped.
func (r *Report) PrintJUnit(w io.Writer) error {
	suite := junitSuite{Name: "judge " + r.Operator, Time: r.Took.Seconds()}
	suite.Cases = append(suite.Cases, r.junit("without a fault", func(f Finding) bool { return f.Plan == nil }))
	for _, result := range r.Results {
		c := r.junit(result.Plan.String(), func(f Finding) bool { return f.Plan != nil && *f.Plan == result.Plan })
		if !result.Reached {
			c.Skipped = &junitMessage{Message: "the operator did not come to this write"}
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Tests = len(suite.Cases)
	for _, c := range suite.Cases {
		switch {
		case c.Failure != nil:
			suite.Failures++
		case c.Skipped != nil:
			suite.Skipped++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// junit is the test case of some findings.
func (r *Report) junit(name string, has func(Finding) bool) junitCase {
	c := junitCase{Name: name, Class: "judge"}
	for _, f := range r.Findings {
		if !has(f) {
			continue
		}
		if f.Expected != "" {
			c.Skipped = &junitMessage{Message: "expected: " + f.Expected}
			continue
		}
		var text strings.Builder
		r.printFinding(&text, f)
		if c.Failure == nil {
			c.Failure = &junitMessage{Message: f.Verdict.String() + ": " + f.Verdict.Sentence()}
		}
		c.Failure.Text += text.String()
	}
	if c.Failure != nil {
		c.Skipped = nil
	}
	return c
}
