package operator

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/operator/internal/background"
	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// Func is a handler. ctx ends at the handler's [Timeout], and [ShutdownGrace] after the
// operator was stopped.
//
// T is a pointer to the struct that the objects are decoded to, or
// *unstructured.Unstructured. The struct embeds metav1.ObjectMeta; it needs no
// scheme and no generated code.
type Func[T metav1.Object] = func(ctx context.Context, r *Request[T]) error

// handler is a declared Func.
type handler struct {
	cycle.Handler
	call func(ctx context.Context, in *invocation) error
}

// OnCreate declares a handler for objects that were never handled before.
func OnCreate[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	op.handlers = append(op.handlers, declare(op, cycle.Create, f, options))
}

// OnUpdate declares a handler for changes of an object's desired state: everything except
// the status, system metadata and the progress of operators.
func OnUpdate[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	op.handlers = append(op.handlers, declare(op, cycle.Update, f, options))
}

// OnDelete declares a handler for objects that are being deleted. A finalizer keeps each
// object until the handler is done, unless the handler is [Optional].
func OnDelete[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	op.handlers = append(op.handlers, declare(op, cycle.Delete, f, options))
}

// OnResume declares a handler for objects that were handled before this process started.
// It is called once for each object in a process, together with update handlers if the
// object changed meanwhile.
func OnResume[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	op.handlers = append(op.handlers, declare(op, cycle.Resume, f, options))
}

// OnField declares a handler for changes of one field, like "spec.size", also of
// one outside of the desired state, like "status.phase". [Request.Diff] is limited
// to it. A dot in a name has a backslash before it.
func OnField[T metav1.Object](op *Operator, field string, f Func[T], options ...HandlerOption) {
	h := declare(op, cycle.Update, f, options)
	path, err := cycle.ParsePath(field)
	if err != nil {
		op.errs = append(op.errs, fmt.Errorf("handler %q: %w", h.ID, err))
	}
	h.Field, h.ID = path, h.ID+"/"+strings.Join(path, ".") // an id has no backslashes
	op.handlers = append(op.handlers, h)
}

// OnEvent declares a handler for all delivered states of an object, without progress and
// retries: errors are only logged. Events that arrive while handlers of the object run are
// merged.
func OnEvent[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	op.events = append(op.events, declare(op, 0, f, options))
}

// HandlerOption configures a handler, a timer or a daemon.
type HandlerOption func(*declaration)

type declaration struct {
	cycle.Handler
	background.Schedule
	named, fixedBackoff bool
	errs                []error
}

// ID names a handler in its progress and its log. The default is the function's name; for
// an anonymous function, the cause. Of handlers with one id for different causes, one is
// called if several apply. Do not change an id: the operator does not find progress that was
// stored under another one.
func ID(id string) HandlerOption {
	return func(d *declaration) { d.ID, d.named = id, true }
}

// Retries limits the number of calls for one change. By default there is no limit.
func Retries(n int) HandlerOption { return func(d *declaration) { d.Retries = n } }

// Timeout limits the time since the first call for one change. It ends the context of a
// running call. By default there is no limit.
func Timeout(t time.Duration) HandlerOption { return func(d *declaration) { d.Timeout = t } }

// Backoff sets a fixed wait after an error that is neither permanent nor a [RetryAfter].
// The default is the operator's [DefaultBackoff], or a wait that doubles from 5 ms to 1 min;
// for daemons from 1 s to 610 s.
func Backoff(t time.Duration) HandlerOption {
	return func(d *declaration) { d.setBackoff(t) }
}

func (d *declaration) setBackoff(t time.Duration) {
	d.Backoff, d.fixedBackoff = backoff.Exponential{First: t, Max: t}, true
}

// OnError sets how errors are handled that are neither temporary nor permanent. The
// default is Retry.
func OnError(m ErrorMode) HandlerOption {
	return func(d *declaration) {
		verdict, ok := verdicts[m]
		if !ok {
			d.errs = append(d.errs, fmt.Errorf("error mode %d: want Retry, Fail or Ignore", m))
		}
		d.OnError = verdict
	}
}

// Labels limits a handler to objects that a label selector matches: "app=web,!canary".
func Labels(selector string) HandlerOption {
	return func(d *declaration) { d.Filter.Labels = d.selector(selector, "label") }
}

// Annotations limits a handler to objects whose annotations a selector matches.
func Annotations(selector string) HandlerOption {
	return func(d *declaration) { d.Filter.Annotations = d.selector(selector, "annotation") }
}

// Field limits a handler to objects that have a field, with one of the values if there are
// any; nil stands for an absent field. An update must change the field, and its old or new
// value must match.
func Field(path string, values ...any) HandlerOption { return field(cycle.Either, path, values) }

// From limits an update handler to updates that change a field from one of the values, or
// from any value if none is given; nil stands for an absent field.
func From(path string, values ...any) HandlerOption { return field(cycle.Before, path, values) }

