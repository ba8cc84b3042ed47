package operators

import (
	"context"
	"errors"
	"slices"
	"time"
)

// SwitchOff switches the oracle of a verdict off.
func (o *Options) SwitchOff(v Verdict) { o.without = v }

// Without returns the findings of the same runs of plans if the oracle of a verdict is switched off.
func (r *Report) Without(v Verdict) (rest []Finding) {
	o := r.options
	o.without = v
	for _, f := range r.Findings {
		if f.Plan == nil {
			rest = append(rest, f)
			continue
		}
		rest = append(rest, judgeReference(f.runs, f.ref, o)...)
	}
	return rest
}

// Hurry is the patience of runs with a plan, or of those without a fault if there are no plans. An operator that is
// quiet for so long is late: a retry that a client makes after a second is waited for, however slow the machine is.
func (o *Options) Hurry(patience time.Duration) {
	o.hurry = patience
	if slices.Equal(o.Plans, []string{noPlan}) {
		o.Patience = patience
	}
}

// Outage is the length of an outage.
func (o *Options) Outage(length time.Duration) { o.outage = length }

// Answer is the time after which a timeout is answered.
func (o *Options) Answer(late time.Duration) { o.answer = late }

// Starts measures what a plan needs before its operator starts, and after its end.
func Starts(ctx context.Context, o Options, n int) (took []time.Duration, err error) {
	base, err := newWorld(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, base.close()) }()
	for range n {
		began := time.Now()
		w, err := base.fork()
		if err != nil {
			return nil, err
		}
		if err := w.close(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
