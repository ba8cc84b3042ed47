package operators

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/keepwatch/keepwatch/internal/pause"
)

// settle waits until the operator is quiet, and, with a reference, in its state after step n. It ends the run if that
// takes longer than the patience.
func (r *run) settle(ctx context.Context, n int) error {
	r.giveTime()
	for {
		if err := r.keepRunning(); err != nil {
			return err
		}
		quiet := r.isQuiet(n)
		late := r.isLate(n, quiet)
		if r.fault.holdsAnswer() {
			late = false
			r.giveTime()
		}
		if r.isOutage(n) {
			if late = false; r.waited() > r.outageTime() || r.quiet.time > longQuiet*r.options.Quiet {
				r.fault.endOutage()
				r.world.traffic.note("its writes are executed again")
				r.giveTime()
				continue
			}
		}
		again, err := r.intervene(ctx, n, quiet, late)
		if err != nil {
			return err
		}
		if again {
			r.giveTime()
			continue
		}
		if quiet || late {
			done, err := r.arrived(ctx, n, quiet, late)
			if done || err != nil {
				return err
			}
		}
		if err := pause.For(ctx, pollPause); err != nil {
			return err
		}
	}
}

// until waits for a state, and keeps the operator running. It returns false if the step is late before that.
func (r *run) until(ctx context.Context, n int, is func() (bool, error)) (bool, error) {
	r.giveTime()
	for {
		if err := r.keepRunning(); err != nil {
			return false, err
		}
		if done, err := is(); done || err != nil {
			return done, err
		}
		if r.isLate(n, r.isQuiet(n)) {
			return false, nil
		}
		if err := pause.For(ctx, pollPause); err != nil {
			return false, err
		}
	}
}

// giveTime gives the operator new time to arrive.
func (r *run) giveTime() {
	a := r.world.traffic.activity()
	r.began, r.actions = r.quiet.whole, a.actions+a.reads
}

// waited returns the time since then.
func (r *run) waited() time.Duration { return r.quiet.whole - r.began }

// longQuiet is the number of times Options.Quiet after which an operator without writes no longer tries, has nothing to
// do by what it reads, or has all the watches that it needs.
const longQuiet = 5

// isOutage reports whether the operator has met an outage that goes on.
func (r *run) isOutage(n int) bool {
	if r.fault == nil || r.fault.during != outage || r.fault.place.Step != n || r.fault.isOver() {
		return false
	}
	found, _ := r.fault.state()
	return found
}

func (r *run) outageTime() time.Duration {
	if r.options.outage > 0 {
		return r.options.outage
	}
	return outageTime
}

// intervene ends what the plan does until the operator is quiet. It reports whether it has ended something: then the
// operator has new time to arrive.
func (r *run) intervene(ctx context.Context, n int, quiet, late bool) (bool, error) {
	quiet = quiet && (r.ref == nil || r.quiet.time >= r.options.Quiet+r.ref.pauses[n])
	repeats := r.world.traffic.repeats()
	switch {
	case r.world.traffic.isPast() && (quiet && r.hasDecided() || repeats || late):
		if err := r.world.traffic.catchUp(); err != nil {
			return false, err
		}
		r.world.traffic.note("its reads are current again")
		return true, nil
	case (quiet || repeats || late) && r.world.traffic.deliver():
		r.world.traffic.note("the late events arrive")
		return true, nil
	case quiet && r.fault.blockedUID() != "":
		return r.release(ctx)
	}
	return false, nil
}

// hasDecided reports whether the operator has done something with its old reads: it has written to the object of the
// plan's write, or asked the server for the newest ones of that type. After a restart with the state before the write,
// this is what comes next. With the state before the step, the operator may have nothing to do.
func (r *run) hasDecided() bool {
	return r.world.traffic.hasDecided() ||
		r.fault.mayIdle && r.quiet.time >= longQuiet*r.options.Quiet
}

