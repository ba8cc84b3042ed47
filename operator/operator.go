package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/operator/internal/background"
	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// Operator handles the objects of one resource. Handlers are declared before it runs. It runs
// once: see [Run].
type Operator struct {
	name       string
	gvr        *schema.GroupVersionResource // if a version was named
	resource   schema.GroupResource
	group      *health.Group // of its informers
	set        settings
	handlers   []*handler // of changes, in the order of their declaration
	events     []*handler
	background []*handler         // of tasks, by their index
	tasks      []*background.Task // timers and daemons
	indexes    []indexer
	starts     []func(context.Context, *rest.Config) error
	errs       []error // of invalid declarations
	started    atomic.Bool
	running    atomic.Pointer[engine]
	metrics    *metrics
}

type settings struct {
	namespaces      []string
	prefix          string
	finalizer       string
	progressStore   cycle.Path // in the status; nil for annotations
	workers         int
	backoff         *time.Duration // nil for a growing one
	startupDeadline time.Duration
	shutdownGrace   time.Duration
	logger          *slog.Logger
}

// defaultPrefix is the default Prefix of an operator.
const defaultPrefix = "keepwatch.io"

// Option configures an Operator.
type Option func(*settings)

// Namespaces limits the operator to some namespaces. The default is all, and the empty name means all, too.
func Namespaces(names ...string) Option { return func(s *settings) { s.namespaces = names } }

// Prefix sets the prefix of the annotations that store progress, and of the finalizer: a
// DNS name. The default is keepwatch.io.
func Prefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// Finalizer sets the name of the finalizer. The default is the prefix and "/finalizer".
func Finalizer(name string) Option { return func(s *settings) { s.finalizer = name } }

// ProgressInStatus stores the state that was handled last and the progress of handlers in
// a field of the status, like "status.operator", instead of annotations. The resource's
// schema must preserve unknown fields there. A handler's changes of the status and its
// progress are then one request instead of two.
func ProgressInStatus(field string) Option {
	return func(s *settings) {
		s.progressStore, _ = cycle.ParsePath(field)
		if len(s.progressStore) < 2 || s.progressStore[0] != "status" {
			s.progressStore = cycle.Path{} // check reports it
		}
	}
}

// Workers sets how many objects are handled concurrently. The default is 10.
func Workers(n int) Option { return func(s *settings) { s.workers = n } }

// DefaultBackoff sets the [Backoff] of all handlers, timers and daemons that set none. With
// time.Minute, errors are retried as by kopf.
func DefaultBackoff(d time.Duration) Option { return func(s *settings) { s.backoff = &d } }

// StartupDeadline sets reflector.Options.StartupDeadline. The default is a minute: a program
// that is deployed together with its resource definition and its permissions waits for them,
// and ends with the reason if they do not appear. It limits the discovery of the resource, and
// then again its first list: Run may retry for up to twice d.
func StartupDeadline(d time.Duration) Option {
	return func(s *settings) { s.startupDeadline = d }
}

// ShutdownGrace sets how long handlers may continue after the operator was stopped; then
// their contexts end. The default is 20 s.
func ShutdownGrace(d time.Duration) Option { return func(s *settings) { s.shutdownGrace = d } }

// Logger sets the operator's logger. The default is slog.Default().
func Logger(l *slog.Logger) Option { return func(s *settings) { s.logger = l } }

// New returns an operator for a resource, which is named as for kubectl: "pods",
// "widgets.example.com", or with a version "deployments.v1.apps".
func New(resource string, options ...Option) *Operator {
	op := &Operator{name: resource, set: settings{
		prefix: defaultPrefix, workers: 10,
		startupDeadline: time.Minute, shutdownGrace: 20 * time.Second,
	}}
	for _, o := range options {
		o(&op.set)
	}
	op.gvr, op.resource = schema.ParseResourceArg(strings.ToLower(resource))
	if op.set.finalizer == "" {
		op.set.finalizer = op.set.prefix + "/finalizer"
	}
	op.group = health.NewGroup()
	op.metrics = newMetrics(op.Name(), op.set.workers)
	return op
}

// OnStart declares a function that is called once, before the resource is watched. It can
// make clients from cfg. If replicas elect a leader, it is called in the leader. Its error
// ends [Run]. ctx is done when the operator is stopped: Run returns nil then, whatever f returns,
// and calls no further one.
func OnStart(op *Operator, f func(ctx context.Context, cfg *rest.Config) error) {
	op.starts = append(op.starts, f)
}

