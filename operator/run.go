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
)

// Run runs the operator by itself; see the function [Run].
func (op *Operator) Run(ctx context.Context, cfg *rest.Config) error { return Run(ctx, cfg, op) }

// Run runs operators against one API server until ctx is done or a fatal error occurs: a
// wrong declaration or configuration, an error of [OnStart], a resource that cannot be
// discovered or listed before [StartupDeadline], an invariant violation, or a worker whose
// goroutine ended. Then all operators stop. Running
// handlers may continue for the longest [ShutdownGrace] among the operators; then their
// contexts end. Run returns nil if ctx was done and all handlers returned in time,
// otherwise the fatal error and the handlers that did not return. No handler is called
// before all operators have their first lists. An operator runs once: if one of ops was given
// to Run before, Run returns an error and starts nothing.
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
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p, err := newProcess(ctx, cfg)
	if err != nil {
		return err
	}
	return p.run(ops)
}

// process is shared by operators that run together.
type process struct {
	ctx            context.Context // done when the operators stop
	stop           context.CancelCauseFunc
	handling       context.Context // done after ShutdownGrace
	cancelHandlers context.CancelCauseFunc
	cfg            *rest.Config
	api            *kubernetes.Clientset
	client         *http.Client // of cfg
}

// fatal is a cause that Run returns, unlike the cause of its caller's context.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

func newProcess(ctx context.Context, cfg *rest.Config) (*process, error) {
	cfg = rest.CopyConfig(cfg)
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
	p.ctx, p.stop = context.WithCancelCause(ctx)
	p.handling, p.cancelHandlers = context.WithCancelCause(context.WithoutCancel(ctx))
	return p, nil
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
	e := newEngine(op, k, api, source, recorder, p.handling, p.fail)
	op.running.Store(e)
	return e, nil
}

func (p *process) run(ops []*Operator) error {
	defer p.cancelHandlers(nil)
	defer p.stop(nil)
	if err := p.callStarts(ops); err != nil {
		return err
	}
	recorder := newEventRecorder(p.api.CoreV1(), ops[0].logger())
	recording, stopRecorder := context.WithCancel(context.WithoutCancel(p.ctx))
	defer stopRecorder()
	var recorders sync.WaitGroup
	recorders.Go(func() { recorder.run(recording) })
	defer func() {
		stopRecorder()
		recorders.Wait()
	}()
	engines, err := p.newEngines(ops, recorder)
	if err != nil {
		return p.result(err)
	}
	return p.drive(engines)
}

// callStarts calls the functions of OnStart, in the order of declaration.
func (p *process) callStarts(ops []*Operator) error {
	for _, op := range ops {
		for _, f := range op.starts {
			if err := f(p.ctx, rest.CopyConfig(p.cfg)); err != nil {
				return fmt.Errorf("operator of %s: OnStart: %w", op.name, err)
			}
		}
	}
	return nil
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
	return engines, errors.Join(errs...)
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
	var grace time.Duration
	for _, e := range engines {
		grace = max(grace, e.set.shutdownGrace)
	}
	<-p.ctx.Done()
	timeout := killTimeout
	if cause := new(stopWithin); errors.As(context.Cause(p.ctx), cause) {
		timeout = min(timeout, cause.within/2)
		grace = min(grace, cause.within-timeout)
	}
	for _, e := range engines {
		e.daemons.Stop()
	}
	return errors.Join(p.result(nil), p.drain(engines, &running, grace, timeout))
}

// killTimeout bounds the time between the end of handlers' contexts and their return.
const killTimeout = 5 * time.Second

// StopWithin returns err as a cause for the end of [Run]'s context that gives handlers
// less time than [ShutdownGrace]: Run returns within d. manager.Elected ends its context with
// such a cause when it loses the election, because another replica begins after d.
func StopWithin(err error, d time.Duration) error { return stopWithin{err, d} }

type stopWithin struct {
	error
	within time.Duration
}

func (s stopWithin) Unwrap() error { return s.error }

// drain waits for the engines. Its error names the handlers that do not return.
func (p *process) drain(engines []*engine, running *sync.WaitGroup, grace, timeout time.Duration) error {
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	cut := time.AfterFunc(grace, func() { p.cancelHandlers(ErrStopped) })
	defer cut.Stop()
	select {
	case <-ended:
		return nil
	case <-time.After(grace + timeout):
	}
	var stuck []string
	for _, e := range engines {
		stuck = append(stuck, e.runningCalls()...)
	}
	return fmt.Errorf("handlers did not return: %s", strings.Join(stuck, ", "))
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
