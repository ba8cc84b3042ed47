package informer

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/keepwatch/keepwatch"
)

// Change is what a handler is told of one object.
type Change[T runtime.Object] struct {
	Type     keepwatch.ChangeType
	Revision keepwatch.Revision
	// Object is the new state; for Deleted the last known one.
	Object T
	// Old is the state that the handler took last; nil for Added.
	Old T
	// Initial: the object is part of the state that the handler began with.
	Initial bool
	// Resync: nothing has happened, it is told again because of [Resync].
	Resync bool
	// FinalStateUnknown, of Deleted: a list showed the deletion, or the handler is so
	// late that the final state is not kept any more. Object may be older than that.
	FinalStateUnknown bool
}

// HandlerOption shapes a handler.
type HandlerOption func(*handlerSettings)

type handlerSettings struct{ resync time.Duration }

// Resync has a handler told the whole state again now and then, as changes from
// each object to itself.
func Resync(period time.Duration) HandlerOption {
	return func(s *handlerSettings) { s.resync = period }
}

// Handle has handler told of everything: of the state as it is, and of every change
// from then on, one after the other. It may be called before Run and while it
// runs; it fails once that has ended.
//
// A change for which handler returns an error, or panics, is reported and told
// again after 1 s, doubling to 1 min, joined with what has happened to the object
// since: Old is always what handler has taken last. Meanwhile it is told of
// other objects. ctx is done when the handler is removed or the informer ends.
func (i *Informer[T]) Handle(handler func(ctx context.Context, change Change[T]) error, options ...HandlerOption) (*Registration, error) {
	var set handlerSettings
	for _, o := range options {
		o(&set)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := i.follower.handler(typedCallback[T]{ctx, handler}, set.resync, tryAgain)
	h.cancel = cancel
	if err := i.follower.add(h); err != nil {
		cancel()
		return nil, err
	}
	return &Registration{h}, nil
}

type typedCallback[T runtime.Object] struct {
	ctx    context.Context
	handle func(context.Context, Change[T]) error
}

func (c typedCallback[T]) callback(o occurrence) func() error {
	change := Change[T]{Revision: o.at, Initial: o.initial, Resync: o.resync}
	if o.old != nil {
		change.Old = o.old.Value().(T)
	}
	switch {
	case o.new == nil:
		change.Type, change.Object, change.FinalStateUnknown = keepwatch.Deleted, o.last.Value().(T), !o.final
	case o.old == nil:
		change.Type, change.Object = keepwatch.Added, o.new.Value().(T)
	default:
		change.Type, change.Object = keepwatch.Modified, o.new.Value().(T)
	}
	return func() error {
		err := c.handle(c.ctx, change)
		if err != nil && c.ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(c.ctx, err, "A handler failed and will be told again", "change", change.Type.String(), "object", o.key().String())
		}
		return err
	}
}

// Registration is a handler's place in an informer.
type Registration struct{ handler *handler }

// Synced is closed once the handler has been told of the state it began with. What
// it failed for may still be owed to it.
func (r *Registration) Synced() <-chan struct{} { return r.handler.synced }

// Done is closed when the handler was removed, or the informer has stopped, and the
// last call is over.
func (r *Registration) Done() <-chan struct{} { return r.handler.done }

// Remove removes the handler: once it has returned, no further call begins. It does not
// wait for a call that has begun: see Done.
func (r *Registration) Remove() { r.handler.follower.remove(r.handler) }
