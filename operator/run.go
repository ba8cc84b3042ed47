package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/apiresources"
	"github.com/keepwatch/keepwatch/internal/pings"
)

// Run runs the operator by itself; see the function [Run].
func (op *Operator) Run(ctx context.Context, cfg *rest.Config) error { return Run(ctx, cfg, op) }

// Run runs operators against one API server until ctx is done or a fatal error occurs: a
// wrong declaration or configuration, an error of [OnStart], a resource that cannot be
// discovered or listed before [StartupDeadline], an invariant violation, or a worker whose
// goroutine ended. Then all operators stop. Running
// handlers may continue for the longest [ShutdownGrace] among the operators; then their
// contexts end, and 5 s later the requests about objects. Run returns nil if ctx was done and
// everything returned in time, otherwise the fatal error, and an error that wraps [ErrNotStopped]
// and names the handlers that did not return and the objects whose requests were not answered.
// After Run has returned, operators send no request. No handler is called
// before all operators have their first lists. An operator runs once: if one of ops was given
// to Run before, Run returns an error and starts nothing. So it does if two operators of one
// resource have the same [Prefix] or [Finalizer], or their [ProgressInStatus] meets, unless they have no
// namespace of [Namespaces] in common.
func Run(ctx context.Context, cfg *rest.Config, ops ...*Operator) error {
	if len(ops) == 0 {
		return errors.New("no operators to run")
	}
	var errs []error
	for _, op := range ops {
		errs = append(errs, op.check())
		if op.started.Swap(true) {
			errs = append(errs, fmt.Errorf("operator of %s: it has run already", op.name))
		}
	}
	errs = append(errs, checkTogether(ops, declared)...)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p, err := newProcess(ctx, cfg)
	if err != nil {
		return err
	}
	return p.run(ops)
}

// checkTogether returns errors for operators that would take each other's records on objects for their own. Those
// without a common object cannot. A resource with a version is known only after discovery: "a.b.c" can be one.
func checkTogether(ops []*Operator, of func(*Operator) kind) (errs []error) {
	for i, a := range ops {
		for _, b := range ops[:i] {
			shared := ""
			switch {
			case a == b || of(a).resource.GroupResource() != of(b).resource.GroupResource():
				continue
			case !meet(a.set.followed(of(a).namespaced), b.set.followed(of(b).namespaced)):
				continue
			case a.set.prefix == b.set.prefix:
				shared = "the prefix " + a.set.prefix + "; set Prefix"
			case a.set.finalizer == b.set.finalizer:
				shared = "the finalizer " + a.set.finalizer + "; set Finalizer"
			case a.set.progressStore != nil && b.set.progressStore != nil && a.set.progressStore.Meets(b.set.progressStore):
				shared = "the field of ProgressInStatus: " + a.set.progressStore.String()
			default:
				continue
			}
			errs = append(errs, fmt.Errorf("operators of %s: two have %s", a.name, shared))
		}
	}
	return errs
}

// declared returns what is known of an operator's resource before discovery. One without namespaces can still be
// declared with some.
func declared(op *Operator) kind {
	return kind{resource: op.Resource().WithVersion(""), namespaced: true}
}

// process is shared by operators that run together.
type process struct {
	ctx            context.Context // done when the operators stop
	stop           context.CancelCauseFunc
	handling       context.Context // done after ShutdownGrace
	cancelHandlers context.CancelCauseFunc
	requests       context.Context // of requests about objects; done when Run returns
	cancelRequests context.CancelCauseFunc
	deadline       time.Time // of Run's return, after a stop with StopWithin
	cfg            *rest.Config
	api            *kubernetes.Clientset
	client         *http.Client // of cfg
}

// fatal is a cause that Run returns, unlike the cause of its caller's context.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

func newProcess(ctx context.Context, cfg *rest.Config) (*process, error) {
	cfg = rest.CopyConfig(pings.Config(cfg))
	if cfg.RateLimiter == nil && cfg.QPS == 0 {
		cfg.QPS = -1 // the server's priority and fairness limits requests
	}
	p := &process{cfg: cfg}
	var err error
	if p.client, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, err
	}
	if p.api, err = kubernetes.NewForConfigAndClient(cfg, p.client); err != nil {
		return nil, err
	}
	p.begin(ctx)
	return p, nil
}