// To limits an update handler to updates that change a field to one of the values, or to
// any value if none is given; nil stands for an absent field.
func To(path string, values ...any) HandlerOption { return field(cycle.After, path, values) }

func field(side cycle.Side, path string, values []any) HandlerOption {
	return func(d *declaration) {
		p, err := cycle.ParsePath(path)
		if err != nil {
			d.errs = append(d.errs, err)
		}
		normal, err := normalize(values)
		if err != nil {
			d.errs = append(d.errs, fmt.Errorf("field %s: %w", path, err))
		}
		d.Filter.Fields = append(d.Filter.Fields, cycle.FieldFilter{Path: p, Values: normal, Side: side})
	}
}

// When limits a handler to objects for which f returns true. f must depend on the object
// alone.
func When[T metav1.Object](f func(object T) bool) HandlerOption {
	return func(d *declaration) {
		d.Filter.When = append(d.Filter.When, func(state map[string]any) bool {
			object, err := decode[T](state)
			if err != nil {
				panic(err) // the object is throttled with this error
			}
			return f(object)
		})
	}
}

// Optional makes a delete handler need no finalizer. It is called if another finalizer
// keeps the object; its progress then stays on the object.
func Optional() HandlerOption { return func(d *declaration) { d.Optional = true } }

// Deleting makes a resume handler apply to objects that are being deleted, too, while any finalizer keeps them.
func Deleting() HandlerOption { return func(d *declaration) { d.Deleting = true } }

func (d *declaration) selector(text, what string) labels.Selector {
	s, err := labels.Parse(text)
	if err != nil {
		d.errs = append(d.errs, fmt.Errorf("%s selector %q: %w", what, text, err))
	}
	return s
}

func declare[T metav1.Object](op *Operator, causes cycle.Cause, f Func[T], options []HandlerOption) *handler {
	d := newDeclaration[T](op, f, causes, causes.String(), options)
	return &handler{Handler: d.Handler, call: caller(f)}
}

// caller returns f as a function of calls for any type.
func caller[T metav1.Object](f Func[T]) func(context.Context, *invocation) error {
	return func(ctx context.Context, in *invocation) error {
		r, err := request[T](in)
		if err != nil {
			return err
		}
		return f(ctx, r)
	}
}

// newDeclaration applies the options of a handler, and records what is invalid.
func newDeclaration[T metav1.Object](op *Operator, f any, causes cycle.Cause, fallback string,
	options []HandlerOption) *declaration {
	d := &declaration{
		Handler: cycle.Handler{ID: nameOf(f), Causes: causes, Backoff: backoff.Exponential{First: firstBackoff,
			Max: maxBackoff}},
		Schedule: background.Schedule{Grace: defaultGrace},
	}
	if op.set.backoff != nil {
		d.setBackoff(*op.set.backoff)
	}
	for _, o := range options {
		o(d)
	}
	if d.ID == "" && !d.named {
		d.ID = op.uniqueID(fallback)
	}
	if reflect.ValueOf(f).IsNil() {
		d.errs = append(d.errs, fmt.Errorf("the function is nil"))
	}
	if d.Retries < 0 || d.Timeout < 0 || d.Backoff.First < 0 {
		d.errs = append(d.errs, fmt.Errorf("retries, timeout and backoff cannot be negative"))
	}
	if causes != cycle.Update && slices.ContainsFunc(d.Filter.Fields, func(f cycle.FieldFilter) bool {
		return f.Side != cycle.Either
	}) {
		d.errs = append(d.errs, fmt.Errorf("From and To are options of update handlers only"))
	}
	if err := decodable[T](); err != nil {
		d.errs = append(d.errs, err)
	}
	for _, err := range d.errs {
		op.errs = append(op.errs, fmt.Errorf("handler %q: %w", d.ID, err))
	}
	return d
}

var anonymous = regexp.MustCompile(`^func\d+|^\d+$`)

// nameOf returns the name of a function without its package, "" if it is anonymous.
func nameOf(f any) string {
	v := reflect.ValueOf(f)
	if v.IsNil() {
		return ""
	}
	full := runtime.FuncForPC(v.Pointer()).Name()
	full = strings.TrimSuffix(full[strings.LastIndex(full, "/")+1:], "-fm")
	full, _, _ = strings.Cut(full, "[")
	parts := strings.Split(full, ".")
	last := parts[len(parts)-1]
	if len(parts) < 2 || anonymous.MatchString(last) {
		return ""
	}
	return last
}

// uniqueID returns an id from a cause's name: the name for its first handler, and the name
// with a number for others.
func (op *Operator) uniqueID(name string) string {
	if name == "" {
		name = "event"
	}
	used := map[string]bool{}
	for _, h := range append(op.handlers, op.events...) {
		used[strings.SplitN(h.ID, "/", 2)[0]] = true
	}
	for _, b := range op.background {
		used[b.ID] = true
	}
	id := name
	for n := 2; used[id]; n++ {
		id = fmt.Sprintf("%s-%d", name, n)
	}
	return id
}
