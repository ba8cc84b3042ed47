package clientgo

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

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
)

var _ cache.SharedIndexInformer = (*Shared)(nil)

// Shared is a cache.SharedIndexInformer with a status. [NewSharedIndexInformer] returns
// one.
//
// It guarantees what client-go documents. The package's documentation lists the
// differences.
type Shared struct {
	newer
	follower *follow.Follower
	source   *lazySource
	indexer  *indexer
	example  runtime.Object
	lw       cache.ListerWatcher
	resync   time.Duration // of handlers without a period of their own
	errors   cache.WatchErrorHandlerWithContext
	group    *health.Group
}

// NewSharedIndexInformer replaces cache.NewSharedIndexInformer. It has the same arguments
// and returns the same interface, which always contains a [*Shared].
//
// resync is the period at which handlers without a period of their own receive the whole
// state again, 0 for never.
func NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers) cache.SharedIndexInformer {
	return NewGroup().NewSharedIndexInformer(lw, example, resync, indexers)
}

func newShared(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers,
	group *Group) *Shared {
	name := nameOf(example)
	source := &lazySource{lw: lw, example: example, name: name, direct: group.settings.direct,
		options: group.settings.source()}
	o := group.settings.follow
	o.Resync = resync
	follower := follow.New(name, source, example, o)
	source.cached = follower.Cached
	s := &Shared{
		follower: follower,
		source:   source,
		indexer:  newIndexer(follower, indexers),
		example:  example,
		lw:       lw,
		resync:   resync,
		errors:   cache.DefaultWatchErrorHandler,
		group:    group.Group,
	}
	s.newer.of(s)
	return s
}

// nameOf names objects like the example for people.
func nameOf(example runtime.Object) string {
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
func (s *Shared) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler,
	period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &period})
}

// minimumResync is the shortest resync period, as in client-go.
const minimumResync = time.Second

// AddEventHandlerWithOptions adds a handler, at any time before the informer has
// stopped. Its callbacks are called one after the other, from one goroutine.
func (s *Shared) AddEventHandlerWithOptions(handler cache.ResourceEventHandler,
	options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	period := s.resync
	if options.ResyncPeriod != nil {
		period = *options.ResyncPeriod
	}
	if period > 0 && period < minimumResync {
		logger := klog.Background()
		if options.Logger != nil {
			logger = *options.Logger
		}
		logger.Info("Resync period is too small, using the minimum", "resyncPeriod", period, "minimumResyncPeriod",
			minimumResync)
		period = minimumResync
	}
	h, err := s.follower.Add(callbacks{handler}, follow.HandlerOptions{Resync: period})
	if err != nil {
		return nil, err
	}
	return &registration{handler: h, name: fmt.Sprintf("%s + event handler %T", s.checkerName(), handler)}, nil
}

// callbacks are client-go's, as follow.Callbacks.
type callbacks struct{ cache.ResourceEventHandler }

func (c callbacks) Callback(n follow.Notification) func() error {
	var call func()
	switch {
	case n.New == nil && n.Final:
		last := n.Last.Value()
		call = func() { c.OnDelete(last) }
	case n.New == nil:
		last := cache.DeletedFinalStateUnknown{Key: n.Last.Key().String(), Obj: n.Last.Value()}
		call = func() { c.OnDelete(last) }
	case n.Old == nil:
		added := n.New.Value()
		call = func() { c.OnAdd(added, n.Initial) }
	default:
		old, updated := n.Old.Value(), n.New.Value()
		call = func() { c.OnUpdate(old, updated) }
	}
	return func() error {
		call()
		return nil
	}
}

// registration is the handle of a handler.
type registration struct {
	handler *follow.Handler
	name    string
}

// HasSynced reports whether the handler has received its initial list.
func (r *registration) HasSynced() bool {
	select {
	case <-r.handler.Synced():
		return true
	default:
		return false
	}
}

// ShutdownChan returns a channel that is closed once the handler was removed, or the
// informer has stopped, and its last call has returned. cache.ShutDownEventHandler waits
// for it.
func (r *registration) ShutdownChan() <-chan struct{} { return r.handler.Done() }

// RemoveEventHandler removes a handler: once it has returned, no further callback begins.
// It does not wait for a callback that has begun, so that a handler can remove itself;
// cache.ShutDownEventHandler waits. A handle of another informer, or of a removed handler,
// is not an error.
func (s *Shared) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok {
		return fmt.Errorf("a %T is no handle of this informer", handle)
	}
	s.follower.Remove(r.handler)
	return nil
}

// GetStore returns the cache. See GetIndexer.
func (s *Shared) GetStore() cache.Store { return s.indexer }

// GetIndexer returns the cache. It can be written until the first list is in it.
func (s *Shared) GetIndexer() cache.Indexer { return s.indexer }

