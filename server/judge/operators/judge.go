package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Report is the verdict on an operator.
type Report struct {
	Operator string        `json:"operator"`
	Seed     uint64        `json:"seed"`
	Took     time.Duration `json:"tookNanoseconds"`
	Steps    []string      `json:"steps"` // the files of the workload, or what a derived one does
	// Places are the writes of the runs without a fault. A plan may name one by its number, from 1.
	Places []Place `json:"places"`
	// Uneven are the writes that some of those runs have, and not all. No plan is at one of them.
	Uneven []Place `json:"uneven,omitempty"`
	// Results has one for each plan that ran.
	Results []Result `json:"results"`
	// Stopped says why no plan ran, if the runs without a fault are no reference.
	Stopped string `json:"stopped,omitempty"`
	// NoPlace are the kinds that were asked for, and of which the workload gives no plan.
	NoPlace []string `json:"noPlace,omitempty"`
	// LeftOut is the number of plans that Options.Limit has left out.
	LeftOut int `json:"leftOut,omitempty"`
	// Findings are first those without a fault, and then those of the plans.
	Findings []Finding `json:"findings"`

	options Options
}

// Result says how a plan went.
type Result struct {
	Plan Plan `json:"plan"`
	// Reached is false if the operator never came to the place of the plan, in all runs. Nothing is judged then.
	Reached bool `json:"reached"`
	// Reason says why nothing was judged.
	Reason string `json:"reason,omitempty"`
	// Failed is true if a run could not be made: the reason is an error.
	Failed   bool          `json:"failed,omitempty"`
	Verdicts []Verdict     `json:"verdicts,omitempty"`
	Took     time.Duration `json:"tookNanoseconds"` // the first run
}

// Unexpected returns the findings that no expectation has.
func (r *Report) Unexpected() []Finding {
	var all []Finding
	for _, f := range r.Findings {
		if f.Expected == "" {
			all = append(all, f)
		}
	}
	return all
}

// Failed returns the results of plans whose runs could not be made.
func (r *Report) Failed() []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(one Result) bool { return !one.Failed })
}

// Err returns why a report is no success: findings that no expectation has, no plan, or plans that could not be judged.
func (r *Report) Err() error {
	switch found, failed := len(r.Unexpected()), len(r.Failed()); {
	case found > 0:
		return fmt.Errorf("%d findings", found)
	case r.Stopped != "":
		return fmt.Errorf("no plan was run: %s", r.Stopped)
	case len(r.Results) == 0 && len(r.NoPlace) > 0:
		return fmt.Errorf("no plan was run: the workload has no place for %s", strings.Join(r.NoPlace, ", "))
	case failed > 0:
		return fmt.Errorf("%d plans could not be judged", failed)
	}
	return nil
}

// Run judges an operator. It returns an error instead of a report if the operator or the server cannot be started, if
// the workload cannot be performed without a fault, or if ctx is done. At its end nothing of the operator runs.
func Run(ctx context.Context, o Options) (*Report, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	base, err := newWorld(ctx, o)
	if err != nil {
		return nil, err
	}
	report := &Report{Operator: strings.Join(o.Operator.Command, " "), Seed: o.Seed, options: o}
	steps, err := newSteps(ctx, base, o)
	if err == nil {
		for _, s := range steps[1:] {
			report.Steps = append(report.Steps, s.name)
		}
		err = report.judge(ctx, base, o, steps)
	}
	report.Took = time.Since(began)
	if err = errors.Join(err, base.close(), ctx.Err()); err != nil {
		return nil, err
	}
	return report, nil
}

// newSteps returns the start and the steps of the workload.
func newSteps(ctx context.Context, base *world, o Options) (steps []step, err error) {
	if o.Workload != "" {
		steps, err = readWorkload(o.Workload)
	} else {
		steps, err = deriveWorkload(ctx, base, o)
	}
	if err != nil {
		return nil, err
	}
	steps = append([]step{{name: "start"}}, steps...)
	if o.Steps == "" {
		return steps, nil
	}
	parts, err := parseParts(steps, o.Steps)
	if err != nil {
		return nil, err
	}
	return only(steps, parts), nil
}

