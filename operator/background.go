package operator

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/operator/internal/background"
)

const defaultGrace = 30 * time.Second

// Timer declares a handler that is called for each object all the time: at once, and
// then an interval after each success. After an error it is called as the error
// and the options say. It is never called twice at a time for an object.
func Timer[T metav1.Object](op *Operator, interval time.Duration, f Func[T], options ...HandlerOption) {
	t := declareTask(op, f, "timer", options)
	t.Interval = interval
	if interval <= 0 {
		op.errs = append(op.errs, fmt.Errorf("timer %q: the interval must be positive", t.ID))
	}
}

// Daemon declares a handler that runs as long as an object exists and passes the
// filter. Returning nil, it has come to its end until the operator starts again;
// after an error it is called again. It ends in this order: [Request.Stopping] is
// closed; its context ends; it is given up, and that is reported. A finalizer holds
// the object until then.
func Daemon[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	declareTask(op, f, "daemon", options).Daemon = true
}

// Idle delays a timer until the object's desired state has not changed for a time.
func Idle(t time.Duration) HandlerOption { return func(d *declaration) { d.Idle = t } }

// InitialDelay is the wait before the first call of a timer or daemon in this process.
func InitialDelay(t time.Duration) HandlerOption { return func(d *declaration) { d.Delay = t } }

// Sharp has a timer's interval count from the beginning of a call, not from its end.
func Sharp() HandlerOption { return func(d *declaration) { d.Sharp = true } }

// StopGrace is how long a daemon has after [Request.Stopping] was closed before its
// context ends, and then before it is given up. The default is none, and 30 s.
func StopGrace(warning, grace time.Duration) HandlerOption {
	return func(d *declaration) { d.Warning, d.Grace = warning, grace }
}

func declareTask[T metav1.Object](op *Operator, f Func[T], what string, options []HandlerOption) *background.Task {
	d := newDeclaration[T](op, f, 0, what, options)
	t := &background.Task{Handler: d.Handler, Schedule: d.Schedule, Index: len(op.background), FixedBackoff: d.fixedBackoff}
	op.background = append(op.background, &handler{Handler: d.Handler, call: caller(f)})
	op.tasks = append(op.tasks, t)
	return t
}
