package operator

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/operator/internal/background"
)

const defaultGrace = 30 * time.Second

// Timer declares a handler that is called repeatedly for each object: at once, and then an
// interval after each success. After an error it is called again as the error and the options
// determine. It is not called concurrently for one object. While the object is being deleted it is not called; delete
// handlers wait until a running call has returned or is abandoned, see [StopGrace].
func Timer[T metav1.Object](op *Operator, interval time.Duration, f Func[T], options ...HandlerOption) {
	t := declareTask(op, f, "timer", options)
	t.Interval = interval
	if interval <= 0 {
		op.errs = append(op.errs, fmt.Errorf("timer %q: the interval must be positive", t.ID))
	}
}

// Daemon declares a handler that runs as long as an object exists and passes the filter.
// After nil it is not called again in this process; after an error it is. It is stopped in
// three steps: [Request.Stopping] is closed; its context ends; it is abandoned, which is
// reported. A finalizer keeps the object until the daemon has returned or is abandoned.
func Daemon[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	declareTask(op, f, "daemon", options).Daemon = true
}

// Idle delays a timer until the object's desired state has not changed for a time.
func Idle(t time.Duration) HandlerOption { return func(d *declaration) { d.Idle = t } }

// InitialDelay sets the wait before the first call of a timer or daemon in this process.
func InitialDelay(t time.Duration) HandlerOption { return func(d *declaration) { d.Delay = t } }

// Sharp makes a timer's interval count from the beginning of a call, not from its end.
func Sharp() HandlerOption { return func(d *declaration) { d.Sharp = true } }

// StopGrace sets the time between the close of [Request.Stopping] and the end of a timer's or daemon's
// context, and the time from then until it is abandoned. The defaults are 0 and 30 s.
func StopGrace(warning, grace time.Duration) HandlerOption {
	return func(d *declaration) { d.Warning, d.Grace = warning, grace }
}

func declareTask[T metav1.Object](op *Operator, f Func[T], what string, options []HandlerOption) *background.Task {
	d := newDeclaration[T](op, f, 0, what, options)
	t := &background.Task{Handler: d.Handler, Schedule: d.Schedule, Index: len(op.background),
		FixedBackoff: d.fixedBackoff}
	op.background = append(op.background, &handler{Handler: d.Handler, call: caller(f)})
	op.tasks = append(op.tasks, t)
	return t
}
