package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/reflector"
)

var _ cache.SharedIndexInformer = (*Shared)(nil)

// Shared is a cache.SharedIndexInformer with a status, typed reads and an audit.
// [NewSharedIndexInformer] makes one.
//
// It keeps client-go's documented contract; what is different is in the package's
// documentation.
type Shared struct {
	follower *follower
	source   *lazySource
	indexer  *indexer
	example  runtime.Object
	lw       cache.ListerWatcher
	resync   time.Duration // of handlers that ask for none in particular
	errors   cache.WatchErrorHandlerWithContext
	group    *Group
}

// NewSharedIndexInformer is what cache.NewSharedIndexInformer is: the same
// arguments, and the same interface, which always holds a [*Shared].
//
// Of lw everything counts. resync is how often handlers that do not say otherwise
// receive the whole state again, 0 for never.
func NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return NewGroup().NewSharedIndexInformer(lw, example, resync, indexers)
}

func newShared(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers, group *Group) *Shared {
	name := describe(example)
	source := &lazySource{lw: lw, example: example, name: name, settings: group.settings}
	s := &Shared{
		example: example,
		source:  source,
		lw:      lw,
		resync:  resync,
		errors:  cache.DefaultWatchErrorHandler,
		group:   group,
	}
	s.follower = newFollower(name, source, expecting(example), group.settings)
	source.cached = s.follower.cached
	s.follower.resync = resync
	s.indexer = newIndexer(s.follower.applier, s.follower.resourceVersion, indexers)
	return s
}

// describe names objects like the example for people.
func describe(example runtime.Object) string {
	if example == nil {
		return "objects"
	}
	if gvk := example.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk.String()
	}
	return fmt.Sprintf("%T", example)
}

// AddEventHandler adds a handler with the informer's resync period.
func (s *Shared) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod adds a handler with a resync period of its own.
func (s *Shared) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &period})
}

// minimumResync is client-go's.
const minimumResync = time.Second

// AddEventHandlerWithOptions adds a handler, at any time before the informer has
// stopped. Its callbacks are called one after the other, from one goroutine.
func (s *Shared) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	period := s.resync
	if options.ResyncPeriod != nil {
		period = *options.ResyncPeriod
	}
	if period > 0 && period < minimumResync {
		logger := klog.Background()
		if options.Logger != nil {
			logger = *options.Logger
		}
		logger.Info("Resync period is too small, using the least that is allowed", "resyncPeriod", period, "minimumResyncPeriod", minimumResync)
		period = minimumResync
	}
	h := s.follower.handler(callbacks{handler}, period, dropFailed)
	if err := s.follower.add(h); err != nil {
		return nil, err
	}
	return &registration{handler: h, name: fmt.Sprintf("%s + event handler %T", s.checkerName(), handler)}, nil
}

// callbacks are client-go's.
type callbacks struct{ cache.ResourceEventHandler }

func (c callbacks) callback(o notification) func() error {
	var call func()
	switch {
	case o.new == nil && o.final:
		last := o.last.Value()
		call = func() { c.OnDelete(last) }
	case o.new == nil:
		last := cache.DeletedFinalStateUnknown{Key: o.last.Key().String(), Obj: o.last.Value()}
		call = func() { c.OnDelete(last) }
	case o.old == nil:
		added := o.new.Value()
		call = func() { c.OnAdd(added, o.initial) }
	default:
		old, updated := o.old.Value(), o.new.Value()
		call = func() { c.OnUpdate(old, updated) }
	}
	return func() error {
		call()
		return nil
	}
}

// registration is the handle of a handler.
type registration struct {
	*handler
	name string
}

// HasSynced reports whether the handler has worked off its initial list.
func (r *registration) HasSynced() bool { return cache.IsDone(r.HasSyncedChecker()) }

// HasSyncedChecker is done when HasSynced is.
func (r *registration) HasSyncedChecker() cache.DoneChecker { return doneChecker{r.name, r.synced} }

// ShutdownChan is closed when the handler was removed, or the informer stopped, and
// its last call is over. cache.ShutDownEventHandler waits for it.
func (r *registration) ShutdownChan() <-chan struct{} { return r.done }

type doneChecker struct {
	name string
	done <-chan struct{}
}

func (d doneChecker) Name() string          { return d.name }
func (d doneChecker) Done() <-chan struct{} { return d.done }