// arrived compares the state with that of the reference. If it is late, it ends the run with what is missing.
func (r *run) arrived(ctx context.Context, n int, quiet, late bool) (bool, error) {
	revision := r.world.Revision()
	if revision == r.compared && !late {
		return false, nil
	}
	r.compared = revision
	of := r.world.traffic.touchedTypes()
	if r.ref != nil {
		of = maps.Clone(of)
		maps.Copy(of, r.ref.types[n])
	}
	s, err := r.world.state(ctx, of)
	if isUncalled(err) { // a webhook of the operator has to convert an object
		r.compared = 0
		if late {
			r.outcome.unfulfilled = fmt.Sprintf("step %d: %v", n, err)
			return true, errEnded
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	missing := r.differences(n, s, of)
	gone := r.fault.deletedNamespace() != "" || r.fault.isWithdrawn()
	reached := true
	if r.steps[n].action == await && !gone {
		if reached, err = r.world.reached(ctx, r.steps[n]); err != nil {
			return false, err
		}
	}
	if quiet && reached && len(missing) == 0 {
		if gone {
			return true, errEnded // the rest of the workload has lost its ground
		}
		if r.ref == nil {
			applied, err := r.world.keysOf(r.steps[n])
			if err != nil {
				return false, err
			}
			r.outcome.applied = append(r.outcome.applied, applied)
		}
		r.outcome.arrive(s, r.world.traffic.activity().watches, r.quiet.longest, of)
		r.outcome.watched = append(r.outcome.watched, r.world.traffic.watched())
		return true, nil
	}
	if !late {
		return false, nil
	}
	if quiet || r.fault.blockedUID() == "" { // else the state waits for somebody else
		r.outcome.differences = missing
	}
	if !reached {
		r.outcome.unfulfilled = fmt.Sprintf("step %d: what %s waits for does not come within %v", n, r.steps[n].name,
			r.options.Patience)
	}
	if !quiet {
		r.describeUnrest(n)
	}
	return true, errEnded
}

// differences compares a state of some types with the one that step n should end in.
func (r *run) differences(n int, have state, of typeSet) []difference {
	switch gone := r.fault.deletedNamespace(); {
	case r.ref == nil:
		return nil
	case gone != "":
		return remains(gone, have)
	case r.fault.isWithdrawn():
		return r.ref.withoutStep(n, have, of)
	default:
		return differences(r.ref.states[n].of(of), r.ref.masks[n].on(have))
	}
}

func (r *run) writesOf(n int) (count int) {
	for _, q := range r.world.traffic.record() {
		if q.Step == n && q.Verb != "" {
			count++
		}
	}
	return count
}

// describeUnrest says why the operator is not quiet.
func (r *run) describeUnrest(n int) {
	a := r.world.traffic.activity()
	if r.ref != nil && r.quiet.time >= r.options.Quiet && a.watches < r.ref.watches[n] {
		r.outcome.unfulfilled = fmt.Sprintf("step %d: the operator has %d watches, without the fault %d", n, a.watches,
			r.ref.watches[n])
		return
	}
	r.outcome.restless = fmt.Sprintf("step %d: after %v the operator is not quiet: %d writes and %d reads in this step",
		n, r.options.Patience, r.writesOf(n), a.reads-r.reads)
}

// isLate reports whether a step has taken too long. An operator that is not quiet, and does not do much either, has
// more time: the machine may be slow. So has one that is quiet without all watches: it may still be starting.
func (r *run) isLate(n int, quiet bool) bool {
	a := r.world.traffic.activity()
	switch active := a.actions+a.reads-r.actions >= manyActions; {
	case !active && (!quiet || a.watches < r.wantedWatches(n)):
		return r.waited() > moreTime*r.options.Patience
	case r.ref == nil || r.options.hurry == 0:
		return r.waited() > r.options.Patience
	case quiet:
		return r.quiet.time > r.options.hurry
	default:
		return r.waited() > r.options.hurry
	}
}

// watchPause is how long clients wait before they begin a watch again that was broken, or a little longer.
const watchPause = 5 * time.Second

// wantedWatches returns the number of watches that an operator without a fault has after a step.
func (r *run) wantedWatches(n int) int {
	if r.ref == nil {
		return 1
	}
	return r.ref.watches[n]
}

// isQuiet reports whether nothing has happened for the time of Options.Quiet, and the operator has as many watches as
// in the reference. One that was started again has fewer if some begin when they are needed, and what needed them is
// done: then it is quiet after a longer time.
func (r *run) isQuiet(n int) bool {
	a := r.world.traffic.activity()
	if r.quiet.look(time.Now(), a, r.world.Revision()) {
		letOthersRun()
		a = r.world.traffic.activity()
		r.quiet.look(time.Now(), a, r.world.Revision())
	}
	if r.world.traffic.isRestarted() && a.watches > 0 && r.quiet.time >= max(longQuiet*r.options.Quiet, watchPause) {
		return true
	}
	return r.quiet.time >= r.options.Quiet && a.watches >= r.wantedWatches(n)
}
