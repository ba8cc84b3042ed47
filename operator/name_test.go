package operator

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// TestNextObjectWaits deletes an object and creates the next one of its name while a handler of the first runs, as an
// informer delivers both after a long lost connection.
func TestNextObjectWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnEvent(op, func(_ context.Context, r *thing) error {
			j.add("%s begins: %s", r.WatchEvent, r.Object.UID)
			time.Sleep(10 * time.Second)
			j.add("%s ends: %s", r.WatchEvent, r.Object.UID)
			return nil
		})
		w.create("one", nil)
		startIn(t, w, op)
		first := w.at("one")["metadata"].(map[string]any)["uid"]
		time.Sleep(time.Second)
		w.delete("one")
		w.create("one", nil)
		second := w.at("one")["metadata"].(map[string]any)["uid"]
		w.create("other", nil) // another name does not wait
		other := w.at("other")["metadata"].(map[string]any)["uid"]
		time.Sleep(time.Minute)
		j.want(t,
			fmt.Sprint("0  begins: ", first), fmt.Sprint("1 ADDED begins: ", other),
			fmt.Sprint("10  ends: ", first), fmt.Sprint("10 DELETED begins: ", first),
			fmt.Sprint("11 ADDED ends: ", other), fmt.Sprint("20 DELETED ends: ", first),
			fmt.Sprint("20 ADDED begins: ", second), fmt.Sprint("30 ADDED ends: ", second))
	})
}

// TestNamesInOrder delivers objects of a few names that are deleted, replaced, and return, to several workers: the
// states of one name are handled one after another in the order of their delivery, and the last one is.
func TestNamesInOrder(t *testing.T) {
	const names, changes, workers = 3, 20_000, 8
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var mu sync.Mutex
	handled, running := map[string]int{}, map[string]bool{}
	op := New("widgets.example.com", Logger(slog.New(slog.DiscardHandler)))
	OnEvent(op, func(_ context.Context, r *thing) error {
		revision, err := strconv.Atoi(r.Object.ResourceVersion)
		mu.Lock()
		if err != nil || running[r.Object.Name] || revision < handled[r.Object.Name] {
			t.Errorf("%s %s at %s; handled before: %d, another call runs: %t (%v)",
				r.WatchEvent, r.Object.Name, r.Object.ResourceVersion, handled[r.Object.Name], running[r.Object.Name], err)
		}
		handled[r.Object.Name], running[r.Object.Name] = revision, true
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		defer mu.Unlock()
		running[r.Object.Name] = false
		return nil
	})
	p := &process{}
	p.begin(ctx)
	p.stop = func(err error) { t.Error(err) }
	e := newEngine(op, widgetKind, nil, newFakeServer(), nil, p)
	var working sync.WaitGroup
	for range workers {
		working.Go(e.work)
	}

	last, alive := [names]int{}, [names]int{} // the number of the object that exists, or 0
	for revision := 1; revision <= changes; revision++ {
		name := random.IntN(names)
		typ, number := keepwatch.Modified, alive[name]
		switch {
		case number == 0: // one of three UIDs: after a restore, an earlier object returns
			number = 1 + random.IntN(3)
			typ, alive[name] = keepwatch.Added, number
		case random.IntN(2) == 0:
			typ, alive[name] = keepwatch.Deleted, 0
		}
		last[name] = revision
		e.deliver(change{typ, keepwatch.Revision(revision), &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{
				"name": fmt.Sprint("name-", name), "namespace": "default",
				"uid": fmt.Sprintf("%d-%d", name, number), "resourceVersion": strconv.Itoa(revision),
			},
		}}, false})
		for range random.IntN(20) {
			runtime.Gosched()
		}
	}
	for name, revision := range last {
		for limit, done := time.After(await.Deadline), false; !done; {
			mu.Lock()
			done = handled[fmt.Sprint("name-", name)] == revision && !running[fmt.Sprint("name-", name)]
			mu.Unlock()
			select {
			case <-time.After(time.Millisecond):
			case <-limit:
				t.Fatalf("name-%d is never handled at %d", name, revision)
			}
		}
	}
	e.queue.Close()
	working.Wait()
	for key, remaining := range e.objects {
		if alive := len(remaining) == 1 && !remaining[0].gone; !alive {
			t.Errorf("%d objects named %s remain", len(remaining), key)
		}
	}
}