// Name returns the operator's name in metrics and in the report of its health: the resource as it was given to New. An
// operator with another prefix than the default has it after an @, like "pods@example.com", since several operators of
// the same objects have different prefixes. Two of one resource and prefix that have no namespace of [Namespaces] in
// common have one name, and a registry takes the metrics of only one of them.
func (op *Operator) Name() string {
	if op.set.prefix == defaultPrefix {
		return op.name
	}
	return op.name + "@" + op.set.prefix
}

// Resource returns the resource and its group.
func (op *Operator) Resource() schema.GroupResource { return op.resource }

// healthGrace is how long an operator may fail to follow its resource before it is unhealthy.
const healthGrace = 2 * time.Minute

// Healthy returns an error with the duration and the reason if the operator has not followed
// its resource for more than two minutes. It returns nil otherwise, and if the operator does
// not run.
func (op *Operator) Healthy() error {
	if e := op.running.Load(); e != nil {
		return e.source.healthy(healthGrace)
	}
	return nil
}

// logger returns the operator's logger.
func (op *Operator) logger() *slog.Logger {
	if op.set.logger != nil {
		return op.set.logger
	}
	return slog.Default()
}

// check returns an error if a declaration or option is invalid.
func (op *Operator) check() error {
	errs := op.errs
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if op.resource.Resource == "" {
		fail("resource %q: want its plural name and its group, like widgets.example.com", op.name)
	}
	if problems := validation.IsDNS1123Subdomain(op.set.prefix); len(problems) > 0 || len(op.set.prefix) > 253-1-63 {
		fail("prefix %q: want a DNS name of at most 189 bytes, like widgets.example.com", op.set.prefix)
	}
	if problems := validation.IsQualifiedName(op.set.finalizer); len(problems) > 0 || !strings.Contains(op.set.finalizer,
		"/") {
		fail("finalizer %q: want a DNS name and a name, like example.com/finalizer", op.set.finalizer)
	}
	if op.set.progressStore != nil && len(op.set.progressStore) == 0 {
		fail("progress in the status: want a field in it, like status.operator")
	}
	if op.set.backoff != nil && *op.set.backoff < 0 {
		fail("default backoff %v: it cannot be negative", *op.set.backoff)
	}
	if op.set.workers < 1 {
		fail("%d workers: want at least one", op.set.workers)
	}
	if len(op.handlers)+len(op.events)+len(op.background)+len(op.indexes) == 0 {
		fail("no handlers: declare some before Run, with OnCreate and the like")
	}
	errs = append(errs, op.checkNames()...)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("operator of %s: %w", op.name, errors.Join(errs...))
}

// checkNames returns errors for ids that cannot be annotations, or would share one.
func (op *Operator) checkNames() (errs []error) {
	keys := cycle.Keys{Prefix: op.set.prefix}
	owners := map[string]string{}
	declared := map[string]cycle.Cause{}
	for _, h := range op.handlers {
		key := keys.Of(h.ID, "")
		owner, used := owners[key]
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			errs = append(errs, fmt.Errorf("handler %q: an id is made of letters, digits, '-', '_', '.' and '/'", h.ID))
		case keys.Reserved(h.ID):
			errs = append(errs, fmt.Errorf("handler %q: this id is reserved; choose another", h.ID))
		case used && owner != h.ID:
			errs = append(errs, fmt.Errorf("handlers %q and %q would share an annotation; choose another id", owner, h.ID))
		case declared[h.ID]&h.Causes != 0:
			errs = append(errs, fmt.Errorf("handler %q: declared twice for %s; give one of them another ID", h.ID,
				declared[h.ID]&h.Causes))
		}
		owners[key] = h.ID
		declared[h.ID] |= h.Causes
	}
	return errs
}

// spec returns the declarations for the cycle.
func (op *Operator) spec() cycle.Spec {
	s := cycle.Spec{Keys: cycle.Keys{Prefix: op.set.prefix}, Finalizer: op.set.finalizer, Status: op.set.progressStore}
	for _, h := range op.handlers {
		s.Handlers = append(s.Handlers, h.Handler)
	}
	return cycle.New(s)
}
