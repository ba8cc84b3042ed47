package operators

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
)

// confirm looks whether more runs without a fault differ in fields in which the plans' runs differ from the first ones:
// these may have been alike by chance. Plans with findings then run again, beside a reference of all such runs.
func (r *Report) confirm(ctx context.Context, base *world, o Options, steps []step, ref *reference,
	found [][]Finding) error {
	if !slices.ContainsFunc(found, restsOnFields) {
		return nil
	}
	o.log("some runs end in other values of fields: %d more runs without a fault", referenceRuns)
	wider, unstable, err := ref.widen(ctx, base, o, steps)
	if err != nil {
		return err
	}
	if len(unstable) > 0 {
		clear(found)
		for i := range r.Results {
			r.Results[i].Verdicts = nil
		}
		r.add([]Finding{{Verdict: Unstable, Facts: first(unstable), Shown: 1, Of: 1}}, o)
		return nil
	}
	if maps.EqualFunc(maskedPaths(wider), maskedPaths(ref), maps.Equal[map[string]bool, map[string]bool]) {
		return nil
	}
	group, each := errgroup.WithContext(ctx)
	for i := range found {
		if len(found[i]) > 0 {
			group.Go(func() (err error) {
				r.Results[i], found[i], err = runPlan(each, base, o, steps, wider, r.Results[i].Plan)
				return err
			})
		}
	}
	return group.Wait()
}

// restsOnFields reports whether a run of a plan's findings ended with other values of fields.
func restsOnFields(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool {
		return slices.ContainsFunc(f.runs, func(run *outcome) bool {
			return slices.ContainsFunc(run.differences, func(d difference) bool { return d.path != "" })
		})
	})
}

// widen returns the reference of these runs without a fault and of as many more, or the facts in which they differ in
// substance.
func (ref *reference) widen(ctx context.Context, base *world, o Options, steps []step) (*reference, []string, error) {
	o.Quiet, o.names = ref.quiet, ref.names
	more, err := runWithout(ctx, base, o, steps)
	if err != nil {
		return nil, nil, err
	}
	wider, unstable := learn(slices.Concat(ref.outcomes, more))
	if len(unstable) == 0 && len(wider.states) < len(ref.states) {
		unstable = []string{"a run without a fault ends early"}
	}
	wider.defined, wider.names, wider.quiet, wider.next = ref.defined, ref.names, ref.quiet, ref.next
	return wider, unstable, nil
}

// maskedPaths are the fields that may have any value, after any step.
func maskedPaths(ref *reference) mask {
	all := mask{}
	for _, m := range ref.masks {
		for class, paths := range m {
			if all[class] == nil {
				all[class] = map[string]bool{}
			}
			for path, related := range paths {
				all[class][path] = all[class][path] || related
			}
		}
	}
	return all
}
