package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
)

// Change is a change of one object as a handler receives it.
type Change[T runtime.Object] struct {
	// Type is Added, Modified or Deleted, compared with the state that the handler accepted
	// last.
	Type keepwatch.ChangeType
	// Revision is the revision of the change, or of the newest one if several were merged. For
	// an initial state or a resync it is the object's own.
	Revision keepwatch.Revision
	// Object is the new state; for Deleted the last known one.
	Object T
	// Old is the state that the handler accepted last; nil for Added.
	Old T
	// Initial is true for the objects of the state that the handler began with.
	Initial bool
	// Resync is true if the object did not change: the change is due to [Resync].
	Resync bool
	// FinalStateUnknown is true for a deletion whose final state is not known, because a
	// list lacked the object, or because the handler is so late that the store no longer
	// has it. Object may then be older than the final state.
	FinalStateUnknown bool
}

// HandlerOption configures a handler.
type HandlerOption func(*handlerSettings)

type handlerSettings struct{ resync time.Duration }

// Resync delivers the whole state again after each period, as changes from each object to
// itself.
func Resync(period time.Duration) HandlerOption {
	return func(s *handlerSettings) { s.resync = period }
}

// Handle adds a handler. It receives the current state, and then every change, one after
// the other. Handle may be called before Run and while it runs; it fails once Run has
// returned.
//
// If handler returns an error, or panics, the change is reported and delivered again after
// 1 s, doubling to 1 min, merged with later changes of the object: Old is always the state
// that handler accepted last. A later change of the object, and a resync, is delivered at
// once. Changes of other objects are delivered in the meantime, unless 10,000 objects wait
// for their retries and another one is to be delivered, also by a resync or in the first
// list: then only these retries are delivered, with the changes as they are, until handler
// accepts one of them. Later changes of the 10,000 wait, too: a handler that fails because
// of what objects contain should return nil for them, as their corrections may not reach
// it otherwise. ctx is done when the handler is removed or the informer ends.
func (i *Informer[T]) Handle(handler func(ctx context.Context, change Change[T]) error,
	options ...HandlerOption) (*Registration, error) {
	var set handlerSettings
	for _, o := range options {
		o(&set)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h, err := i.follower.Add(callbacks[T]{ctx, handler}, follow.HandlerOptions{Resync: set.resync, Retry: true,
		Stop: cancel})
	if err != nil {
		cancel()
		return nil, err
	}
	return &Registration{h}, nil
}

// callbacks are one function, as follow.Callbacks.
type callbacks[T runtime.Object] struct {
	ctx    context.Context
	handle func(context.Context, Change[T]) error
}

func (c callbacks[T]) Callback(n follow.Notification) func() error {
	change := Change[T]{Revision: n.Revision, Initial: n.Initial, Resync: n.Resync}
	if n.Old != nil {
		change.Old = n.Old.Value().(T)
	}
	switch {
	case n.New == nil:
		change.Type, change.Object, change.FinalStateUnknown = keepwatch.Deleted, n.Last.Value().(T), !n.Final
	case n.Old == nil:
		change.Type, change.Object = keepwatch.Added, n.New.Value().(T)
	default:
		change.Type, change.Object = keepwatch.Modified, n.New.Value().(T)
	}
	return func() error {
		err := c.handle(c.ctx, change)
		if err != nil && c.ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(c.ctx, err, "A handler failed and will be called again", "change",
				change.Type.String(), "object", n.Key().String())
		}
		return err
	}
}

// Registration is a handler that was added to an informer.
type Registration struct{ handler *follow.Handler }

// Synced returns a channel that is closed once the initial state was delivered to the
// handler. Retries of failed calls may be pending. While 10,000 are and there are more
// objects, it waits until the handler accepts some; see [Informer.Handle].
func (r *Registration) Synced() <-chan struct{} { return r.handler.Synced() }

// Done returns a channel that is closed once the handler was removed, or the informer has
// stopped, and the last call has returned.
func (r *Registration) Done() <-chan struct{} { return r.handler.Done() }

// Remove removes the handler. Once it has returned, no further call begins. It does not
// wait for a call that has begun: see Done.
func (r *Registration) Remove() { r.handler.Remove() }
