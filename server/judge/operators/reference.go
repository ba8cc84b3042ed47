package operators

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// referenceRuns is the number of runs without a fault.
const referenceRuns = 3

// reference is what the runs without a fault have in common.
type reference struct {
	outcomes []*outcome
	given    given
	states   []state // masked, of all types, after each step
	masks    []mask
	types    []typeSet         // those of which the workload or the operator has written objects by then
	watches  []int             // the least number that is open at the end of each step
	watched  []map[string]bool // the resources with watches at the end of each step, in some run
	applied  [][]string        // the keys of the objects that each step applies
	created  map[Place]bool    // the writes that create an object
	defined  map[string]bool   // the resources with a definition
	quiet    time.Duration     // of the attempt in which the runs were alike
	next     *reference        // of Options.Next, if there is one
	names    []namePattern     // of random names
	places   []Place           // the writes of every run, in the order of the first
	uneven   []Place           // those of some runs, in the order of their texts
	pauses   []time.Duration   // the longest one in each step after which the operator went on
	deletes  map[deletion]bool
	restores map[deletion]bool // see Request.restores
	refused  map[Place]bool    // what the operator's roles do not allow, in any step
}

// deletion is an object that the operator deletes, or changes back, in a step.
type deletion struct {
	step int
	key  string
}

// newReference runs the workload without a fault. It returns findings instead if that shows some.
func newReference(ctx context.Context, from *world, o Options, steps []step) (*reference, []Finding, error) {
	for attempt := 1; ; attempt++ {
		outcomes, err := runWithout(ctx, from, o, steps)
		if err != nil {
			return nil, nil, err
		}
		ref, unstable := learn(outcomes)
		ref.defined, ref.names, ref.quiet = from.defined, o.names, o.Quiet
		findings := judgeReference(outcomes, ref, o)
		if len(unstable) > 0 && o.without != Unstable {
			findings = append(findings, Finding{Verdict: Unstable, Facts: first(unstable), Shown: 1, Of: 1})
		}
		if len(unstable) == 0 || hasVerdict(findings, Restless, Died) || attempt == referenceRuns {
			return ref, findings, nil
		}
		if learned := learnNames(outcomes); len(learned) > 0 && o.names == nil {
			o.names = learned
			attempt--
			o.log("the operator makes names at random: once more, with %v for them", learned)
			continue
		}
		o.Quiet *= 2
		o.log("the runs without a fault differ: once more, with %v of quiet", o.Quiet)
	}
}

func runWithout(ctx context.Context, from *world, o Options, steps []step) ([]*outcome, error) {
	outcomes := make([]*outcome, referenceRuns)
	group, ctx := errgroup.WithContext(ctx)
	for i := range referenceRuns {
		group.Go(func() (err error) {
			outcomes[i], err = perform(ctx, from, o, steps, nil, nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("a run without a fault: %w", err)
	}
	return outcomes, nil
}

// learn compares the runs, step by step. It returns the facts in which they differ in substance.
func learn(outcomes []*outcome) (*reference, []string) {
	ref := &reference{outcomes: outcomes, given: outcomes[0].given, applied: outcomes[0].applied,
		created: map[Place]bool{}, deletes: map[deletion]bool{}, restores: map[deletion]bool{},
		refused: map[Place]bool{}}
	ref.places, ref.uneven = places(outcomes)
	var unstable []string
	steps := len(outcomes[0].states)
	for _, o := range outcomes[1:] {
		steps = min(steps, len(o.states))
	}
	for n := range steps {
		var states []state
		watches, types, watched := outcomes[0].watches[n], typeSet{}, map[string]bool{}
		var pause time.Duration
		for _, o := range outcomes {
			maps.Copy(watched, o.watched[n])
			states = append(states, o.states[n].and(o.given.state, o.touched[n]))
			watches, pause = min(watches, o.watches[n]), max(pause, o.pauses[n])
			maps.Copy(types, o.touched[n])
		}
		m := newMask(states)
		ref.states, ref.masks = append(ref.states, m.on(states[0])), append(ref.masks, m)
		ref.types, ref.watches = append(ref.types, types), append(ref.watches, watches)
		ref.watched, ref.pauses = append(ref.watched, watched), append(ref.pauses, pause)
		for i, s := range states[1:] {
			for _, d := range differences(m.on(states[0]).of(types), m.on(s).of(types)) {
				unstable = append(unstable, fmt.Sprintf("step %d, runs 1 and %d: %s differs", n, i+2, d.key))
			}
		}
	}
	for _, o := range outcomes {
		for _, r := range o.requests {
			if r.Verb == "delete" {
				ref.deletes[deletion{r.Step, r.key()}] = true
			}
			if r.Status == http.StatusCreated && r.Subresource == "" {
				ref.created[r.Place] = true
			}
			if r.refused {
				ref.refused[r.anyStep()] = true
			}
			if r.restores {
				ref.restores[deletion{r.Step, r.key()}] = true
			}
		}
	}
	return ref, unstable
}

// shortcoming says why runs without a fault, with these findings, are no reference.
func (ref *reference) shortcoming(findings []Finding) string {
	if len(findings) == 0 {
		return fmt.Sprintf("one of them ends in step %d", len(ref.states))
	}
	return joined(verdictsOf(findings))
}

// places returns the writes that every run has, in the order of the first, and the others.
func places(outcomes []*outcome) (all, uneven []Place) {
	count := map[Place]int{}
	for _, o := range outcomes {
		for _, r := range o.requests {
			if r.Verb != "" && !r.refused {
				count[r.Place]++
			}
		}
	}
	for _, r := range outcomes[0].requests {
		if count[r.Place] == len(outcomes) {
			all = append(all, r.Place)
		}
	}
	for place, n := range count {
		if n < len(outcomes) {
			uneven = append(uneven, place)
		}
	}
	slices.SortFunc(uneven, func(a, b Place) int { return strings.Compare(a.String(), b.String()) })
	return all, uneven
}

// judgeReference returns what even runs without a fault show.
func judgeReference(outcomes []*outcome, ref *reference, o Options) []Finding {
	var all []Finding
	for _, oracle := range oracles {
		f := Finding{Verdict: oracle.verdict, Of: len(outcomes)}
		for _, run := range outcomes {
			if facts := oracle.facts(run, ref); len(facts) > 0 {
				f.Shown++
				f.Facts, f.Requests = first(facts), run.shownRequests()
			}
		}
		if f.Shown > 0 && oracle.verdict != o.without {
			all = append(all, f)
		}
	}
	return all
}

func hasVerdict(findings []Finding, verdicts ...Verdict) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return slices.Contains(verdicts, f.Verdict) })
}
