package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// run is one run of the workload beside the operator, with or without a disturbance.
type run struct {
	options  Options
	steps    []step // the first one is the start, and does nothing
	ref      *reference
	world    *world
	fault    *disturbance // nil in the reference
	operator *instance
	before   keepwatch.Revision // the state before the current step
	reads    int                // before the current step
	actions  int                // with the reads, when the operator was given time to arrive
	began    time.Duration      // of quiet.whole, at that moment
	starts   int                // by itself ended instances of the current step
	outcome  *outcome

	quiet    quiet
	compared keepwatch.Revision // the revision of the newest comparison
}

// perform is one run. Options.Parallel bounds the runs at a time.
func perform(ctx context.Context, from *world, o Options, steps []step, ref *reference, plan *Plan) (*outcome, error) {
	select {
	case o.slots <- struct{}{}:
		defer func() { <-o.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r, err := newRun(ctx, from, o, steps, ref, plan)
	if err != nil {
		return nil, err
	}
	return r.do(ctx)
}

// newRun starts a world. A run of the reference has no plan, and ref is nil.
func newRun(ctx context.Context, from *world, o Options, steps []step, ref *reference, plan *Plan) (*run, error) {
	w, err := from.fork()
	if err != nil {
		return nil, err
	}
	if err := w.listen(ctx, o); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if ref != nil {
		o.Quiet = ref.quiet
		if ref.next != nil {
			o.Quiet = max(o.Quiet, ref.next.quiet)
		}
	}
	r := &run{options: o, steps: steps, ref: ref, world: w, outcome: &outcome{plan: plan}, quiet: quiet{least: o.Quiet}}
	w.traffic.names = r.patterns()
	if ref != nil {
		w.given = ref.given
	} else {
		begin := from // as all runs do, except for the addresses of webhooks
		if o.servesWebhooks() {
			begin = w
		}
		if w.given, err = begin.readGiven(ctx, w.traffic.patterns()); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	r.outcome.given = w.given
	w.label = fmt.Sprintf("%d %s", o.runs.Add(1), cmp.Or(plan.text(), "without a fault"))
	if plan != nil {
		kind, _ := kindOf(plan.Kind)
		r.fault = &disturbance{Kind: kind, place: plan.Place, times: cmp.Or(plan.Times, kind.times, 1), run: r}
		w.traffic.fault = r.fault
	}
	return r, nil
}

// patterns returns those of the operator's random names, and of its next version's.
func (r *run) patterns() []namePattern {
	if r.ref == nil {
		return slices.Clone(r.options.names)
	}
	all := slices.Clone(r.ref.names)
	if r.ref.next != nil {
		all = append(all, r.ref.next.names...)
	}
	return all
}

// errEnded ends a run early, with the outcome that it has.
var errEnded = errors.New("the run has ended")

// do performs the workload. The error is the judge's own.
func (r *run) do(ctx context.Context) (o *outcome, err error) {
	began := time.Now()
	defer func() {
		err = errors.Join(err, r.end())
		r.outcome.took = time.Since(began)
		r.outcome.requests = r.world.traffic.record()
	}()
	if err := r.startOperator(); err != nil {
		return nil, err
	}
	for n := range r.steps {
		if r.steps[n].action == omit {
			r.outcome.stay()
			continue
		}
		err := r.step(ctx, n)
		if err == nil {
			err = r.check(ctx, n)
		}
		if errors.Is(err, errEnded) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if r.fault != nil {
		r.outcome.gone, r.outcome.withdrawn = r.fault.deletedNamespace(), r.fault.isWithdrawn()
		var own error
		if r.outcome.found, own = r.fault.state(); own != nil {
			return nil, own
		}
	}
	return r.outcome, nil
}

// check looks at a run at the end of the plan's step. It ends a run whose place was not reached.
func (r *run) check(ctx context.Context, n int) error {
	if r.fault == nil || r.fault.place.Step != n {
		return nil
	}
	if found, err := r.fault.state(); err != nil || !found {
		return errors.Join(err, errEnded)
	}
	return r.checkAnnotation(ctx)
}

// end stops everything of the run.
func (r *run) end() error {
	var err error
	if r.operator != nil {
		r.operator.kill()
		r.world.traffic.end()
		err = r.operator.wait()
	}
	return errors.Join(err, r.world.traffic.catchUp(), r.world.close())
}

func (r *run) startOperator() error {
	o := r.options.Operator
	if r.isUpgraded() {
		o = *r.options.Next
		if r.ref.next != nil {
			r.ref = r.ref.next // from here on, its states are those to arrive at
		}
	}
	r.world.traffic.forgetWatches()
	i, err := o.start(r.world)
	if err != nil {
		return err
	}
	r.operator, r.quiet.held = i, i.held
	r.world.traffic.started(i.kill)
	return nil
}

// step performs a step, and waits until the operator is quiet in the state of the reference.
func (r *run) step(ctx context.Context, n int) error {
	r.starts, r.outcome.ended, r.compared = 0, n, 0
	r.quiet.begin()
	r.before, r.reads = r.world.Revision(), r.world.traffic.activity().reads
	r.world.traffic.begin(n)
	mode, here := during(0), false
	if r.fault != nil {
		mode, here = r.fault.during, r.fault.place.Step == n
	}
	switch {
	case mode == down && here:
		r.fault.happens("the operator is killed, and started again after the step")
		r.operator.kill()
		if err := r.operator.wait(); err != nil {
			return err
		}
		return r.restartAfter(ctx, n)
	case mode == delayed && here:
		return r.delayStep(ctx, n)
	case mode == expired && here:
		return r.expireStep(ctx, n)
	case mode == unobserved && here:
		r.world.traffic.hold()
		r.outcome.arrive(nil, 0, 0, nil)
		return r.performUnobserved(ctx, n)
	case mode == unobserved && r.fault.place.Step == n-1:
		defer r.world.traffic.resume()
		if err := r.perform(ctx, n); err != nil {
			return r.tooEarly(ctx, err)
		}
		if err := r.world.DropHistory(ctx); err != nil {
			return err
		}
		r.world.traffic.resume()
		return r.settle(ctx, n)
	}
	if err := r.perform(ctx, n); err != nil {
		if mode == delayed && r.fault.place.Step == n-1 {
			return r.tooEarly(ctx, err)
		}
		return r.unperformed(ctx, n, err)
	}
	if err := r.settle(ctx, n); err != nil || !here {
		return err
	}
	switch mode {
	case deleted:
		return r.deleteObject(ctx, n)
	case recreated:
		return r.recreateObject(ctx, n)
	case insisted:
		return r.insist(ctx, n)
	case blocked:
		return r.hold(ctx, n)
	case undefined:
		return r.redefine(ctx, n)
	default:
		return nil
	}
}

// restartAfter performs a step while the operator is down, and starts it. What its webhooks would have to admit comes
// after that.
func (r *run) restartAfter(ctx context.Context, n int) error {
	performed, err := r.world.perform(ctx, r.steps[n])
	if err != nil && !isUncalled(err) {
		return r.tooEarly(ctx, err)
	}
	if err := r.startOperator(); err != nil {
		return err
	}
	if err := r.performFrom(ctx, n, performed); err != nil {
		return r.unperformed(ctx, n, err)
	}
	return r.settle(ctx, n)
}

// performUnobserved performs the first step of which the operator sees nothing. The place is not reached if the next
// step could not create its objects before the operator has seen this one.
func (r *run) performUnobserved(ctx context.Context, n int) error {
	if err := r.perform(ctx, n); err != nil {
		return r.tooEarly(ctx, err)
	}
	if early, err := r.isEarly(ctx, n+1); err != nil {
		return err
	} else if early {
		r.outcome.unreached = fmt.Sprintf("step %d needs what the operator does in step %d", n+1, n)
		return errEnded
	}
	r.fault.happens("the operator is cut off during this step and the next one")
	return nil
}

// isEarly reports whether a step needs what the operator has to do first. An object may still be deleted: it waits for
// a finalizer, and applying it now would not create it again. Or one that is to be changed or deleted is not there yet.
func (r *run) isEarly(ctx context.Context, n int) (bool, error) {
	for _, o := range r.steps[n].objects {
		o = o.DeepCopy()
		resource, err := r.world.resource(o)
		if err != nil {
			return false, err
		}
		have, err := resource.Get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case err == nil && have.GetDeletionTimestamp() != nil, apierrors.IsNotFound(err) && r.steps[n].action != apply:
			return true, nil
		case err != nil && !apierrors.IsNotFound(err):
			return false, err
		}
	}
	return false, nil
}

// unperformed ends a run in which a step was refused.
func (r *run) unperformed(ctx context.Context, n int, err error) error {
	if ctx.Err() != nil || errors.Is(err, errEnded) {
		return err
	}
	if r.fault == nil {
		return unperformable{err}
	}
	r.outcome.unfulfilled = fmt.Sprintf("step %d: %v", n, err)
	return errEnded
}

// tooEarly ends a run in which a step cannot be performed before the operator has seen the one before: its place was
// not reached.
func (r *run) tooEarly(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, errEnded) {
		return err
	}
	r.fault.forget()
	r.outcome.unreached = err.Error()
	return errEnded
}

const (
	// lastAnswer is how long a killed operator runs after the answer that it should receive.
	lastAnswer = 20 * time.Millisecond
	// maxDeaths bounds the starts of an operator that exits by itself, in each step.
	maxDeaths = 5
	// deathPause is the time from such an end to the next start.
	deathPause = 100 * time.Millisecond
)

// keepRunning starts the operator again after its end.
func (r *run) keepRunning() error {
	r.world.traffic.killLate()
	if !r.operator.killed.Load() && !r.operator.hasEnded() {
		return nil
	}
	if err := r.operator.wait(); err != nil {
		return err
	}
	if !r.operator.killed.Load() {
		reason := "without an error"
		if r.operator.err != nil {
			reason = "with " + r.operator.err.Error()
		}
		r.world.traffic.note("the operator exits by itself " + reason)
		r.outcome.deaths = append(r.outcome.deaths, fmt.Sprintf("step %d: the operator exits by itself %s", r.outcome.ended,
			reason))
		if r.starts++; r.starts >= maxDeaths {
			return errEnded
		}
		time.Sleep(deathPause)
	}
	return r.startOperator()
}

// travel answers the reads of the next instance from the state of a revision. If that is still the newest one, the
// instance has nothing to decide.
func (r *run) travel(to keepwatch.Revision) error {
	past, err := r.world.past(to)
	if err != nil {
		return err
	}
	r.world.traffic.travel(past, r.world.Revision() == to)
	return nil
}
