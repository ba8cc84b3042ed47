package operators

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// shrinker looks for the smallest plans that still have the findings of a report.
type shrinker struct {
	base  *world
	o     Options
	steps []step

	mu   sync.Mutex
	refs map[string]func() (*reference, error) // by the parts of the workload
}

// trial is a plan with a part of the workload, and the finding that it has.
type trial struct {
	plan    Plan
	parts   []part
	finding *Finding
}

// shrink sets Finding.Smallest of the first unexpected finding of each verdict and kind of plans.
func (r *Report) shrink(ctx context.Context, base *world, o Options, steps []step) error {
	s := &shrinker{base: base, o: o, steps: steps, refs: map[string]func() (*reference, error){}}
	type class struct {
		verdict Verdict
		kind    string
	}
	seen := map[class]bool{}
	group, ctx := errgroup.WithContext(ctx)
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Plan == nil || f.Expected != "" || seen[class{f.Verdict, f.Plan.Kind}] {
			continue
		}
		seen[class{f.Verdict, f.Plan.Kind}] = true
		group.Go(func() error {
			smallest, err := s.smallest(ctx, f)
			if err != nil && ctx.Err() == nil {
				o.log("%v of %v is not made smaller: %v", f.Verdict, f.Plan, err) // it remains a finding
				return nil
			}
			f.Smallest = smallest
			return err
		})
	}
	return group.Wait()
}

// smallest leaves out parts of the workload, and faults of the plan, until none can be left out without the verdict.
// It returns nil if nothing can be left out.
func (s *shrinker) smallest(ctx context.Context, f *Finding) (*Finding, error) {
	whole := trial{*f.Plan, partsOf(s.steps), f}
	best, err := s.untilEnd(ctx, whole)
	if err != nil {
		return nil, err
	}
	tried := map[string]bool{}
	try := func(smaller trial) error {
		if text := smaller.text(s.steps); len(smaller.parts) > 0 && !tried[text] {
			tried[text] = true
			shows, err := s.shows(ctx, &smaller, f.Verdict)
			if err != nil {
				return err
			}
			if shows {
				best = smaller
			}
		}
		return nil
	}
	for text := ""; text != best.text(s.steps); {
		text = best.text(s.steps)
		tried[text] = true
		for _, some := range cuts(best) {
			if err := try(trial{plan: best.plan, parts: without(best.parts, some)}); err != nil {
				return nil, err
			}
		}
	}
	kind, _ := kindOf(best.plan.Kind)
	for times := 1; times < kind.times && best.plan.Times == 0; times++ {
		fewer := best.plan
		fewer.Times = times
		if err := try(trial{plan: fewer, parts: best.parts}); err != nil {
			return nil, err
		}
	}
	if best.finding == f {
		return nil, nil
	}
	return s.repeat(ctx, best, f.Verdict)
}

func (t trial) text(steps []step) string {
	return t.plan.String() + " " + describeParts(steps, t.parts)
}

// untilEnd leaves out the steps to which the runs of a finding did not come: these runs were performed without them.
func (s *shrinker) untilEnd(ctx context.Context, t trial) (trial, error) {
	if kind, _ := kindOf(t.plan.Kind); kind.Name == withdrawnKind || kind.during == delayed {
		return t, nil // later steps make a difference
	}
	end := 0
	for _, run := range t.finding.runs {
		end = max(end, run.ended)
	}
	parts := slices.DeleteFunc(slices.Clone(t.parts), func(p part) bool { return p.step > end })
	if len(parts) == len(t.parts) || len(parts) == 0 {
		return t, nil
	}
	ref, err := s.reference(ctx, parts)
	if err != nil || ref == nil || !slices.Contains(allPlans(ref, only(s.steps, parts)), t.plan) {
		return t, err
	}
	f := ofVerdict(judgeOutcomes(t.finding.runs, ref, s.o), t.finding.Verdict)
	if f == nil {
		return t, nil
	}
	return trial{t.plan, parts, f}, nil
}

func ofVerdict(findings []Finding, v Verdict) *Finding {
	for _, f := range findings {
		if f.Verdict == v {
			return &f
		}
	}
	return nil
}

