package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/operator/internal/background"
	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/queue"
)

// engine is a running operator.
type engine struct {
	*Operator
	kind     kind
	spec     cycle.Spec
	api      api
	source   objectSource
	recorder *eventRecorder
	queue    *queue.Queue[keepwatch.Key]
	logger   *slog.Logger
	fail     func(error) // stops all operators with a fatal error

	// status is where the status is written.
	status statusEndpoint

	// handling is the context of handlers, which ends after ShutdownGrace, and requests that of requests about objects,
	// which ends when Run returns: afterwards another replica may handle the objects.
	handling, requests context.Context
	daemons            *background.Runner

	mu sync.Mutex // locked after an object's, never before it
	// The objects of each name, in the order of their existence. All but the last were deleted, and wait to be handled or
	// for their timers and daemons to end.
	objects map[keepwatch.Key][]*object
	calls   map[*call]struct{} // running calls and requests
}

// errInvariantViolated ends the operator: its state cannot be trusted.
var errInvariantViolated = errors.New("an invariant of the operator is broken")

func newEngine(op *Operator, k kind, api api, source objectSource, recorder *eventRecorder, p *process) *engine {
	e := &engine{
		Operator: op, kind: k, spec: op.spec(), api: api, source: source, recorder: recorder,
		queue: queue.New[keepwatch.Key](), logger: op.logger().With("resource", op.name), fail: p.fail,
		handling: p.handling, requests: p.requests, daemons: background.NewRunner(p.handling, ErrStopped, ErrNotSelected),
		objects: map[keepwatch.Key][]*object{}, calls: map[*call]struct{}{},
	}
	e.status.own = k.subresource
	op.metrics.queue.Store(e.queue)
	return e
}

// deliver accepts a change and queues its object. It is not called concurrently for one
// name.
func (e *engine) deliver(c change) {
	o := e.getOrCreate(c)
	for !o.accept(c, e.changed) {
		o = e.getOrCreate(c) // it was forgotten in between
	}
	for _, i := range e.indexes {
		e.index(i, o, c)
	}
	priority := queue.Urgent
	if c.initial {
		priority = queue.Background
	}
	e.queue.Add(o.key, priority)
}

// getOrCreate returns the object of a change, or creates it. One that was deleted before the last of its name is
// another object if it returns: its deletion comes first, then those after it.
func (e *engine) getOrCreate(c change) *object {
	key := keepwatch.Key{Namespace: c.object.GetNamespace(), Name: c.object.GetName()}
	uid := keepwatch.UID(c.object.GetUID())
	e.mu.Lock()
	defer e.mu.Unlock()
	named := e.objects[key]
	if n := len(named); n > 0 && named[n-1].uid == uid {
		return named[n-1]
	}
	o := &object{engine: e, uid: uid, key: key, listed: c.initial}
	if e.hasBackground() {
		o.tasks = e.daemons.NewSet(o, e.Operator.tasks)
	}
	e.objects[key] = append(named, o)
	return o
}

// forget removes an object that was deleted and handled, once its timers and daemons have ended. It returns whether the
// next one of its name may be handled, which does not wait for these.
func (e *engine) forget(o *object) (handled bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.gone || o.hasEvent {
		return false
	}
	if !o.tasks.Empty() {
		return true
	}
	o.forgotten = true
	e.mu.Lock()
	defer e.mu.Unlock()
	named := slices.DeleteFunc(e.objects[o.key], func(other *object) bool { return other == o })
	if len(named) == 0 {
		delete(e.objects, o.key)
	} else {
		e.objects[o.key] = named
	}
	return true
}

// changed reports whether the desired state of an object changed, for idle timers.
func (e *engine) changed(old, new map[string]any) bool {
	return e.hasBackground() && e.spec.Changed(old, new)
}

// hasBackground reports whether timers or daemons may run beside objects.
func (op *Operator) hasBackground() bool { return len(op.tasks) > 0 }

// work handles objects until the queue is closed.
func (e *engine) work() {
	ended := false
	defer func() {
		if ended {
			return
		}
		// Only a handler can end a goroutine without a panic, by runtime.Goexit.
		err := fmt.Errorf("a worker of %s ended its goroutine", e.name)
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", err, cause)
		}
		e.fail(err)
	}()
	for {
		key, waited, ok := e.queue.Get()
		if !ok {
			ended = true
			return
		}
		e.metrics.queueDuration.Observe(waited.Seconds())
		e.handle(key)
		e.queue.Done(key)
	}
}

// handle processes the objects of a name once, in their order. One that is not deleted and handled is the last, for
// now.
func (e *engine) handle(key keepwatch.Key) {
	e.mu.Lock()
	named := slices.Clone(e.objects[key])
	e.mu.Unlock()
	for _, o := range named {
		e.handleObject(o)
		if !e.forget(o) {
			return
		}
	}
}

func (e *engine) handleObject(o *object) {
	start := time.Now()
	defer e.metrics.trackWorker(start)()
	next := e.processOrThrottle(o, start)
	if !next.IsZero() {
		e.queue.AddAt(o.key, next)
	}
}

// run follows the source and handles objects until ctx is done, and waits for handlers.
// gate is closed when all operators of the process have their first lists.
func (e *engine) run(ctx context.Context, listed func(), gate <-chan struct{}) {
	var informing, workers sync.WaitGroup
	informing.Go(func() {
		err := e.source.run(ctx, e.deliver, listed)
		if ctx.Err() == nil {
			e.fail(fmt.Errorf("operator of %s: the source ended: %w", e.name, explained(err)))
		}
	})
	select {
	case <-gate:
	case <-ctx.Done():
		informing.Wait()
		return
	}
	defer e.queue.CloseWith(ctx)()
	for range e.set.workers {
		workers.Go(e.work)
	}
	workers.Wait()
	e.daemons.Wait()
	informing.Wait()
}

// explained returns the error with which the source ended.
func explained(err error) error {
	if err == nil {
		return fmt.Errorf("%w: the informer ended without an error", errInvariantViolated)
	}
	return err
}

// unfinished names the running calls of handlers, and the objects of requests that are not answered.
func (e *engine) unfinished() (handlers, requests []string) {
	e.mu.Lock()
	calls := slices.Collect(maps.Keys(e.calls))
	e.mu.Unlock()
	for _, c := range calls {
		if c.id == "" {
			requests = append(requests, c.object.key.String())
		} else {
			handlers = append(handlers, fmt.Sprintf("%s of %s", c.id, c.object.key))
		}
	}
	slices.Sort(handlers)
	slices.Sort(requests)
	return handlers, slices.Compact(requests)
}
