package operators

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
)

// furtherRuns performs runs after those of the plans.
type furtherRuns struct {
	without func(context.Context, Options) ([]*outcome, error) // a fault
	ofPlan  func(context.Context, *reference, Plan) (Result, []Finding, error)
}

// confirm looks whether more runs without a fault differ in fields in which the plans' runs differ from the first ones:
// these may have been alike by chance. Plans whose findings rest on fields then run again, beside a reference of all
// such runs. What does not rest on fields remains in any case.
func (r *Report) confirm(ctx context.Context, runs furtherRuns, o Options, ref *reference, found [][]Finding) error {
	if !slices.ContainsFunc(found, restsOnFields) {
		return nil
	}
	o.log("some runs end in other values of fields: %d more runs without a fault", referenceRuns)
	wider, unstable, err := ref.widen(ctx, runs, o)
	if err != nil {
		return err
	}
	stable := len(unstable) == 0
	if !stable && o.without != Unstable {
		r.add([]Finding{{Verdict: Unstable, Facts: first(unstable), Shown: 1, Of: 1}}, o)
	}
	if stable && slices.EqualFunc(wider.masks, ref.masks, mask.isSame) {
		return nil
	}
	if stable {
		ref = wider
	}
	group, each := errgroup.WithContext(ctx)
	for i, findings := range found {
		if !restsOnFields(findings) {
			continue
		}
		found[i] = withoutFields(findings, ref, o)
		r.Results[i].Verdicts = verdictsOf(found[i])
		if !stable {
			continue
		}
		group.Go(func() error {
			result, again, err := runs.ofPlan(each, ref, r.Results[i].Plan)
			for _, f := range found[i] {
				if !hasVerdict(again, f.Verdict) {
					again = append(again, f)
				}
			}
			result.Reached, result.Verdicts = result.Reached || len(again) > 0, verdictsOf(again)
			r.Results[i], found[i] = result, again
			return err
		})
	}
	return group.Wait()
}

// restsOnFields reports whether a run of a plan's findings ended with other values of fields.
func restsOnFields(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool {
		return slices.ContainsFunc(f.runs, func(run *outcome) bool { return slices.ContainsFunc(run.differences, isOfField) })
	})
}

func isOfField(d difference) bool { return d.path != "" }

// withoutFields returns those of a plan's findings that its runs have if the values of fields do not count.
func withoutFields(findings []Finding, ref *reference, o Options) []Finding {
	var runs []*outcome
	for _, run := range findings[0].runs { // each finding of a plan has all its runs
		rest := *run
		rest.differences = slices.DeleteFunc(slices.Clone(run.differences), isOfField)
		runs = append(runs, &rest)
	}
	return judgeOutcomes(runs, ref, o)
}

// widen returns the reference of these runs without a fault and of as many more, or the facts in which they differ in
// substance. Then there are others, with more quiet, as for the first ones.
func (ref *reference) widen(ctx context.Context, runs furtherRuns, o Options) (*reference, []string, error) {
	o.Quiet, o.names = ref.quiet, ref.names
	for attempt := 1; ; attempt++ {
		more, err := runs.without(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		wider, unstable := learn(slices.Concat(ref.outcomes, more))
		if len(unstable) == 0 && len(wider.states) < len(ref.states) {
			unstable = []string{"a run without a fault ends early"}
		}
		wider.defined, wider.names, wider.quiet, wider.next = ref.defined, ref.names, o.Quiet, ref.next
		if len(unstable) == 0 || attempt == referenceRuns {
			return wider, unstable, nil
		}
		o.Quiet *= 2
		o.log("more runs without a fault differ: once more, with %v of quiet", o.Quiet)
	}
}

// isSame reports whether two masks have the same fields, which are related in the same way.
func (m mask) isSame(as mask) bool {
	return maps.EqualFunc(m, as, maps.Equal[map[string]bool, map[string]bool])
}
