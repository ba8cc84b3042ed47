package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/informer/internal/direct"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

// Informer keeps the objects of one resource, of type T, up to date while it runs. The
// objects that it returns are shared and must not be changed. Its methods may be called from
// any goroutine.
type Informer[T runtime.Object] struct {
	follower *follow.Follower
	group    *health.Group
}

// New returns an informer of all objects of type T that the options select. It sends no
// request, starts no goroutine, and does not change cfg.
//
// T is a pointer to a type of the scheme, by default client-go's; or
// *unstructured.Unstructured or *metav1.PartialObjectMetadata, which need [Resource].
func New[T runtime.Object](cfg *rest.Config, options ...Option) (*Informer[T], error) {
	var none T
	goType := reflect.TypeOf(none)
	if goType == nil || goType.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("an informer's objects must be pointers, like *corev1.Pod, not %T", none)
	}
	example := reflect.New(goType.Elem()).Interface().(runtime.Object)
	set := apply(options)
	source, name, err := connect(cfg, example, set)
	if err != nil {
		return nil, fmt.Errorf("informer of %T: %w", none, err)
	}
	follower := follow.New(name, source, example, set.follow)
	if err := follower.AddIndexes(set.indexes); err != nil {
		return nil, err
	}
	source.Cached = follower.Cached
	return &Informer[T]{follower: follower, group: set.group}, nil
}

// connect returns a source of objects like the example, and a name for it.
func connect(cfg *rest.Config, example runtime.Object, set settings) (*direct.Source, string, error) {
	o := set.source
	if _, err := labels.Parse(o.Labels); err != nil {
		return nil, "", fmt.Errorf("label selector %q: %w", o.Labels, err)
	}
	if _, err := fields.ParseSelector(o.Fields); err != nil {
		return nil, "", fmt.Errorf("field selector %q: %w", o.Fields, err)
	}
	var name string
	switch example.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if o.Resource.Resource == "" {
			return nil, "", errors.New("which resource? Set informer.Resource")
		}
		name = o.Resource.GroupResource().String()
	default:
		kinds, _, err := set.scheme.ObjectKinds(example)
		if err != nil {
			return nil, "", fmt.Errorf("%w; informer.Scheme sets another scheme", err)
		}
		o.Kind = kinds[0]
		name = o.Kind.GroupKind().String()
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.RateLimiter == nil {
		cfg.QPS = -1 // it sends one request at a time, and obeys Retry-After
	}
	source, err := direct.New(cfg, example, o)
	return source, name, err
}

// Run keeps the objects up to date until ctx is done or an error that cannot be retried
// occurs, and returns once every handler has ended. It returns the cause of ctx's end, or a
// *keepwatch.Failure: one that lasted beyond [StartupDeadline], or an internal invariant
// violation. An informer runs once: a later call returns an error and sends no request.
func (i *Informer[T]) Run(ctx context.Context) error {
	return i.follower.Run(ctx, follow.Hooks{
		Begin: func(context.Context) { i.group.Add(i.follower) },
		End:   func(error) { i.group.Remove(i.follower, nil) }, // the caller receives the error
		Report: func(n reflector.Notice) {
			if n.Decision == reflector.Relist {
				i.follower.LogRelist(ctx, n.Failure)
				return
			}
			utilruntime.HandleErrorWithContext(ctx, n.Failure, "Failed to follow", "informer", i.follower.Name())
		},
	})
}

// Synced returns a channel that is closed once the first list is in the cache.
func (i *Informer[T]) Synced() <-chan struct{} { return i.follower.Synced() }

// State returns what the informer does at present.
func (i *Informer[T]) State() health.State { return i.Status().State }

// Status returns the informer's status.
func (i *Informer[T]) Status() health.Status { return i.follower.Status() }

// Snapshot returns the newest state. It is empty before the first list.
func (i *Informer[T]) Snapshot() Snapshot[T] {
	if current := i.follower.Current(); current != nil {
		return Snapshot[T]{current}
	}
	return Snapshot[T]{&store.Snapshot{}}
}

// All iterates over the objects of the newest state, in the order of LIST.
func (i *Informer[T]) All() iter.Seq[T] { return i.Snapshot().All() }

// Get returns an object of the newest state. namespace is "" for cluster-scoped objects.
func (i *Informer[T]) Get(namespace, name string) (object T, ok bool) {
	if value, found := i.follower.Find(keepwatch.Key{Namespace: namespace, Name: name}); found {
		return value.(T), true
	}
	return object, false
}
