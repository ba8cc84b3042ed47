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
	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/queue"
)

// engine is an operator while it runs.
type engine struct {
	*Operator
	kind   kind
	spec   cycle.Spec
	api    api
	feed   feed
	poster *poster
	queue  *queue.Queue[keepwatch.UID]
	logger *slog.Logger
	fail   func(error) // stops the whole operator, for a reason that is fatal

	// handling is the context of handlers: it ends when the grace is over.
	handling context.Context
	// companions counts timers and daemons that run.
	companions sync.WaitGroup

	mu       sync.Mutex // locked after an object's, never before it
	objects  map[keepwatch.UID]*object
	stopping bool               // no timer or daemon starts any more
	busy     map[*call]struct{} // handlers that are being called
}

// errInvariant is what can't be true; nothing else can be trusted then.
var errInvariant = errors.New("an invariant of the operator is broken")

func newEngine(op *Operator, k kind, api api, feed feed, poster *poster, handling context.Context, fail func(error)) *engine {
	e := &engine{
		Operator: op, kind: k, spec: op.spec(), api: api, feed: feed, poster: poster,
		queue: queue.New[keepwatch.UID](), logger: op.logger().With("resource", op.name), fail: fail,
		handling: handling, objects: map[keepwatch.UID]*object{}, busy: map[*call]struct{}{},
	}
	op.metrics.queue.Store(e.queue)
	return e
}

// tell takes what the feed says of an object. It is not called twice at a time for
// one object.
func (e *engine) tell(c change) {
	uid := keepwatch.UID(c.object.GetUID())
	o := e.remember(uid, c)
	for !o.take(c, e.changed) {
		o = e.remember(uid, c) // it was forgotten in between, and has returned
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

// remember is the object that a change is of, a new one if none is known.
func (e *engine) remember(uid keepwatch.UID, c change) *object {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.objects[uid]
	if o == nil {
		key := keepwatch.Key{Namespace: c.object.GetNamespace(), Name: c.object.GetName()}
		o = &object{engine: e, uid: uid, key: key, listed: c.initial}
		if e.accompanies() {
			o.running, o.settled = map[*background]*companion{}, map[*background]bool{}
		}
		e.objects[uid] = o
	}
	return o
}

// forget lets go of an object that nothing will be done for any more.
func (e *engine) forget(o *object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.gone || o.eventful || len(o.running) > 0 {
		return
	}
	o.forgotten = true
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.objects, o.uid)
}

// changed reports whether the essence of an object has, which is what timers idle for.
func (e *engine) changed(old, new map[string]any) bool {
	return e.accompanies() && e.spec.Changed(old, new)
}

// accompanies reports whether timers or daemons may run beside objects.
func (op *Operator) accompanies() bool { return len(op.background) > 0 }

// work handles objects until the queue is closed.
func (e *engine) work() {
	ended := false
	defer func() {
		if ended {
			return
		}
		// Only a handler can end a goroutine without a panic, by runtime.Goexit.
		err := fmt.Errorf("a worker of %s died", e.name)
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", err, cause)
		}
		e.fail(err)
	}()
	for {
		uid, waited, ok := e.queue.Take()
		if !ok {
			ended = true
			return
		}
		e.metrics.waited.Observe(waited.Seconds())
		e.handle(uid)
		e.queue.Done(uid)
	}
}

// handle works on an object once.
func (e *engine) handle(uid keepwatch.UID) {
	e.mu.Lock()
	o := e.objects[uid]
	e.mu.Unlock()
	if o == nil {
		return // it was forgotten while something was still to be done for it
	}
	start := time.Now()
	defer e.metrics.working(start)()
	next := e.guarded(o, start)
	if !next.IsZero() {
		e.queue.AddAt(uid, next)
	}
	e.forget(o)
}

// run follows and handles until ctx is done, and drains. gate is closed when every
// operator of the process has its first list.
func (e *engine) run(ctx context.Context, listed func(), gate <-chan struct{}) {
	var feeding, workers sync.WaitGroup
	feeding.Go(func() {
		err := e.feed.run(ctx, e.tell, listed)
		if ctx.Err() == nil {
			e.fail(fmt.Errorf("operator of %s: can't follow: %w", e.name, explained(err)))
		}
	})
	select {
	case <-gate:
	case <-ctx.Done():
		feeding.Wait()
		return
	}
	defer e.queue.CloseWith(ctx)()
	for range e.set.workers {
		workers.Go(e.work)
	}
	workers.Wait()
	e.companions.Wait()
	feeding.Wait()
}

// explained is why a feed has ended. It always has a reason.
func explained(err error) error {
	if err == nil {
		return fmt.Errorf("%w: the informer ended without a reason", errInvariant)
	}
	return err
}

// dismiss has every timer and daemon stop.
func (e *engine) dismiss() {
	e.mu.Lock()
	e.stopping = true
	objects := make([]*object, 0, len(e.objects))
	for _, o := range e.objects {
		objects = append(objects, o)
	}
	e.mu.Unlock()
	for _, o := range objects {
		o.mu.Lock()
		for _, c := range o.running {
			c.stop(ErrStopped)
		}
		o.mu.Unlock()
	}
}

// stuck names what is being called, for a stop that does not come to its end.
func (e *engine) stuck() (names []string) {
	e.mu.Lock()
	calls := slices.Collect(maps.Keys(e.busy))
	e.mu.Unlock()
	for _, c := range calls {
		names = append(names, fmt.Sprintf("%s of %s", c.id, c.object.key))
	}
	slices.Sort(names)
	return names
}
