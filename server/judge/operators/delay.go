package operators

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// delay holds the events of the watches of one resource.
type delay struct {
	resource string
	over     chan struct{} // closed by the end of the delay
	waits    func()        // is called when an event waits
}

// delay makes the events of a resource wait.
func (t *traffic) delay(resource string, waits func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = &delay{resource, make(chan struct{}), waits}
	clear(t.again)
}

// deliver ends the delay, if there is one, and reports that.
func (t *traffic) deliver() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.late == nil {
		return false
	}
	close(t.late.over)
	t.late = nil
	return true
}

func (t *traffic) delayOf(resource string) *delay {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.late == nil || t.late.resource != resource {
		return nil
	}
	return t.late
}

// punctual is a response to a watch whose events wait during a delay.
type punctual struct {
	http.ResponseWriter
	ctx      context.Context // of the watch
	traffic  *traffic
	resource string
}

var errWatchEnds = errors.New("the watch has ended")

func (p punctual) Write(b []byte) (int, error) {
	if late := p.traffic.delayOf(p.resource); late != nil {
		late.waits()
		select {
		case <-late.over:
		case <-p.ctx.Done():
		}
		if p.ctx.Err() != nil {
			return 0, errWatchEnds
		}
	}
	return p.ResponseWriter.Write(b)
}

func (p punctual) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// watchPlans returns a plan for each step and each watched type that changes in it.
func (ref *reference) watchPlans(kind Kind, steps []step) []Plan {
	var all []Plan
	for n := range steps {
		if !changesObjects(steps, n) {
			continue
		}
		changed := map[string]bool{}
		for _, d := range differences(ref.states[n-1], ref.states[n]) {
			resource, _, _ := strings.Cut(d.key, " ")
			changed[resource] = changed[resource] || ref.watched[n][resource]
		}
		for _, resource := range slices.Sorted(maps.Keys(changed)) {
			if changed[resource] {
				all = append(all, Plan{Kind: kind.Name, Place: Place{Step: n, Verb: watchVerb, Resource: resource}})
			}
		}
	}
	return all
}

// delayStep delays the events of the plan's type: those of its step arrive after the operator is quiet in the next one,
// if that changes objects, too, and need not wait for the operator.
func (r *run) delayStep(ctx context.Context, n int) error {
	r.delayEvents("are late")
	if err := r.perform(ctx, n); err != nil {
		return r.unperformed(ctx, n, err)
	}
	if !changesObjects(r.steps, n+1) {
		return r.settle(ctx, n)
	}
	if err := r.untilItWaits(ctx, n); err != nil {
		return err
	}
	if early, err := r.isEarly(ctx, n+1); err != nil {
		return err
	} else if early {
		return r.settle(ctx, n)
	}
	r.outcome.arrive(nil, 0, 0, nil)
	return nil
}

// untilItWaits waits until the operator does nothing more without the late events, or nothing new.
func (r *run) untilItWaits(ctx context.Context, n int) error {
	_, err := r.until(ctx, n, func() (bool, error) { return r.isQuiet(n) || r.world.traffic.repeats(), nil })
	return err
}

// delayEvents delays the events of the plan's type. The first one that waits begins the plan.
func (r *run) delayEvents(what string) {
	resource := r.fault.place.Resource
	r.world.traffic.delay(resource, func() {
		if found, _ := r.fault.state(); !found {
			r.fault.happens("the events of %s %s", resource, what)
		}
	})
}

// expireStep performs a step whose events the watches of the plan's type do not see: they break when the operator is
// quiet without these events, and cannot be resumed.
func (r *run) expireStep(ctx context.Context, n int) error {
	r.delayEvents("are lost")
	if err := r.perform(ctx, n); err != nil {
		return r.unperformed(ctx, n, err)
	}
	if err := r.untilItWaits(ctx, n); err != nil {
		return err
	}
	if err := r.world.DropHistory(ctx); err != nil {
		return err
	}
	r.world.traffic.note("the watches break, and their history has expired")
	r.world.traffic.cut(func(w *openWatch) bool { return w.resource == r.fault.place.Resource })
	r.world.traffic.deliver()
	return r.settle(ctx, n)
}