// begin makes the contexts.
func (p *process) begin(ctx context.Context) {
	p.ctx, p.stop = context.WithCancelCause(ctx)
	p.handling, p.cancelHandlers = context.WithCancelCause(context.WithoutCancel(ctx))
	p.requests, p.cancelRequests = context.WithCancelCause(context.WithoutCancel(ctx))
}

// fail stops all operators. The first error counts.
func (p *process) fail(err error) { p.stop(fatal{err}) }

// newEngine returns the engine of an operator.
func (p *process) newEngine(op *Operator, k kind, recorder *eventRecorder) (*engine, error) {
	source, err := newInformers(p.cfg, k, op)
	if err != nil {
		return nil, err
	}
	api, err := newServer(p.cfg, p.client, apiresources.On(p.api.Discovery()), k, op.set.prefix)
	if err != nil {
		return nil, err
	}
	e := newEngine(op, k, api, source, recorder, p)
	op.running.Store(e)
	return e, nil
}

func (p *process) run(ops []*Operator) error {
	defer p.cancelHandlers(nil)
	defer p.cancelRequests(ErrStopped)
	defer p.stop(nil)
	if err := p.callStarts(ops); errors.Is(err, ErrNotStopped) {
		return err
	} else if err != nil {
		return p.result(err)
	}
	recorder := newEventRecorder(p.api.CoreV1(), ops[0].logger())
	defer p.record(recorder)()
	engines, err := p.newEngines(ops, recorder)
	if err != nil {
		return p.result(err)
	}
	return p.drive(engines)
}