// All iterates over the objects of the newest state, in the order of LIST: the objects of
// GetStore().List(), without a copy.
func (s *Shared) All() iter.Seq[any] {
	state, ok := s.indexer.listed()
	if !ok {
		return slices.Values(s.indexer.seeds.List())
	}
	return follow.InSegments[any](state.Segments())
}

// AddIndexers adds indexers, at any time before the informer has stopped.
func (s *Shared) AddIndexers(indexers cache.Indexers) error {
	if s.IsStopped() {
		return fmt.Errorf("indexer was not added %w", follow.ErrStopped)
	}
	return s.indexer.AddIndexers(indexers)
}

// GetController returns a controller that reports whether the informer has synced. Its Run
// does nothing, as client-go's.
func (s *Shared) GetController() cache.Controller { return controller{s} }

type controller struct{ *Shared }

func (controller) Run(<-chan struct{})            {}
func (controller) RunWithContext(context.Context) {}

// HasSynced reports whether the first list is in the cache.
func (s *Shared) HasSynced() bool { return s.follower.IsSynced() }

func (s *Shared) checkerName() string { return fmt.Sprintf("SharedIndexInformer %T", s.example) }

// LastSyncResourceVersion returns the server's resource version of the cache, "" before the
// first list.
func (s *Shared) LastSyncResourceVersion() string { return s.follower.ResourceVersion() }

// SetWatchErrorHandler sets the function that receives failures. It fails once the informer
// was started. The function receives all failures except streams that ended cleanly, also
// those after which a new watch resumes.
func (s *Shared) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext is SetWatchErrorHandler with Run's context. nil sets
// client-go's default.
func (s *Shared) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	if handler == nil {
		handler = cache.DefaultWatchErrorHandler
	}
	return s.follower.Configure(func() { s.errors = handler })
}

// SetTransform sets the function that changes each state of each object once, before any
// handler or reader receives it. It fails once the informer was started. If the function
// fails, panics or returns nil for a state, neither this state nor an earlier one of the
// object is shown; see [health.Status].
func (s *Shared) SetTransform(transform cache.TransformFunc) error {
	return s.follower.Configure(func() {
		s.follower.SetTransform(transform)
		s.source.options.Transformed = transform != nil
	})
}

// IsStopped reports whether Run has ended. An informer runs once.
func (s *Shared) IsStopped() bool { return s.follower.IsStopped() }

// State returns what the informer does at present.
func (s *Shared) State() health.State { return s.Status().State }

// Status returns the informer's status. errors.As and apierrors.Is… find the server's Status in LastFailure.
func (s *Shared) Status() health.Status { return member{s.follower}.Status() }

// member is an informer in its group.
type member struct{ *follow.Follower }

func (m member) Status() health.Status {
	status := m.Follower.Status()
	status.LastFailure = withStatus(status.LastFailure)
	return status
}

// withStatus returns the failure of an informer with the server's Status.
func withStatus(err error) error {
	failure, ok := errors.AsType[*keepwatch.Failure](err)
	if !ok {
		return err
	}
	shown := *failure
	shown.Err = kube.WithStatus(failure.Err)
	return &shown
}

// Run runs the informer until stop is closed.
func (s *Shared) Run(stop <-chan struct{}) { s.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext runs the informer until ctx is done. It returns once the last callback has
// returned. If the informer stops before ctx is done, the failure is reported, and the
// group's Check fails. If the informer ran before, RunWithContext logs a warning and returns.
func (s *Shared) RunWithContext(ctx context.Context) {
	detector := cache.NewCacheMutationDetector(s.follower.Name())
	err := s.follower.Run(ctx, follow.Hooks{
		Begin: func(until context.Context) {
			s.follower.Go(func() { detector.Run(until.Done()) })
			s.group.Add(member{s.follower})
		},
		End: func(failure error) {
			failure = withStatus(failure)
			s.group.Remove(member{s.follower}, failure)
			if failure != nil {
				utilruntime.HandleErrorWithContext(ctx, failure, "The informer has stopped", "type", s.follower.Name())
			}
		},
		Report:   s.reporter(ctx),
		Accepted: detector.AddObject,
	})
	if errors.Is(err, follow.ErrStarted) {
		klog.FromContext(ctx).Info("Warning: the informer has started, run more than once is not allowed")
	}
}

// reporter returns a function that passes failures to the watch error handler. The handler
// also receives a reflector with the informer's name and type: handlers read nothing else of
// it. A new list is logged in any case, because client-go's default handler logs nothing for
// an expired revision.
func (s *Shared) reporter(ctx context.Context) func(reflector.Notice) {
	named := cache.NewReflectorWithOptions(s.lw, s.example, cache.NewStore(cache.MetaNamespaceKeyFunc),
		cache.ReflectorOptions{
			Name: "keepwatch", TypeDescription: s.follower.Name(),
		})
	return func(n reflector.Notice) {
		if n.Decision == reflector.Relist {
			s.follower.LogRelist(ctx, n.Failure)
		}
		s.errors(ctx, named, kube.WithStatus(n.Failure.Err))
	}
}
