package background

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// Task is a declared timer or daemon. It does not change.
type Task struct {
	// Handler has the id, the filter and the limits.
	cycle.Handler
	Schedule
	// Index identifies the function among those that the operator declares.
	Index int
	// Daemon is false for a timer.
	Daemon bool
	// FixedBackoff makes Backoff the wait after each error. Without it, a daemon waits
	// longer after each error in a row.
	FixedBackoff bool
}

// Schedule determines when a task is called and how it is stopped.
type Schedule struct {
	// Interval is the wait of a timer after a success.
	Interval time.Duration
	// Idle is how long the object must have been unchanged before a call.
	Idle time.Duration
	// Delay is the wait before the first call.
	Delay time.Duration
	// Sharp makes Interval count from the beginning of a call.
	Sharp bool
	// Warning is the time between the request to stop and the end of the context, and
	// Grace the time between that and the report that the task does not end.
	Warning, Grace time.Duration
}

// Object is the operator's side of the object that tasks run beside. Its methods are
// called without locks of this package, and concurrently.
type Object interface {
	// CallTask calls the task's function once.
	CallTask(ctx context.Context, t *Task, c Call) error
	// TaskJudged is called with the verdict on each call, unless the task was stopped.
	TaskJudged(t *Task, v cycle.Verdict)
	// TaskAbandoned is called when a task has not ended within its Grace.
	TaskAbandoned(t *Task)
	// TaskEnded is called after a task has ended.
	TaskEnded(t *Task)
	// TaskDied is called when a task's goroutine has ended without returning.
	TaskDied(t *Task)
	// LastChanged is when the object's desired state last changed.
	LastChanged() time.Time
}

// Call describes one call of a task.
type Call struct {
	// Retry counts the calls since the last success, and Started is when the first of them began.
	Retry   int
	Started time.Time
	// Stopping is closed when the task should end.
	Stopping <-chan struct{}
}
