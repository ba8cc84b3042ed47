package sim

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Report sums up schedules.
type Report struct {
	Seed      uint64 // of the first
	Began     time.Time
	Planned   int // schedules
	Schedules int // so far
	Styles    map[Style]int
	Events    int
	Virtual   time.Duration
	// Faults counts the decisions by point and name, Pairs the schedules that have both of
	// two faults.
	Faults   map[string]int
	Pairs    map[[2]string]int
	Failures map[keepwatch.FailureKind]int
	Breaches map[string]int
	// WithoutBreach counts the schedules without a breach, Explained the violations that a
	// breach explains.
	WithoutBreach, Explained int
	// Failed counts the schedules with problems, Signs the kind of each one's first problem.
	// Bad has some of them.
	Failed int
	Signs  map[string]int
	Bad    []Outcome
}

// maxBad bounds the number of schedules in Bad.
const maxBad = 500

// NewReport returns an empty report.
func NewReport(seed uint64, planned int) *Report {
	return &Report{
		Seed: seed, Began: time.Now(), Planned: planned,
		Styles: map[Style]int{}, Faults: map[string]int{}, Pairs: map[[2]string]int{},
		Failures: map[keepwatch.FailureKind]int{}, Breaches: map[string]int{}, Signs: map[string]int{},
	}
}

// Add adds the outcome of a schedule.
func (r *Report) Add(o Outcome) {
	r.Schedules++
	r.Styles[o.Style]++
	r.Events += o.Events
	r.Virtual += o.Virtual
	for kind, n := range o.Failures {
		r.Failures[kind] += n
	}
	for name, n := range o.Breaches {
		r.Breaches[name] += n
	}
	if len(o.Breaches) == 0 {
		r.WithoutBreach++
	}
	r.Explained += o.Explained
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
	if len(o.Problems) == 0 {
		return
	}
	r.Failed++
	r.Signs[o.Problems[0].Sign]++
	if o.trace = nil; len(r.Bad) < maxBad { // a trace refers to the whole schedule
		r.Bad = append(r.Bad, o)
	}
}

// First returns the first schedule of each kind of problem.
func (r *Report) First() map[string]Outcome {
	first := map[string]Outcome{}
	for _, o := range r.Bad {
		for _, p := range o.Problems {
			if f, ok := first[p.Sign]; !ok || o.Seed < f.Seed {
				first[p.Sign] = o
			}
		}
	}
	return first
}

// unmetPairs returns the pairs of faults that no schedule has, and the number of all pairs.
func (r *Report) unmetPairs() (pairs [][2]string, of int) {
	var names []string
	for _, p := range points[1:] {
		for _, f := range Faults[p] {
			names = append(names, string(p)+" "+f.Name)
		}
	}
	slices.Sort(names)
	for i, a := range names {
		for _, b := range names[i+1:] {
			of++
			if pair := [2]string{a, b}; r.Pairs[pair] == 0 {
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs, of
}

// Line returns the report in one line.
func (r *Report) Line() string {
	spent := time.Since(r.Began)
	rate := float64(r.Schedules) / spent.Seconds()
	left := time.Duration(float64(r.Planned-r.Schedules) / rate * float64(time.Second))
	return fmt.Sprintf("%d of %d schedules, %d events, %.0f virtual hours, %d with problems; %v, %.0f/s, %v to go",
		r.Schedules, r.Planned, r.Events, r.Virtual.Hours(), r.Failed, spent.Round(time.Second), rate,
		left.Round(time.Second))
}

// maxUnmetPairs bounds the number of unmet pairs that Write lists.
const maxUnmetPairs = 200

// Write writes the report.
func (r *Report) Write(w io.Writer) {
	apart, pairs := r.unmetPairs()
	spent := time.Since(r.Began)
	fmt.Fprintf(w, "schedules      %d of %d, seeds %d to %d: %d uniform, %d swarm, %d aimed\n", r.Schedules, r.Planned,
		r.Seed, r.Seed+uint64(r.Schedules)-1, r.Styles[Uniform], r.Styles[Swarm], r.Styles[Aimed])
	fmt.Fprintf(w, "events         %d, as received by consumers\n", r.Events)
	fmt.Fprintf(w, "virtual time   %.0f h\n", r.Virtual.Hours())
	fmt.Fprintf(w, "real time      %v, %.0f schedules/s, %d threads\n", spent.Round(time.Second),
		float64(r.Schedules)/spent.Seconds(), runtime.GOMAXPROCS(0))
	fmt.Fprintf(w, "pairs          %d of %d pairs of faults are in one schedule\n", pairs-len(apart), pairs)
	fmt.Fprintf(w, "no breach      %d schedules, in which the source kept its contract\n", r.WithoutBreach)
	fmt.Fprintf(w, "explained      %d violations in the others, by a breach of it\n", r.Explained)
	fmt.Fprintf(w, "with problems  %d schedules\n", r.Failed)
	fmt.Fprintln(w, "\nfailures of reflectors, by kind")
	for _, kind := range keepwatch.FailureKinds() {
		fmt.Fprintf(w, "%10d  %s\n", r.Failures[kind], kind)
	}
	table(w, "\nbreaches of the source's contract", r.Breaches)
	table(w, "\ndecisions, by point and name", r.Faults)
	if len(apart) <= maxUnmetPairs {
		fmt.Fprintln(w, "\npairs in no schedule")
		for _, pair := range apart {
			fmt.Fprintf(w, "  %s, %s\n", pair[0], pair[1])
		}
	}
	table(w, "\nproblems, by the first of each schedule", r.Signs)
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
