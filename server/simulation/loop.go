package simulation

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/internal/worker"
)

// The delays before an object is handled again after an error; they double.
const (
	minDelay = 20 * time.Millisecond
	maxDelay = 30 * time.Second
)

// handler compares one object with what it should be, and writes the difference. It returns when to look again although
// nothing changes; zero means never.
type handler func(ctx context.Context, namespace, name string) (due time.Time, err error)

// loop handles the objects of one kind, one at a time.
type loop struct {
	kind   string
	handle handler
	clock  *Clock
	worker *worker.Worker[cache.ObjectName]

	mu  sync.Mutex
	due map[cache.ObjectName]time.Time // when objects are handled again, by the clock
}

func newLoop(kind string, clock *Clock, handle handler) *loop {
	l := &loop{kind: kind, handle: handle, clock: clock, due: map[cache.ObjectName]time.Time{}}
	l.worker = worker.New(worker.Options[cache.ObjectName]{
		Handle: l.process, Retrying: l.report, MinDelay: minDelay, MaxDelay: maxDelay,
	})
	return l
}

func (l *loop) add(namespace, name string) {
	l.worker.Add(cache.ObjectName{Namespace: namespace, Name: name})
}

// run handles objects until ctx is done.
func (l *loop) run(ctx context.Context) {
	var alarms sync.WaitGroup
	defer alarms.Wait()
	alarms.Go(func() { l.wake(ctx) })
	l.worker.Run(ctx)
}

func (l *loop) process(ctx context.Context, key cache.ObjectName) error {
	l.mu.Lock()
	delete(l.due, key)
	l.mu.Unlock()
	due, err := l.handle(ctx, key.Namespace, key.Name)
	if !due.IsZero() {
		l.addAt(key, due)
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// report reports an error, unless an object was deleted meanwhile: then it is handled again in another state.
func (l *loop) report(ctx context.Context, key cache.ObjectName, err error) {
	if !apierrors.IsNotFound(err) {
		utilruntime.HandleErrorWithContext(ctx, err, "Simulation of an object is retried",
			"kind", l.kind, "namespace", key.Namespace, "name", key.Name)
	}
}

// addAt adds an object when the clock has reached a time.
func (l *loop) addAt(key cache.ObjectName, due time.Time) {
	l.mu.Lock()
	l.due[key] = due
	l.mu.Unlock()
	l.worker.AddAfter(key, due.Sub(l.clock.Now())) // also after an Advance that wake has not seen
}

// wake adds the objects that are due after the clock was advanced.
func (l *loop) wake(ctx context.Context) {
	for {
		advanced := l.clock.advanced()
		now := l.clock.Now()
		l.mu.Lock()
		for key, due := range l.due {
			if !due.After(now) {
				l.worker.Add(key)
			}
		}
		l.mu.Unlock()
		select {
		case <-advanced:
		case <-ctx.Done():
			return
		}
	}
}
