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

// Func is a handler. ctx ends when the handler's Timeout is over, or when the
// operator has stopped and its grace is over.
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

// OnDelete declares a handler for objects that are being deleted. A finalizer holds
// each of them until the handler is done, unless it is Optional.
func OnDelete[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	op.handlers = append(op.handlers, declare(op, cycle.Delete, f, options))
}

// OnResume declares a handler for objects that were handled before this process
// started. It is called once for each in the life of the process, together with
// update handlers if the object has changed meanwhile.
func OnResume[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	op.handlers = append(op.handlers, declare(op, cycle.Resume, f, options))
}

// OnField declares a handler for changes of one field, like "spec.size", also of
// one that is no part of the desired state, like "status.phase". [Request.Diff] is limited
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

// OnEvent declares a handler for everything that is seen of an object, without
// progress and retries: an error is logged, and that is it. Events that come while
// handlers of the object run are joined into one.
func OnEvent[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	op.events = append(op.events, declare(op, 0, f, options))
}

// HandlerOption shapes a handler, a timer or a daemon.
type HandlerOption func(*declaration)

type declaration struct {
	cycle.Handler
	background.Schedule
	named, fixedBackoff bool
	errs                []error
}

// ID names a handler in its progress and its log. By default it is the function's
// name, or, for a function without one, that of the cause. Handlers of one id for
// different causes are called once where several apply. Choose ids that stay: progress
// under another id is not found again.
func ID(id string) HandlerOption {
	return func(d *declaration) { d.ID, d.named = id, true }
}

// Retries is how often a handler is called at most. By default there is no limit.
func Retries(n int) HandlerOption { return func(d *declaration) { d.Retries = n } }

// Timeout is how long after its first call a handler may be called again. A call
// that is under way then has its context ended. By default there is none.
func Timeout(t time.Duration) HandlerOption { return func(d *declaration) { d.Timeout = t } }

// Backoff sets a fixed wait after an error that is neither permanent nor a [RetryAfter].
// The default is the operator's [DefaultBackoff], or a wait that grows from [FirstBackoff]
// to [MaxBackoff]; for daemons from 1 s to 610 s.
func Backoff(t time.Duration) HandlerOption {
	return func(d *declaration) { d.setBackoff(t) }
}

func (d *declaration) setBackoff(t time.Duration) {
	d.Backoff, d.fixedBackoff = backoff.Exponential{First: t, Max: t}, true
}

// OnError sets how errors are handled that are neither temporary nor permanent. The
// default is Retry.
func OnError(m Mode) HandlerOption {
	return func(d *declaration) {
		verdict, ok := verdicts[m]
		if !ok {
			d.errs = append(d.errs, fmt.Errorf("mode %d: want Retry, Fail or Ignore", m))
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

// Field limits a handler to objects that have a field, with one of the values if any
// are given; nil stands for a field that is not there. Of an update it must be a
// part, and the old value counts as well as the new.
func Field(path string, values ...any) HandlerOption { return field(cycle.Either, path, values) }

// From limits a handler of updates to those that change a field from one of the
// values, or from any if none are given; nil stands for a field that was not there.
func From(path string, values ...any) HandlerOption { return field(cycle.Before, path, values) }

// To limits a handler of updates to those that change a field to one of the values,
// or to any if none are given; nil stands for a field that is no longer there.
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

// When limits a handler to objects that a function says yes to. It must depend on
// the object alone.
func When[T metav1.Object](f func(object T) bool) HandlerOption {
	return func(d *declaration) {
		d.Filter.When = append(d.Filter.When, func(state map[string]any) bool {
			object, err := decode[T](state)
			if err != nil {
				panic(err) // is what the object is throttled for
			}
			return f(object)
		})
	}
}

// Optional is for delete handlers that no finalizer is kept for: they are called if
// something else holds the object.
func Optional() HandlerOption { return func(d *declaration) { d.Optional = true } }

// Deleting has a resume handler called for objects that are being deleted, too.
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

// describe settles what is declared of a function, and notes what is wrong with it.
func newDeclaration[T metav1.Object](op *Operator, f any, causes cycle.Cause, fallback string, options []HandlerOption) *declaration {
	d := &declaration{
		Handler:  cycle.Handler{ID: nameOf(f), Causes: causes, Backoff: backoff.Exponential{First: FirstBackoff, Max: MaxBackoff}},
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
		d.errs = append(d.errs, fmt.Errorf("retries, timeout and backoff can't be negative"))
	}
	if causes != cycle.Update && slices.ContainsFunc(d.Filter.Fields, func(f cycle.FieldFilter) bool { return f.Side != cycle.Either }) {
		d.errs = append(d.errs, fmt.Errorf("only handlers of updates can say what a field changes from and to"))
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

// nameOf is the name of a function without its package, "" if it has none.
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

// number makes an id of a cause: the first handler of it has its name, others a
// number behind it.
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