// RemoveEventHandler removes a handler: once it has returned, no further callback begins.
// It does not wait for a callback that has begun, so that a handler can remove itself and
// callbacks may wait for whoever removes them; cache.ShutDownEventHandler waits. A handle
// of another informer, or one that was removed, is no error.
func (s *Shared) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok {
		return fmt.Errorf("a %T is no handle of this informer", handle)
	}
	s.follower.remove(r.handler)
	return nil
}

// GetStore returns the cache. See GetIndexer.
func (s *Shared) GetStore() cache.Store { return s.indexer }

// GetIndexer returns the cache. It can be written until the first list is in it.
func (s *Shared) GetIndexer() cache.Indexer { return s.indexer }

// All iterates over the objects of the newest state, in the order of LIST: what is in
// GetStore().List(), without a copy.
func (s *Shared) All() iter.Seq[any] {
	state, ok := s.indexer.listed()
	if !ok {
		return slices.Values(s.indexer.seeds.List())
	}
	return inSegments[any](state.Segments())
}

// AddIndexers adds indexers, at any time before the informer has stopped.
func (s *Shared) AddIndexers(indexers cache.Indexers) error {
	if s.IsStopped() {
		return fmt.Errorf("indexer was not added %w", errStopped)
	}
	return s.indexer.AddIndexers(indexers)
}

// GetController returns something that knows whether the informer has synced, and
// whose Run does nothing, as client-go's.
func (s *Shared) GetController() cache.Controller { return controller{s} }

type controller struct{ *Shared }

func (controller) Run(<-chan struct{})            {}
func (controller) RunWithContext(context.Context) {}

// HasSynced reports whether the first list is in the cache.
func (s *Shared) HasSynced() bool { return s.follower.isSynced() }

// HasSyncedChecker is done when HasSynced is.
func (s *Shared) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{s.checkerName(), s.follower.synced}
}

func (s *Shared) checkerName() string { return fmt.Sprintf("SharedIndexInformer %T", s.example) }

// LastSyncResourceVersion is the resourceVersion up to which the cache is equal to
// the server, "" before the first list.
func (s *Shared) LastSyncResourceVersion() string { return s.follower.resourceVersion() }

// SetWatchErrorHandler sets the function that receives failures, until the informer starts. It
// receives everything but streams that ended cleanly, also of what a new watch
// mends.
func (s *Shared) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext is SetWatchErrorHandler with Run's context; nil
// is client-go's default.
func (s *Shared) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	if handler == nil {
		handler = cache.DefaultWatchErrorHandler
	}
	return s.follower.configure(func() { s.errors = handler })
}

// SetTransform sets what each state of each object goes through before anybody
// sees it, until the informer starts. A state for which it fails, panics or returns nil
// is not shown, nor is an earlier one; see [Status].
func (s *Shared) SetTransform(transform cache.TransformFunc) error {
	return s.follower.configure(func() { s.follower.applier.transform, s.source.transform = transform, transform })
}

// IsStopped reports whether Run has ended. An informer runs once.
func (s *Shared) IsStopped() bool { return s.follower.in(stopped) }

// Run runs the informer until stop is closed.
func (s *Shared) Run(stop <-chan struct{}) { s.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext runs the informer until ctx is done. It returns when the last
// callback has. If it stops before that, the cause is reported, and the group's
// [Group.Check] fails.
func (s *Shared) RunWithContext(ctx context.Context) {
	detector := cache.NewCacheMutationDetector(s.follower.name)
	begin := func() {
		s.follower.report = s.reporter(ctx)
		s.follower.applier.accepted = detector.AddObject
		s.follower.running.Go(func() { detector.Run(s.follower.until.Done()) })
		s.group.enter(s.follower)
	}
	ended := func(failure error) {
		s.group.leave(s.follower, failure)
		if failure != nil {
			utilruntime.HandleErrorWithContext(ctx, failure, "The informer has stopped", "type", s.follower.name)
		}
	}
	if err := s.follower.run(ctx, begin, ended); errors.Is(err, errStarted) {
		klog.FromContext(ctx).Info("Warning: the informer has started, run more than once is not allowed")
	}
}

// reporter passes failures on to the watch error handler, with a reflector that has
// the informer's name and type: handlers look at no more than that. A new list is logged
// in any case: client-go's own handler is silent about an expired revision.
func (s *Shared) reporter(ctx context.Context) func(reflector.Notice) {
	theirs := cache.NewReflectorWithOptions(s.lw, s.example, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{
		Name: "keepwatch", TypeDescription: s.follower.name,
	})
	return func(n reflector.Notice) {
		if n.Decision == reflector.Relist {
			s.follower.logRelist(ctx, n.Failure)
		}
		s.errors(ctx, theirs, n.Failure.Err)
	}
}
