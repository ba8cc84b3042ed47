package background

import (
	"context"
	"errors"
	"time"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/throttle"
)

// run is a running task.
type run struct {
	*Task
	set      *Set
	ctx      context.Context
	cancel   context.CancelCauseFunc
	stopping chan struct{}

	// Guarded by set.mu.
	stopped   bool // stopping is closed
	abandoned bool
	timers    []*time.Timer // of the stop
}

// stop requests the end of the task. The caller holds set.mu.
func (r *run) stop(cause error) {
	if r.stopped {
		return
	}
	r.stopped = true
	close(r.stopping)
	r.timers = append(r.timers,
		time.AfterFunc(r.Warning, func() { r.cancel(cause) }),
		time.AfterFunc(r.Warning+r.Grace, r.abandon))
}

// abandon makes the object independent of a task that does not end.
func (r *run) abandon() {
	r.set.mu.Lock()
	r.abandoned = true
	r.set.mu.Unlock()
	r.set.object.TaskAbandoned(r.Task)
}

// run calls the task until it ends.
func (r *run) run() {
	returned := false
	defer func() {
		if !returned { // its function has called runtime.Goexit, or this package panics
			r.set.object.TaskDied(r.Task)
		}
	}()
	settled := r.repeat()
	r.cancel(nil)
	r.set.ended(r, settled)
	r.set.runner.ended(r)
	returned = true
	r.set.object.TaskEnded(r.Task)
}

// repeat calls the task repeatedly. It reports whether the task has ended for the lifetime
// of the process.
func (r *run) repeat() (settled bool) {
	if !r.pause(r.Delay) {
		return false
	}
	var crashes throttle.Throttle
	retry, started := 0, time.Now()
	for {
		if !r.waitIdle() {
			return false
		}
		begun := time.Now()
		err := r.set.object.CallTask(r.ctx, r.Task, Call{Retry: retry, Started: started, Stopping: r.stopping})
		now := time.Now()
		if r.isStopped() {
			return false
		}
		v := r.Judge(err, retry, now.Sub(started))
		if after := new(cycle.RetryAfter); !v.Final && r.Daemon && !r.FixedBackoff && !errors.As(err, &after) {
			if now.Sub(begun) > crashes.Wait(begun)+time.Minute {
				crashes = throttle.Throttle{} // it has run for more than a minute
			}
			crashes = crashes.Failed(now)
			v.Delay = crashes.Wait(now)
		}
		r.set.object.TaskJudged(r.Task, v)
		switch {
		case v.Final && (v.Err != nil || r.Daemon):
			return true
		case v.Final:
			if !r.pause(r.next(begun, now)) {
				return false
			}
			retry, started, crashes = 0, time.Now(), throttle.Throttle{}
		default:
			retry++
			if !r.pause(v.Delay) {
				return false
			}
		}
	}
}

// next returns how long a timer waits after a success.
func (r *run) next(begun, now time.Time) time.Duration {
	if !r.Sharp {
		return r.Interval
	}
	return r.Interval - now.Sub(begun)%r.Interval
}

// pause waits. It reports false if the task was stopped.
func (r *run) pause(wait time.Duration) bool {
	if wait <= 0 {
		return !r.isStopped()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return !r.isStopped()
	case <-r.stopping:
		return false
	}
}

// waitIdle waits until the object was unchanged for Idle. It reports false if the task was
// stopped.
func (r *run) waitIdle() bool {
	for {
		wait := time.Until(r.set.object.LastChanged().Add(r.Idle))
		if r.Idle == 0 || wait <= 0 {
			return !r.isStopped()
		}
		if !r.pause(wait) {
			return false
		}
	}
}

func (r *run) isStopped() bool {
	select {
	case <-r.stopping:
		return true
	default:
		return false
	}
}