// cuts returns the parts to leave out, in the order in which that is tried: all after the plan's step, all before it,
// each other step from the last, each object. Without an object the plan's step is none.
func cuts(t trial) [][]part {
	at := t.plan.Place.Step
	var after, before []part
	var steps, objects [][]part
	for _, p := range slices.Backward(t.parts) {
		switch {
		case p.step > at:
			after = append(after, p)
		case p.step < at:
			before = append(before, p)
		}
		ofStep := slices.DeleteFunc(slices.Clone(t.parts), func(other part) bool { return other.step != p.step })
		if p.step != at {
			steps = append(steps, ofStep)
		}
		if p.step != at || len(ofStep) > 1 {
			objects = append(objects, []part{p})
		}
	}
	return append([][]part{after, before}, append(steps, objects...)...)
}

func without(parts, some []part) []part {
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return slices.Contains(some, p) })
}

// shows runs a trial once, if the workload has the plan without the parts that are left out.
func (s *shrinker) shows(ctx context.Context, t *trial, verdict Verdict) (bool, error) {
	ref, err := s.reference(ctx, t.parts)
	steps := only(s.steps, t.parts)
	if err != nil || ref == nil || !slices.Contains(allPlans(ref, steps), t.plan.entire()) {
		return false, err
	}
	o, err := perform(ctx, s.base, s.o, steps, ref, &t.plan)
	if err != nil || !o.found {
		return false, err
	}
	t.finding = ofVerdict(judgeOutcomes([]*outcome{o}, ref, s.o), verdict)
	return t.finding != nil, nil
}

// repeat runs a trial as often as the finding was repeated.
func (s *shrinker) repeat(ctx context.Context, t trial, verdict Verdict) (*Finding, error) {
	ref, err := s.reference(ctx, t.parts)
	if err != nil {
		return nil, err
	}
	for len(t.finding.runs) < s.o.Repeat {
		o, err := perform(ctx, s.base, s.o, only(s.steps, t.parts), ref, &t.plan)
		if err != nil {
			return nil, err
		}
		t.finding = ofVerdict(judgeOutcomes(append(t.finding.runs, o), ref, s.o), verdict)
	}
	if len(t.parts) < len(partsOf(s.steps)) {
		t.finding.Steps = describeParts(s.steps, t.parts)
	}
	return t.finding, nil
}

// reference returns that of a part of the workload, or nil if the part cannot be performed, or has findings without a
// fault.
func (s *shrinker) reference(ctx context.Context, parts []part) (*reference, error) {
	text := describeParts(s.steps, parts)
	s.mu.Lock()
	ask := s.refs[text]
	if ask == nil {
		ask = sync.OnceValues(func() (*reference, error) { return s.newReference(ctx, text, only(s.steps, parts)) })
		s.refs[text] = ask
	}
	s.mu.Unlock()
	return ask()
}

func (s *shrinker) newReference(ctx context.Context, text string, steps []step) (*reference, error) {
	s.o.log("smaller findings: the steps %s without a fault", text)
	ref, findings, err := newReference(ctx, s.base, s.o, steps)
	if err == nil {
		if len(findings) > 0 || len(ref.states) < len(steps) {
			return nil, nil
		}
		err = ref.withNext(ctx, s.base, s.o, steps)
	}
	if bad := (unperformable{}); errors.As(err, &bad) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ref, nil
}

// unperformable is the error of a workload with which nothing can be judged, as of a step that the server refuses
// without a fault.
type unperformable struct{ error }

func (e unperformable) Unwrap() error { return e.error }

// timesWords are the ends of the texts of plans with fewer faults than their kind has.
var timesWords = map[int]string{1: ":once", 2: ":twice"}

// entire returns the plan with all faults of its kind.
func (p Plan) entire() Plan {
	p.Times = 0
	return p
}

// cutTimes cuts the number of faults off the text of a plan. It is zero for all of the kind.
func cutTimes(text string) (string, int) {
	for times, word := range timesWords {
		if base, found := strings.CutSuffix(text, word); found {
			return base, times
		}
	}
	return text, 0
}
