package operators

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/internal/report"
)

// Repeat returns the command that repeats a finding, with as little of the workload as shows it. For an operator that
// is a function, these are only the flags that choose the plan: Options has the same fields.
func (r *Report) Repeat(f Finding) string {
	if f.Smallest != nil {
		f = *f.Smallest
	}
	plan := noPlan
	if f.Plan != nil {
		plan = f.Plan.String()
	}
	chosen := []string{"--plan", plan}
	if steps := cmp.Or(f.Steps, r.options.Steps); steps != "" {
		chosen = append(chosen, "--steps", steps)
	}
	chosen = append(chosen, "--seed", strconv.FormatUint(r.Seed, 10))
	if command := r.options.Operator.Command; len(command) > 0 {
		chosen = slices.Concat([]string{"keepwatch", "judge"}, r.options.flags(), chosen, []string{"--"}, command)
	}
	for i, word := range chosen {
		chosen[i] = quote(word)
	}
	return strings.Join(chosen, " ")
}

// flags are those of keepwatch judge for the surroundings of an operator.
func (o Options) flags() []string {
	var all []string
	if o.Next != nil {
		all = append(all, "--next", strings.Join(o.Next.Command, " "))
	}
	for _, path := range o.CRDs {
		all = append(all, "--crds", path)
	}
	for _, path := range o.RBAC {
		all = append(all, "--rbac", path)
	}
	for _, path := range o.Webhooks {
		all = append(all, "--webhooks", path)
	}
	if o.Workload != "" {
		all = append(all, "--workload", o.Workload)
	}
	for _, path := range o.Samples {
		all = append(all, "--samples", path)
	}
	if !o.Simulate {
		all = append(all, "--simulate=false")
	}
	if o.Quiet != DefaultQuiet {
		all = append(all, "--quiet", o.Quiet.String())
	}
	if o.Patience != DefaultPatience {
		all = append(all, "--patience", o.Patience.String())
	}
	if o.Parallel != defaultParallel() { // the operator may have a fixed port
		all = append(all, "--parallel", strconv.Itoa(o.Parallel))
	}
	return all
}

var plainWord = regexp.MustCompile(`^[-A-Za-z0-9_./:=,@%+]+$`)

// quote makes a text one word of a shell.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// PrintTable writes the report for people: a line a kind of plans, then each finding with what it rests on.
func (r *Report) PrintTable(w io.Writer) error {
	fmt.Fprintf(w, "%s, judged with %d steps and %d writes, seed %d, in %v\n\n",
		report.Printable(r.Operator), len(r.Steps), len(r.Places), r.Seed, r.Took.Round(time.Second))
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "PLANS\tRUN\tPASSED\tNOT REACHED\tWHAT HAPPENS")
	for _, c := range r.planCounts() {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", c.Name, c.Run, c.Passed, c.NotReached, c.Sentence)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, line := range r.gaps() {
		fmt.Fprintln(w, report.Printable(line))
	}
	for _, f := range r.Unexpected() {
		r.printFinding(w, f)
	}
	expected := len(r.Findings) - len(r.Unexpected())
	_, err := fmt.Fprintf(w, "\n%d findings, %d expected\n", len(r.Unexpected()), expected)
	return err
}

// gaps says in lines what was not judged.
func (r *Report) gaps() []string {
	var all []string
	if r.Stopped != "" {
		all = append(all, "no plan was run: "+r.Stopped)
	}
	if len(r.NoPlace) > 0 {
		all = append(all, "the workload has no place for: "+strings.Join(r.NoPlace, ", "))
	}
	if n := len(r.Uneven); n > 0 {
		all = append(all, fmt.Sprintf("no plan is at %d writes that not all runs without a fault have, as %v", n, r.Uneven[0]))
	}
	if r.LeftOut > 0 {
		all = append(all, fmt.Sprintf("%d plans were left out by the limit", r.LeftOut))
	}
	for _, result := range r.Failed() {
		all = append(all, fmt.Sprintf("not judged: %v: %s", result.Plan, result.Reason))
	}
	return all
}

// planCount is how the plans of one kind went.
type planCount struct {
	Kind
	Run, Passed, NotReached int
}

// planCounts returns the kinds of which a plan ran.
func (r *Report) planCounts() (all []planCount) {
	for _, kind := range Kinds {
		c := planCount{Kind: kind}
		for _, result := range r.Results {
			if result.Plan.Kind != kind.Name {
				continue
			}
			c.Run++
			switch {
			case !result.Reached:
				c.NotReached++
			case len(result.Verdicts) == 0:
				c.Passed++
			}
		}
		if c.Run > 0 {
			all = append(all, c)
		}
	}
	return all
}

// what says what happened to the operator.
func (f Finding) what() string {
	if f.Plan == nil {
		return "without a fault"
	}
	kind, _ := kindOf(f.Plan.Kind)
	return fmt.Sprintf("%s: %s", f.Plan, kind.Sentence)
}

func (r *Report) printFinding(w io.Writer, f Finding) {
	fmt.Fprintf(w, "\n%v, in %d of %d runs: %s\n", f.Verdict, f.Shown, f.Of, f.Verdict.Sentence())
	fmt.Fprintf(w, "  %s\n", report.Printable(f.what()))
	seen := f
	if f.Smallest != nil {
		seen = *f.Smallest
		fmt.Fprintf(w, "  smallest, in %d of %d runs: %s\n", seen.Shown, seen.Of, report.Printable(seen.less()))
	}
	for _, fact := range seen.Facts {
		fmt.Fprintf(w, "  ! %s\n", report.Printable(fact))
	}
	for _, q := range seen.Requests {
		fmt.Fprintf(w, "  %s\n", report.Printable(q.String()))
	}
	fmt.Fprintf(w, "  repeat: %s\n", report.Printable(r.Repeat(f)))
}

// less says what is left of a plan and its workload.
func (f Finding) less() string {
	var parts []string
	if f.Steps != "" {
		parts = append(parts, "--steps "+f.Steps)
	}
	if f.Plan.Times > 0 {
		parts = append(parts, f.Plan.String())
	}
	return strings.Join(parts, ", ")
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

// PrintJUnit writes the report in JUnit's format: a plan is a test case, and so are the runs without a fault. A plan
// whose place was not reached, a kind without a place, and a plan whose findings are expected, are skipped.
func (r *Report) PrintJUnit(w io.Writer) error {
	suite := report.Suite{Name: "judge " + r.Operator, Time: r.Took.Seconds()}
	reference := r.junit("without a fault", func(f Finding) bool { return f.Plan == nil })
	if r.Stopped != "" && reference.Failure == nil {
		reference.Failure, reference.Skipped = &report.Message{Message: r.Stopped}, nil
	}
	suite.Cases = append(suite.Cases, reference)
	for _, result := range r.Results {
		c := r.junit(result.Plan.String(), func(f Finding) bool { return f.Plan != nil && *f.Plan == result.Plan })
		c.Time = result.Took.Seconds()
		switch {
		case result.Failed && c.Failure == nil:
			c.Failure = &report.Message{Message: result.Reason}
		case !result.Reached:
			c.Skipped = &report.Message{Message: result.Reason}
		}
		suite.Cases = append(suite.Cases, c)
	}
	for _, kind := range r.NoPlace {
		skip := &report.Message{Message: "the workload has no place for it"}
		suite.Cases = append(suite.Cases, report.Case{Name: kind, Class: "judge", Skipped: skip})
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
