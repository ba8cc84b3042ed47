package sim

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Report sums up a campaign.
type Report struct {
	Seed      uint64
	Schedules int
	Styles    map[Style]int
	Events    int
	Virtual   time.Duration
	Real      time.Duration
	// Faults counts the schedules' decisions by point and name, Pairs the schedules
	// in which two faults met.
	Faults   map[string]int
	Pairs    map[[2]string]int
	Failures map[keepwatch.FailureKind]int
	Lies     map[string]int
	// Honest counts the schedules without a lie, Forgiven the violations for which
	// one is to blame.
	Honest, Forgiven int
	// Bad are the schedules with problems.
	Bad []Outcome
}

func NewReport(seed uint64) *Report {
	return &Report{
		Seed: seed, Styles: map[Style]int{}, Faults: map[string]int{}, Pairs: map[[2]string]int{},
		Failures: map[keepwatch.FailureKind]int{}, Lies: map[string]int{},
	}
}

// Add takes one schedule in.
func (r *Report) Add(o Outcome) {
	r.Schedules++
	r.Styles[o.Style]++
	r.Events += o.Events
	r.Virtual += o.Virtual
	for kind, n := range o.Failures {
		r.Failures[kind] += n
	}
	for name, n := range o.Lies {
		r.Lies[name] += n
	}
	if len(o.Lies) == 0 {
		r.Honest++
	}
	r.Forgiven += o.Forgiven
	met := map[string]bool{}
	for _, d := range o.Script {
		if d.Point != AtSetup {
			name := string(d.Point) + " " + d.Choice
			r.Faults[name]++
			met[name] = met[name] || d.Point != AtWrite
		}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(met)), func(name string) bool { return !met[name] })
	for i, a := range names {
		for _, b := range names[i+1:] {
			r.Pairs[[2]string{a, b}]++
		}
	}
	if len(o.Problems) > 0 {
		r.Bad = append(r.Bad, o)
	}
}

// possible is how many pairs of faults there are.
func possible() int {
	n := 0
	for p, faults := range Faults {
		if p != AtWrite {
			n += len(faults)
		}
	}
	return n * (n - 1) / 2
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "schedules      %d, seeds %d to %d: %d uniform, %d swarm, %d aimed\n", r.Schedules,
		r.Seed, r.Seed+uint64(r.Schedules)-1, r.Styles[Uniform], r.Styles[Swarm], r.Styles[Aimed])
	fmt.Fprintf(w, "events         %d, as received by consumers\n", r.Events)
	fmt.Fprintf(w, "virtual time   %.0f h\n", r.Virtual.Hours())
	fmt.Fprintf(w, "real time      %v, %.0f schedules/s\n", r.Real.Round(time.Second), float64(r.Schedules)/r.Real.Seconds())
	fmt.Fprintf(w, "pairs          %d of %d pairs of faults met in a schedule\n", len(r.Pairs), possible())
	fmt.Fprintf(w, "honest         %d schedules, in which the source never broke its contract\n", r.Honest)
	fmt.Fprintf(w, "forgiven       %d violations in the others, told by a source that broke it\n", r.Forgiven)
	fmt.Fprintf(w, "with problems  %d schedules\n", len(r.Bad))
	fmt.Fprintln(w, "\nfailures that reflectors met, by kind")
	for _, kind := range keepwatch.FailureKinds() {
		fmt.Fprintf(w, "%10d  %s\n", r.Failures[kind], kind)
	}
	table(w, "\nbreaches of the source's contract that were told", r.Lies)
	table(w, "\ndecisions, by place and name", r.Faults)
	fmt.Fprintln(w, "\nproblems")
	for _, o := range r.Bad {
		for _, p := range o.Problems {
			fmt.Fprintf(w, "  seed %d (%s) %s: %s\n", o.Seed, o.Style, p.Sign, p.Text)
		}
	}
}

func table(w io.Writer, title string, counts map[string]int) {
	fmt.Fprintln(w, title)
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for _, name := range names {
		fmt.Fprintf(w, "%10d  %s\n", counts[name], name)
	}
}
