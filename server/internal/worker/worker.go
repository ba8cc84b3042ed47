package worker

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// Options are what a worker does.
type Options[K comparable] struct {
	// Handle brings the object of a key into the state that it should have. After an error the key is handled again.
	Handle func(context.Context, K) error
	// Retrying is called with the error of a key that is handled again. A conflict is not reported: the object was written
	// in between, and is read again.
	Retrying func(context.Context, K, error)
	// MinDelay is the delay before a key is handled again after an error. It doubles up to MaxDelay, until Handle
	// succeeds.
	MinDelay, MaxDelay time.Duration
}

// Worker handles keys. Its methods are safe for concurrent use.
type Worker[K comparable] struct {
	options Options[K]
	queue   workqueue.TypedRateLimitingInterface[K]
}

// New returns a worker. It has a goroutine, which ends with Run.
func New[K comparable](options Options[K]) *Worker[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](options.MinDelay, options.MaxDelay)
	return &Worker[K]{options: options, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// Add has a key handled. A key that waits already is handled once, and one that is being handled once more.
func (w *Worker[K]) Add(key K) { w.queue.Add(key) }

// AddAfter adds a key after a delay, or earlier, if it is to be handled again earlier anyway.
func (w *Worker[K]) AddAfter(key K, delay time.Duration) { w.queue.AddAfter(key, delay) }

// Run handles keys until ctx is done. It can be called once; keys can be added before.
func (w *Worker[K]) Run(ctx context.Context) {
	defer w.queue.ShutDown()
	defer context.AfterFunc(ctx, w.queue.ShutDown)()
	for {
		key, shutdown := w.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		w.process(ctx, key)
		w.queue.Done(key)
	}
}

func (w *Worker[K]) process(ctx context.Context, key K) {
	err := w.options.Handle(ctx, key)
	switch {
	case err == nil:
		w.queue.Forget(key)
	case ctx.Err() != nil:
	default:
		if !apierrors.IsConflict(err) {
			w.options.Retrying(ctx, key, err)
		}
		w.queue.AddRateLimited(key)
	}
}
