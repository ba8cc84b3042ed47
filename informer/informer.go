package informer

import (
	"context"
	"fmt"
	"iter"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

// Informer keeps the objects of one resource, of type T, up to date while it runs.
// What it hands out is shared and must not be changed. It may be used from any
// goroutine.
type Informer[T runtime.Object] struct {
	follower *follower
	group    *Group
}

// New makes an informer of all objects of type T that the options leave. It sends
// nothing and starts nothing yet, and does not change cfg.
//
// T is a pointer to a type of the scheme, by default client-go's; or
// *unstructured.Unstructured or *metav1.PartialObjectMetadata, and then [Resource]
// says of which resource.
func New[T runtime.Object](cfg *rest.Config, options ...Option) (*Informer[T], error) {
	var none T
	goType := reflect.TypeOf(none)
	if goType == nil || goType.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("an informer's objects must be pointers, like *corev1.Pod, not %T", none)
	}
	example := reflect.New(goType.Elem()).Interface().(runtime.Object)
	set := settle(options)
	set.paged = true
	source, name, err := connect(cfg, example, set)
	if err != nil {
		return nil, fmt.Errorf("informer of %T: %w", none, err)
	}
	i := &Informer[T]{group: set.group}
	if i.group == nil {
		i.group = NewGroup()
	}
	i.follower = newFollower(name, source, expecting(example), set)
	source.cached = i.follower.cached
	if err := i.follower.store.AddIndexes(set.indexes); err != nil {
		return nil, err
	}
	return i, nil
}

// Run keeps the objects up to date until ctx is done, or until nothing else is
// true, and returns when every handler is out. It returns the cause of ctx's end,
// or a *keepwatch.Failure: one that lasted beyond [StartupDeadline], or a broken
// invariant of our own. An informer runs once.
func (i *Informer[T]) Run(ctx context.Context) error {
	begin := func() {
		i.follower.report = func(n reflector.Notice) {
			if n.Decision == reflector.Relist {
				i.follower.logRelist(ctx, n.Failure)
				return
			}
			utilruntime.HandleErrorWithContext(ctx, n.Failure, "Failed to follow", "informer", i.follower.name)
		}
		i.group.enter(i.follower)
	}
	return i.follower.run(ctx, begin, func(error) { i.group.leave(i.follower, nil) }) // whoever runs it is told
}

// Synced is closed once the first list is in.
func (i *Informer[T]) Synced() <-chan struct{} { return i.follower.synced }

// State is what the informer is doing.
func (i *Informer[T]) State() State { return i.Status().State }

// Status is the informer's account of itself.
func (i *Informer[T]) Status() Status { return i.follower.status() }

// Snapshot is the newest state; it is empty until the first list is in.
func (i *Informer[T]) Snapshot() Snapshot[T] {
	if current := i.follower.applier.current.Load(); current != nil {
		return Snapshot[T]{current}
	}
	return Snapshot[T]{&store.Snapshot{}}
}

// All iterates over the objects of the newest state, in the order of LIST.
func (i *Informer[T]) All() iter.Seq[T] { return i.Snapshot().All() }

// Get finds an object in the newest state; namespace is "" for cluster-scoped ones.
func (i *Informer[T]) Get(namespace, name string) (object T, ok bool) {
	if value, there := i.follower.applier.lookup.find(keepwatch.Key{Namespace: namespace, Name: name}); there {
		return value.(T), true
	}
	return object, false
}