// judge runs the reference and the plans.
func (r *Report) judge(ctx context.Context, base *world, o Options, steps []step) error {
	ref, findings, err := newReference(ctx, base, o, steps)
	if err != nil {
		return err
	}
	r.Places, r.Uneven = ref.places, ref.uneven
	r.add(findings, o)
	if r.hasNoReference() || len(ref.states) < len(steps) {
		r.Stopped = "the runs without a fault are no reference: " + ref.shortcoming(findings)
		return nil
	}
	if err := ref.withNext(ctx, base, o, steps); err != nil {
		return err
	}
	o.log("without a fault: %d steps, %d writes, quiet after each step", len(steps)-1, len(ref.places))
	plans, err := derive(ref, steps, o)
	if err != nil {
		return err
	}
	r.NoPlace = kindsWithout(plans, o)
	all := len(plans)
	plans = o.limited(plans)
	r.LeftOut = all - len(plans)
	results := make([]Result, len(plans))
	found := make([][]Finding, len(plans))
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(o.Parallel)
	var done progress
	for i, plan := range plans {
		group.Go(func() (err error) {
			if results[i], found[i], err = runPlan(each, base, o, steps, ref, plan); err != nil {
				return err
			}
			o.log("%d/%d %v: %s", done.next(), len(plans), plan, results[i].words())
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.Results = results
	runs := furtherRuns{
		without: func(each context.Context, o Options) ([]*outcome, error) { return runWithout(each, base, o, steps) },
		ofPlan: func(each context.Context, wider *reference, plan Plan) (Result, []Finding, error) {
			return runPlan(each, base, o, steps, wider, plan)
		},
	}
	if err := r.confirm(ctx, runs, o, ref, found); err != nil {
		return err
	}
	for _, findings := range found {
		r.add(findings, o)
	}
	if o.Whole || o.Steps != "" {
		return nil
	}
	return r.shrink(ctx, base, o, steps)
}

// hasNoReference reports whether a finding without a fault forbids to judge plans. An operator may be expected to exit
// by itself.
func (r *Report) hasNoReference() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Verdict == Unstable || f.Verdict == Restless || f.Verdict == Died && f.Expected == ""
	})
}

// progress counts the plans that have run.
type progress struct {
	mu sync.Mutex
	n  int
}

func (p *progress) next() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	return p.n
}

func (r Result) words() string {
	switch {
	case r.Failed:
		return "not judged: " + r.Reason
	case !r.Reached:
		return "not reached"
	case len(r.Verdicts) == 0:
		return "passed"
	}
	return joined(r.Verdicts)
}

func joined(verdicts []Verdict) string {
	words := make([]string, len(verdicts))
	for i, v := range verdicts {
		words[i] = v.String()
	}
	return strings.Join(words, ", ")
}

func (r *Report) add(findings []Finding, o Options) {
	for _, f := range findings {
		f.Expected = reasonFor(f, o.Expected)
		r.Findings = append(r.Findings, f)
	}
}

// allPlans returns the plans that a reference gives.
func allPlans(ref *reference, steps []step) []Plan {
	var all []Plan
	for _, kind := range Kinds {
		switch {
		case kind.during == delayed, kind.during == expired:
			all = append(all, ref.watchPlans(kind, steps)...)
			continue
		case kind.during == undefined:
			all = append(all, ref.definitionPlans(kind)...)
			continue
		case kind.fits == nil:
			all = append(all, stepPlans(kind, steps, ref.places)...)
			continue
		}
		for _, place := range ref.places {
			if kind.fits(place) && (kind.within == nil || kind.within(ref, place)) {
				all = append(all, Plan{Kind: kind.Name, Place: place})
			}
		}
	}
	return all
}

// derive returns the plans that the options select.
func derive(ref *reference, steps []step, o Options) ([]Plan, error) {
	all := allPlans(ref, steps)
	if len(o.Plans) > 0 {
		selected, err := selectPlans(all, ref.places, o.Plans)
		if err != nil {
			return nil, err
		}
		all = selected
	}
	return all, nil
}

// limited returns as many plans as Limit allows, chosen by the seed.
func (o Options) limited(all []Plan) []Plan {
	if o.Limit == 0 || len(all) <= o.Limit {
		return all
	}
	// The order of the operator's writes is not that of its next run.
	slices.SortFunc(all, func(a, b Plan) int { return strings.Compare(a.String(), b.String()) })
	random := rand.New(rand.NewPCG(o.Seed, 0))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:o.Limit]
}

// kindsWithout returns the kinds that the options ask for, and of which there is no plan.
func kindsWithout(plans []Plan, o Options) []string {
	var none []string
	for _, kind := range Kinds {
		asked := slices.Contains(o.Plans, kind.Name) || len(o.Plans) == 0 && (kind.Name != upgradedKind || o.Next != nil)
		if asked && !slices.ContainsFunc(plans, func(p Plan) bool { return p.Kind == kind.Name }) {
			none = append(none, kind.Name)
		}
	}
	return none
}

// stepPlans returns the plans of a kind that disturbs steps. An outage needs one in which the operator writes.
func stepPlans(kind Kind, steps []step, places []Place) []Plan {
	var all []Plan
	for n := range steps {
		writes := slices.ContainsFunc(places, func(p Place) bool { return p.Step == n })
		if changesObjects(steps, n) && (kind.during != unobserved || changesObjects(steps, n+1)) && (kind.during != outage ||
			writes) {
			all = append(all, Plan{Kind: kind.Name, Place: Place{Step: n}})
		}
	}
	return all
}

// changesObjects reports whether step n exists, and writes.
func changesObjects(steps []step, n int) bool {
	return n > 0 && n < len(steps) && (steps[n].action == apply || steps[n].action == patch || steps[n].action == remove)
}

// noPlan selects no plan.
const noPlan = "none"

