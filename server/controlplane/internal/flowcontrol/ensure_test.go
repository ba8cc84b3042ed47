package flowcontrol

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// objects has the objects of one kind in a map: no connection and no other goroutine can enter the bubble of a test.
type objects[T metav1.Object] struct {
	mu  sync.Mutex
	all map[string]T
}

func (o *objects[T]) List(context.Context) ([]T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.all)), nil
}

func (o *objects[T]) Create(_ context.Context, obj T) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[obj.GetName()] = obj
	return nil
}

func (o *objects[T]) Update(ctx context.Context, obj T) error { return o.Create(ctx, obj) }

func (o *objects[T]) Delete(_ context.Context, name string, _ types.UID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, name)
	return nil
}

// Run restores deleted objects within a minute. Package controlplane has the tests with a server's storage.
func TestRunRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schemas := &objects[*flowcontrolv1.FlowSchema]{all: map[string]*flowcontrolv1.FlowSchema{}}
		levels := &objects[*flowcontrolv1.PriorityLevelConfiguration]{
			all: map[string]*flowcontrolv1.PriorityLevelConfiguration{}}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { Storage{schemas, levels}.Run(ctx) })
		expect := func(wantSchemas, wantLevels int) {
			t.Helper()
			synctest.Wait()
			haveSchemas, _ := schemas.List(ctx)
			haveLevels, _ := levels.List(ctx)
			if len(haveSchemas) != wantSchemas || len(haveLevels) != wantLevels {
				t.Errorf("%d flow schemas and %d priority levels, want %d and %d", len(haveSchemas), len(haveLevels), wantSchemas,
					wantLevels)
			}
		}
		expect(0, 0)
		time.Sleep(period)
		expect(11, 8)
		for _, name := range []string{"catch-all", "probes"} {
			_ = schemas.Delete(ctx, name, "")
		}
		time.Sleep(period - time.Second)
		expect(9, 8)
		time.Sleep(time.Second)
		expect(11, 8)
		cancel()
		running.Wait()
	})
}
