package background

import (
	"context"
	"sync"
)

// Set is the tasks of one object. A nil Set has none.
type Set struct {
	runner *Runner
	object Object
	tasks  []*Task

	mu      sync.Mutex
	running map[*Task]*run
	settled map[*Task]bool // ended for the lifetime of the process
}

// State is a state of the object.
type State struct {
	Object map[string]any
	// Live: the object exists and is not being deleted.
	Live bool
	// Finalized: the object has the operator's finalizer. A daemon starts only then, since
	// the object could be deleted before the daemon ends otherwise. A running daemon
	// continues if a client removes the finalizer.
	Finalized bool
}

func (s State) has(t *Task) bool { return s.Live && t.Filter.Matches(s.Object) }

// Sync starts the tasks that the object should have in a state, and stops the others. A
// stopped task starts again only after it has ended. Sync is not called concurrently.
func (s *Set) Sync(state State) {
	if s == nil {
		return
	}
	for _, t := range s.tasks {
		s.sync(t, state.has(t), state.Finalized || !t.Daemon)
	}
}

func (s *Set) sync(t *Task, wanted, startable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r := s.running[t]; {
	case r != nil && !wanted:
		r.stop(s.runner.unwanted)
	case r == nil && wanted && startable && !s.settled[t]:
		s.start(t)
	}
}

// start starts a task. The caller holds s.mu.
func (s *Set) start(t *Task) {
	r := &run{Task: t, set: s, stopping: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(s.runner.ctx)
	if !s.runner.start(r) {
		r.cancel(s.runner.stopped)
		return
	}
	s.running[t] = r
}

// WantsDaemon reports whether the object should have a daemon in a state.
func (s *Set) WantsDaemon(state State) bool {
	if s == nil {
		return false
	}
	for _, t := range s.tasks {
		if t.Daemon && state.has(t) && !s.isSettled(t) {
			return true
		}
	}
	return false
}

func (s *Set) isSettled(t *Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled[t]
}

// RunsDaemon reports whether a daemon is running that was not abandoned.
func (s *Set) RunsDaemon() bool { return s.runs(true) }

// RunsTimer reports whether a timer is running, called or waiting, that was not abandoned.
func (s *Set) RunsTimer() bool { return s.runs(false) }

func (s *Set) runs(daemon bool) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, r := range s.running {
		if t.Daemon == daemon && !r.abandoned {
			return true
		}
	}
	return false
}

// Empty reports whether no task is running.
func (s *Set) Empty() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running) == 0
}

// ended removes a task that was running.
func (s *Set) ended(r *run, settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range r.timers {
		t.Stop()
	}
	r.stopped = true // Runner.Stop may still have it
	delete(s.running, r.Task)
	if settled {
		s.settled[r.Task] = true
	}
}