// selectPlans returns the plans that texts name, in the order of all.
func selectPlans(all []Plan, places []Place, texts []string) ([]Plan, error) {
	var selected []Plan
	for _, text := range texts {
		if text == noPlan {
			continue
		}
		text, times := cutTimes(text)
		kind, at, single := strings.Cut(text, ":")
		if known, _ := kindOf(kind); times > 0 && times >= known.times {
			return nil, fmt.Errorf("the plan %q has no fewer faults than its kind", text)
		}
		if number, err := strconv.Atoi(at); err == nil && kindIsAtWrites(kind) {
			if number < 1 || number > len(places) {
				return nil, fmt.Errorf("the plan %q: the writes have numbers from 1 to %d", text, len(places))
			}
			text = Plan{Kind: kind, Place: places[number-1]}.String()
		}
		found := false
		for _, p := range all {
			if p.Kind == kind && (!single || p.String() == text) {
				p.Times = times
				selected, found = append(selected, p), true
			}
		}
		if !found && single {
			return nil, fmt.Errorf("the plan %q is not one of those that the workload gives", text)
		}
	}
	rank := func(p Plan) int { return slices.Index(all, p.entire()) }
	slices.SortStableFunc(selected, func(a, b Plan) int { return cmp.Compare(rank(a), rank(b)) })
	return slices.Compact(selected), nil
}

func kindIsAtWrites(name string) bool {
	kind, _ := kindOf(name)
	return kind.fits != nil
}

func kindNames() string {
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = k.Name
	}
	return strings.Join(names, ", ")
}

// reachAttempts is the number of runs in which the operator may come to the place of a plan.
const reachAttempts = 3

// runPlan runs a plan until its place is reached, and repeats it if it has a finding. Runs without the fault do not
// count. A plan whose run fails is not judged: the report says so, and others go on.
func runPlan(ctx context.Context, base *world, o Options, steps []step, ref *reference,
	plan Plan) (Result, []Finding, error) {
	result := Result{Plan: plan}
	var outcomes []*outcome
	for want, n := 1, 0; len(outcomes) < want && n < reachAttempts*want; n++ {
		outcome, err := perform(ctx, base, o, steps, ref, &plan)
		if ctx.Err() != nil {
			return result, nil, ctx.Err()
		}
		if err != nil && len(outcomes) == 0 {
			result.Failed, result.Reason = true, err.Error()
			return result, nil, nil
		}
		if err != nil {
			break // what was seen before remains
		}
		if len(outcomes) == 0 {
			result.Took, result.Reason = outcome.took, outcome.unreached
		}
		if !outcome.found {
			continue
		}
		outcomes = append(outcomes, outcome)
		if want == 1 && len(judgeOutcomes(outcomes, ref, o)) > 0 {
			want = o.Repeat
		}
	}
	if len(outcomes) == 0 {
		result.Reason = cmp.Or(result.Reason, "the operator does not come to this place")
		return result, nil, nil
	}
	findings := judgeOutcomes(outcomes, ref, o)
	result.Reached, result.Reason, result.Verdicts = true, "", verdictsOf(findings)
	return result, findings, nil
}

// judgeOutcomes asks every oracle about the runs of a plan.
func judgeOutcomes(outcomes []*outcome, ref *reference, o Options) []Finding {
	if outcomes[0].plan.Kind == upgradedKind {
		ref = ref.forUpgrade()
	}
	findings := judgeReference(outcomes, ref, o)
	for i := range findings {
		findings[i].Plan, findings[i].runs, findings[i].ref = outcomes[0].plan, outcomes, ref
	}
	return findings
}

// maxFacts bounds the facts of a finding, and maxShown the writes among its requests.
const (
	maxFacts = 5
	maxShown = 30
)

func first(facts []string) []string {
	if len(facts) > maxFacts {
		facts = append(facts[:maxFacts:maxFacts], fmt.Sprintf("and %d more", len(facts)-maxFacts))
	}
	return facts
}

// shownRequests returns what happened in the step of the plan, and in that at which the run ended.
func (o *outcome) shownRequests() []Request {
	from := o.ended
	if o.plan != nil {
		from = min(from, o.plan.Place.Step)
	}
	var all []Request
	for _, r := range o.requests {
		if r.Step >= from && r.Step <= o.ended {
			all = append(all, r)
		}
	}
	return shown(all)
}

// shown returns the first and the last of many requests, and in between what the judge did.
func shown(all []Request) []Request {
	if len(all) <= maxShown {
		return all
	}
	var some []Request
	left := 0
	for i, r := range all {
		if between := i >= maxShown/2 && i < len(all)-maxShown/2; between && r.Verb != "" {
			left++
			continue
		}
		if left > 0 {
			more := Request{Note: fmt.Sprintf("%d more writes", left), Instance: all[i-1].Instance, After: all[i-1].After}
			more.Step = all[i-1].Step
			some, left = append(some, more), 0
		}
		some = append(some, r)
	}
	return some
}
