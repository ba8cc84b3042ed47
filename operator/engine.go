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
	queue    *queue.Queue[keepwatch.UID]
	logger   *slog.Logger
	fail     func(error) // stops all operators with a fatal error

	// handling is the context of handlers. It ends after ShutdownGrace.
	handling context.Context
	daemons  *background.Runner

	mu      sync.Mutex // locked after an object's, never before it
	objects map[keepwatch.UID]*object
	calls   map[*call]struct{} // running calls
}

// errInvariantViolated ends the operator: its state cannot be trusted.
var errInvariantViolated = errors.New("an invariant of the operator is broken")

func newEngine(op *Operator, k kind, api api, source objectSource, recorder *eventRecorder, handling context.Context, fail func(error)) *engine {
	e := &engine{
		Operator: op, kind: k, spec: op.spec(), api: api, source: source, recorder: recorder,
		queue: queue.New[keepwatch.UID](), logger: op.logger().With("resource", op.name), fail: fail,
		handling: handling, daemons: background.NewRunner(handling, ErrStopped, ErrNotSelected), objects: map[keepwatch.UID]*object{}, calls: map[*call]struct{}{},
	}
	op.metrics.queue.Store(e.queue)
	return e
}

// deliver accepts a change and queues its object. It is not called concurrently for one
// object.
func (e *engine) deliver(c change) {
	uid := keepwatch.UID(c.object.GetUID())
	o := e.getOrCreate(uid, c)
	for !o.accept(c, e.changed) {
		o = e.getOrCreate(uid, c) // it was forgotten in between
	}
	for _, i := range e.indexes {
		e.index(i, o, c)
	}
	priority := queue.Urgent
	if c.initial {
		priority = queue.Background
	}
	e.queue.Add(uid, priority)
}

// getOrCreate returns the object of a change, or creates it.
func (e *engine) getOrCreate(uid keepwatch.UID, c change) *object {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.objects[uid]
	if o == nil {
		key := keepwatch.Key{Namespace: c.object.GetNamespace(), Name: c.object.GetName()}
		o = &object{engine: e, uid: uid, key: key, listed: c.initial}
		if e.hasBackground() {
			o.tasks = e.daemons.NewSet(o, e.Operator.tasks)
		}
		e.objects[uid] = o
	}
	return o
}

// forget removes an object that was deleted and handled.
func (e *engine) forget(o *object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.gone || o.hasEvent || !o.tasks.Empty() {
		return
	}
	o.forgotten = true
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.objects, o.uid)
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
		uid, waited, ok := e.queue.Get()
		if !ok {
			ended = true
			return
		}
		e.metrics.queueDuration.Observe(waited.Seconds())
		e.handle(uid)
		e.queue.Done(uid)
	}
}

// handle processes an object once.
func (e *engine) handle(uid keepwatch.UID) {
	e.mu.Lock()
	o := e.objects[uid]
	e.mu.Unlock()
	if o == nil {
		return // the object was forgotten after it was queued
	}
	start := time.Now()
	defer e.metrics.trackWorker(start)()
	next := e.processOrThrottle(o, start)
	if !next.IsZero() {
		e.queue.AddAt(uid, next)
	}
	e.forget(o)
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

// runningCalls names the running calls.
func (e *engine) runningCalls() (names []string) {
	e.mu.Lock()
	calls := slices.Collect(maps.Keys(e.calls))
	e.mu.Unlock()
	for _, c := range calls {
		names = append(names, fmt.Sprintf("%s of %s", c.id, c.object.key))
	}
	slices.Sort(names)
	return names
}