// record runs a recorder until the returned function is called, which posts what is pending within flushTimeout, and
// until p.deadline.
func (p *process) record(recorder *eventRecorder) (end func()) {
	recording, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	posting, cut := context.WithCancel(context.WithoutCancel(p.ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		recorder.run(recording, posting)
	}()
	return func() {
		defer cut()
		stop()
		left := flushTimeout
		if !p.deadline.IsZero() {
			left = min(left, time.Until(p.deadline))
		}
		defer time.AfterFunc(left, cut).Stop()
		<-ended
	}
}

// callStarts calls the functions of OnStart, in the order of declaration.
func (p *process) callStarts(ops []*Operator) error {
	for _, op := range ops {
		for _, f := range op.starts {
			if p.ctx.Err() != nil {
				return p.ctx.Err() // the next one would begin beside another leader
			}
			if err := p.callStart(f, ops); err != nil {
				return fmt.Errorf("operator of %s: OnStart: %w", op.name, err)
			}
		}
	}
	return nil
}

// callStart calls a function of OnStart. After a stop it waits for it no longer than for a handler.
func (p *process) callStart(f func(context.Context, *rest.Config) error, ops []*Operator) error {
	returned := make(chan error, 1)
	go func() {
		err := errors.New("it has ended its goroutine") // by runtime.Goexit
		defer func() { returned <- err }()
		err = f(p.ctx, rest.CopyConfig(p.cfg))
	}()
	select {
	case err := <-returned:
		return err
	case <-p.ctx.Done():
	}
	grace, timeout := p.limits(ops)
	select {
	case err := <-returned:
		return err
	case <-time.After(grace + timeout):
		return fmt.Errorf("%w: it did not return", ErrNotStopped)
	}
}

// newEngines discovers the resources concurrently, and returns their engines.
func (p *process) newEngines(ops []*Operator, recorder *eventRecorder) ([]*engine, error) {
	server := apiresources.On(p.api.Discovery())
	engines := make([]*engine, len(ops))
	errs := make([]error, len(ops))
	var discoveries sync.WaitGroup
	for n, op := range ops {
		discoveries.Go(func() {
			k, err := op.find(p.ctx, server)
			if err != nil {
				p.stop(fatal{err}) // ends the other discoveries
				errs[n] = err
				return
			}
			engines[n], errs[n] = p.newEngine(op, k, recorder)
		})
	}
	discoveries.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return engines, errors.Join(checkTogether(ops, discovered(engines))...)
}

// discovered returns the function for the resources that engines have found.
func discovered(engines []*engine) func(*Operator) kind {
	found := map[*Operator]kind{}
	for _, e := range engines {
		found[e.Operator] = e.kind
	}
	return func(op *Operator) kind { return found[op] }
}

// drive runs engines until they end.
func (p *process) drive(engines []*engine) error {
	gate := make(chan struct{})
	var lists, running sync.WaitGroup
	for _, e := range engines {
		lists.Add(1)
		listed := sync.OnceFunc(lists.Done)
		running.Go(func() {
			defer listed() // it ended without a list
			e.run(p.ctx, listed, gate)
		})
	}
	running.Go(func() {
		lists.Wait()
		close(gate)
	})
	<-p.ctx.Done()
	var ops []*Operator
	for _, e := range engines {
		ops = append(ops, e.Operator)
		e.daemons.Stop()
	}
	grace, timeout := p.limits(ops)
	return errors.Join(p.result(nil), p.drain(engines, &running, grace, timeout))
}

// limits returns how long handlers may continue after a stop, until their contexts end, and how long from then on until
// requests end and Run returns. The first call after a stop with StopWithin sets the deadline of both.
func (p *process) limits(ops []*Operator) (grace, timeout time.Duration) {
	for _, op := range ops {
		grace = max(grace, op.set.shutdownGrace)
	}
	timeout = killTimeout
	if cause := new(stopWithin); errors.As(context.Cause(p.ctx), cause) {
		if p.deadline.IsZero() {
			p.deadline = time.Now().Add(cause.within)
		}
		left := max(time.Until(p.deadline), 0)
		timeout = min(timeout, left/2)
		grace = min(grace, left-timeout)
	}
	return grace, timeout
}

// killTimeout bounds the time between the end of handlers' contexts and that of requests.
const killTimeout = 5 * time.Second

// StopWithin returns err as a cause for the end of [Run]'s context that gives handlers
// less time than [ShutdownGrace]: Run returns within d, and sends no request afterwards.
// manager.Elected ends its context with such a cause when it loses the election, because
// another replica begins after d.
func StopWithin(err error, d time.Duration) error { return stopWithin{err, d} }

type stopWithin struct {
	error
	within time.Duration
}

func (s stopWithin) Unwrap() error { return s.error }

// ErrNotStopped is wrapped by an error of [Run] if handlers did not return in time, or the API server did not answer
// a request: both can still have an effect. A program that elects a leader keeps its Lease then, as manager.Elected
// does.
var ErrNotStopped = errors.New("the operator has not stopped")

// drain waits for the engines, and ends their requests. Its error names what did not return in time.
func (p *process) drain(engines []*engine, running *sync.WaitGroup, grace, timeout time.Duration) error {
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	cut := time.AfterFunc(grace, func() { p.cancelHandlers(ErrStopped) })
	defer cut.Stop()
	defer p.cancelRequests(ErrStopped)
	select {
	case <-ended:
		return nil
	case <-time.After(grace + timeout):
	}
	var handlers, unanswered, causes []string
	for _, e := range engines {
		calls, requests := e.unfinished()
		handlers, unanswered = append(handlers, calls...), append(unanswered, requests...)
	}
	if len(handlers) > 0 {
		causes = append(causes, "handlers did not return: "+strings.Join(handlers, ", "))
	}
	if len(unanswered) > 0 {
		causes = append(causes, "requests were not answered: "+strings.Join(unanswered, ", "))
	}
	if len(causes) == 0 {
		causes = append(causes, "a filter or an index function did not return, or the informer did not end")
	}
	return fmt.Errorf("%w: %s", ErrNotStopped, strings.Join(causes, "; "))
}

// result returns Run's error: the fatal one, or nil after a stop.
func (p *process) result(err error) error {
	var f fatal
	if errors.As(context.Cause(p.ctx), &f) {
		return f.error
	}
	if p.ctx.Err() != nil {
		return nil
	}
	return err
}
