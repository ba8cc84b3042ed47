package background

import (
	"context"
	"sync"
)

// Runner owns the goroutines of all tasks of an operator.
type Runner struct {
	ctx               context.Context
	stopped, unwanted error

	goroutines sync.WaitGroup

	mu       sync.Mutex // locked after a Set's, never before it
	stopping bool       // no task starts
	running  map[*run]struct{}
}

// NewRunner returns a runner. Calls get contexts derived from ctx. A call's context ends
// with the cause stopped after Stop, and with the cause unwanted when the object no longer
// has the task.
func NewRunner(ctx context.Context, stopped, unwanted error) *Runner {
	return &Runner{ctx: ctx, stopped: stopped, unwanted: unwanted, running: map[*run]struct{}{}}
}

// NewSet returns the set of an object. It has no running tasks.
func (r *Runner) NewSet(o Object, tasks []*Task) *Set {
	return &Set{runner: r, object: o, tasks: tasks, running: map[*Task]*run{}, settled: map[*Task]bool{}}
}

// Stop requests the end of all tasks. No task starts afterwards.
func (r *Runner) Stop() {
	r.mu.Lock()
	r.stopping = true
	all := make([]*run, 0, len(r.running))
	for task := range r.running {
		all = append(all, task)
	}
	r.mu.Unlock()
	for _, task := range all {
		task.set.mu.Lock()
		task.stop(r.stopped)
		task.set.mu.Unlock()
	}
}

// Wait returns when all tasks have ended.
func (r *Runner) Wait() { r.goroutines.Wait() }

// start runs a task in its own goroutine. It reports false after Stop.
func (r *Runner) start(task *run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return false
	}
	r.running[task] = struct{}{}
	r.goroutines.Go(task.run)
	return true
}

func (r *Runner) ended(task *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, task)
}
