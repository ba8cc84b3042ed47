package clientgo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

func newSource(t *testing.T, pods ...*corev1.Pod) *fcache.FakeControllerSource {
	t.Helper()
	source := fcache.NewFakeControllerSource()
	for _, p := range pods {
		source.Add(p)
	}
	t.Cleanup(source.Shutdown)
	return source
}

func shared(lw cache.ListerWatcher, resync time.Duration) *clientgo.Shared {
	return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, resync, cache.Indexers{}).(*clientgo.Shared)
}

func handle(t *testing.T, inf cache.SharedInformer,
	h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
	t.Helper()
	registration, err := inf.AddEventHandler(h)
	if err != nil {
		t.Fatal(err)
	}
	return registration
}

func byLabel(obj any) (keys []string, err error) {
	for k := range obj.(*corev1.Pod).Labels {
		keys = append(keys, k)
	}
	return keys, nil
}

func found(objects []any) (names []string) {
	for _, o := range objects {
		names = append(names, o.(*corev1.Pod).Name)
	}
	return names
}

func TestIndexersCanBeAddedAtAnyTime(t *testing.T) {
	source := newSource(t, podtest.Pod("a", podtest.Mark("1")), podtest.Pod("b"))
	inf := shared(source, 0)
	if err := inf.AddIndexers(cache.Indexers{"before": byLabel}); err != nil {
		t.Fatal(err)
	}
	stop := podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	if err := inf.AddIndexers(cache.Indexers{"after": byLabel}); err != nil {
		t.Fatal(err)
	}
	if err := inf.AddIndexers(cache.Indexers{"after": byLabel}); err == nil {
		t.Error("a name was accepted twice")
	}
	source.Add(podtest.Pod("c", podtest.Mark("2")))
	x := inf.GetIndexer()
	for _, name := range []string{"before", "after"} {
		podtest.Eventually(t, func() bool { objects, _ := x.ByIndex(name, "mark"); return len(objects) == 2 }, func() string {
			return name
		})
		objects, err := x.ByIndex(name, "mark")
		if got := found(objects); err != nil || !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		objects, err = x.Index(name, podtest.Pod("like", podtest.Mark("3")))
		if got := found(objects); err != nil || !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		keys, err := x.IndexKeys(name, "mark")
		if err != nil || !slices.Equal(keys, []string{"ns/a", "ns/c"}) {
			t.Errorf("%s: %q, %v", name, keys, err)
		}
		if values := x.ListIndexFuncValues(name); !slices.Equal(values, []string{"mark"}) {
			t.Errorf("%s: %q", name, values)
		}
	}
	if _, err := x.ByIndex("none", "mark"); err == nil {
		t.Error("an index that does not exist was found")
	}
	stop()
	if err := inf.AddIndexers(cache.Indexers{"late": byLabel}); err == nil {
		t.Error("a stopped informer accepted an indexer")
	}
}

// If an index function fails for an object, the object is missing from this index only.
func TestIndexFunctionFails(t *testing.T) {
	inf := shared(newSource(t, podtest.Pod("a"), podtest.Pod("fails"), podtest.Pod("panics")), 0)
	err := inf.AddIndexers(cache.Indexers{"x": func(obj any) ([]string, error) {
		switch obj.(*corev1.Pod).Name {
		case "fails":
			return nil, errors.New("no value")
		case "panics":
			panic("no value")
		}
		return []string{"v"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	objects, err := inf.GetIndexer().ByIndex("x", "v")
	if got := found(objects); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q, %v", got, err)
	}
	if n := len(inf.GetStore().List()); n != 3 {
		t.Errorf("%d objects", n)
	}
}

func TestResyncPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newSource(t, podtest.Pod("a"), podtest.Pod("b"))
		inf := shared(source, time.Minute)
		periods := []time.Duration{0, 2 * time.Second, 3 * time.Second}
		events := make([]recorder, len(periods)+1)
		for i, period := range periods {
			if _, err := inf.AddEventHandlerWithResyncPeriod(&events[i], period); err != nil {
				t.Fatal(err)
			}
		}
		stop := podtest.Run(t, inf)
		synctest.Wait()
		// While the informer runs, resyncs can be due every 2 s: 1 s and 3 s are rounded up to
		// multiples.
		if _, err := inf.AddEventHandlerWithResyncPeriod(&events[3], time.Second); err != nil {
			t.Fatal(err)
		}
		for i := range events {
			events[i].want(t, "add! a@1", "add! b@2")
			events[i].reset()
		}
		resync := []string{"update a@1 to a@1", "update b@2 to b@2"}
		for second, resynced := range [][]int{1: {}, 2: {1, 3}, 3: {}, 4: {1, 2, 3}} {
			if second > 0 {
				time.Sleep(time.Second)
			}
			synctest.Wait()
			for i := range events {
				if slices.Contains(resynced, i) {
					events[i].want(t, resync...)
				} else if got := events[i].all(); len(got) > 0 {
					t.Errorf("after %d s handler %d received %q", second, i, got)
				}
				events[i].reset()
			}
		}
		stop()
	})
}

func TestNoResyncsWithoutAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := shared(newSource(t, podtest.Pod("a")), 0)
		var events recorder
		if _, err := inf.AddEventHandlerWithResyncPeriod(&events, time.Second); err != nil {
			t.Fatal(err)
		}
		stop := podtest.Run(t, inf)
		time.Sleep(time.Minute)
		synctest.Wait()
		events.want(t, "add! a@1")
		stop()
	})
}

func TestWatchErrorHandlers(t *testing.T) {
	source := newSource(t)
	source.ListError = errors.New("access denied")
	for name, set := range map[string]func(inf cache.SharedInformer, events chan<- string) error{
		"plain": func(inf cache.SharedInformer, events chan<- string) error {
			return inf.SetWatchErrorHandler(func(r *cache.Reflector, err error) {
				events <- r.TypeDescription() + " " + err.Error()
			})
		},
		"with context": func(inf cache.SharedInformer, events chan<- string) error {
			return inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
				cache.DefaultWatchErrorHandler(ctx, r, err) // reads the reflector
				events <- r.TypeDescription() + " " + err.Error()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inf := shared(source, 0)
			events := make(chan string, 100)
			if err := set(inf, events); err != nil {
				t.Fatal(err)
			}
			stop := podtest.Run(t, inf)
			if got := <-events; !strings.Contains(got, "access denied") || !strings.HasPrefix(got, "*v1.Pod ") {
				t.Errorf("events %q", got)
			}
			if err := set(inf, events); err == nil {
				t.Error("a running informer accepted another handler")
			}
			stop()
		})
	}
}

func TestConfigurationDuringStart(t *testing.T) {
	inf := shared(newSource(t, podtest.Pod("a")), 0)
	var wg sync.WaitGroup
	end := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				_ = inf.SetTransform(func(o any) (any, error) { return o, nil })
				_ = inf.SetWatchErrorHandler(func(*cache.Reflector, error) {})
			}
		}
	})
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	close(end)
	wg.Wait()
	if err := inf.SetTransform(nil); err == nil {
		t.Error("a running informer accepted a transform")
	}
}

// A transform is called once for each state, however often the server sends it. All readers and
// handlers receive its result.
func TestTransform(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"))
	inf := sharedOn(s)
	var mu sync.Mutex
	calls := map[string]int{}
	err := inf.SetTransform(func(o any) (any, error) {
		p := o.(*corev1.Pod)
		mu.Lock()
		calls[describe(p)]++
		mu.Unlock()
		p.Annotations = map[string]string{"seen": p.Annotations["seen"] + "x"}
		return p, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var events recorder
	handle(t, inf, &events)
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	s.Put(podtest.Pod("a", podtest.Mark("2")))
	events.want(t, "add! a@101", "add! b@102", "update a@101 to a@103[2]")
	s.ForgetHistory()
	s.Put(podtest.Pod("b", podtest.Mark("3"))) // within the gap
	s.ForgetHistory()
	s.CutWatches()
	events.want(t, "add! a@101", "add! b@102", "update a@101 to a@103[2]", "update b@102 to b@104[3]")
	mu.Lock()
	defer mu.Unlock()
	for state, n := range calls {
		if n != 1 {
			t.Errorf("%s was transformed %d times", state, n)
		}
	}
	for _, o := range inf.GetStore().List() {
		if seen := o.(*corev1.Pod).Annotations["seen"]; seen != "x" {
			t.Errorf("%s is shown as transformed %d times", o.(*corev1.Pod).Name, len(seen))
		}
	}
}

// A transform may return another type.
func TestTransformToAnotherType(t *testing.T) {
	source := newSource(t, podtest.Pod("a"))
	inf := shared(source, 0)
	if err := inf.SetTransform(func(o any) (any, error) {
		return "the name is " + o.(*corev1.Pod).Name, nil
	}); err != nil {
		t.Fatal(err)
	}
	events := make(chan any, 10)
	handle(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { events <- o }, DeleteFunc: func(o any) {
		events <- o
	}})
	podtest.Run(t, inf)
	if got := <-events; got != "the name is a" {
		t.Errorf("added %v", got)
	}
	if o, ok, err := inf.GetStore().GetByKey("ns/a"); o != "the name is a" || !ok || err != nil {
		t.Errorf("%v, %v, %v", o, ok, err)
	}
	source.Delete(podtest.Pod("a"))
	if got := <-events; got != "the name is a" {
		t.Errorf("deleted %v", got)
	}
	if got := inf.LastSyncResourceVersion(); got != "2" {
		t.Errorf("at %s", got)
	}
}

// If a transform fails for an object, the object is skipped and counted. Other objects are
// delivered, and no earlier state of the object stays.
func TestTransformErrors(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b", podtest.Mark("bad")), podtest.Pod("c"))
	inf := sharedOn(s)
	if err := inf.SetTransform(func(o any) (any, error) {
		if o.(*corev1.Pod).Labels["mark"] == "bad" {
			return nil, errors.New("bad")
		}
		return o, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := inf.AddIndexers(cache.Indexers{"ns": cache.MetaNamespaceIndexFunc}); err != nil {
		t.Fatal(err)
	}
	var events recorder
	handle(t, inf, &events)
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	events.want(t, "add! a@101", "add! c@103")
	status := inf.Status()
	if _, ok := status.Rejected[keepwatch.Key{Namespace: "ns", Name: "b"}]; !ok || status.Objects != 2 ||
		len(status.Rejected) != 1 {
		t.Errorf("status: %d objects, %v rejected", status.Objects, status.Rejected)
	}
	events.reset()
	s.Put(podtest.Pod("a", podtest.Mark("bad"))) // is rejected
	s.Put(podtest.Pod("b", podtest.Mark("ok")))  // is accepted
	s.Put(podtest.Pod("c", podtest.Mark("bad")))
	s.Remove("c") // was rejected before
	s.Put(podtest.Pod("a", podtest.Mark("bad")))
	s.Put(podtest.Pod("a", podtest.Mark("ok")))
	events.want(t, "delete? a@101", "add b@105[ok]", "delete? c@103", "add a@109[ok]")
	if keys, _ := inf.GetIndexer().IndexKeys("ns", "ns"); !slices.Equal(keys, []string{"ns/a", "ns/b"}) {
		t.Errorf("the index has %q", keys)
	}
	if n := len(inf.Status().Rejected); n != 0 {
		t.Errorf("%d objects are still rejected", n)
	}
}

// A transform that panics or returns nil skips the object, in a list and in a watch.
func TestTransformPanics(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b", podtest.Mark("bad")),
		podtest.Pod("c", podtest.Mark("nothing")))
	inf := sharedOn(s)
	if err := inf.SetTransform(func(o any) (any, error) {
		switch o.(*corev1.Pod).Labels["mark"] {
		case "bad":
			panic("no value")
		case "nothing":
			return nil, nil
		}
		return o, nil
	}); err != nil {
		t.Fatal(err)
	}
	var events recorder
	handle(t, inf, &events)
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	rejected := inf.Status().Rejected
	for name, want := range map[string]string{"b": "panic: no value", "c": "returned nil"} {
		if err := rejected[keepwatch.Key{Namespace: "ns", Name: name}]; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Put(podtest.Pod("a", podtest.Mark("bad")))
	s.Remove("a") // its final state is rejected
	s.Put(podtest.Pod("b", podtest.Mark("ok")))
	events.want(t, "add! a@101", "delete? a@101", "add b@106[ok]")
	if n := len(inf.Status().Rejected); n != 1 {
		t.Errorf("%d objects are still rejected", n)
	}
}

// Objects and Rejected in a status belong to one state: here all objects are rejected.
func TestStatusIsConsistent(t *testing.T) {
	source := newSource(t, podtest.Pod("listed"))
	inf := shared(source, 0)
	if err := inf.SetTransform(func(any) (any, error) { return nil, errors.New("bad") }); err != nil {
		t.Fatal(err)
	}
	stop := podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 500 {
			source.Add(podtest.Pod("a"))
			source.Delete(podtest.Pod("a"))
		}
	}()
	for going := true; going; {
		select {
		case <-written:
			going = false
		default:
		}
		if status := inf.Status(); status.Objects != 0 {
			t.Fatalf("%d objects, %v rejected", status.Objects, status.Rejected)
		}
	}
	stop()
}

// An old state of a deleted object is dropped, and not counted as rejected.
func TestOldStateOfDeletedObject(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	inf := sharedOn(s)
	if err := inf.SetTransform(func(o any) (any, error) {
		if o.(*corev1.Pod).Labels["mark"] == "bad" {
			return nil, errors.New("bad")
		}
		return o, nil
	}); err != nil {
		t.Fatal(err)
	}
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	bad := podtest.Pod("b", podtest.UID("b"), podtest.Mark("bad"))
	s.Put(bad)
	s.Remove("b")
	old := bad.DeepCopy()
	old.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	podtest.At(102)(old)
	text, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	s.Inject(`{"type":"MODIFIED","object":` + string(text) + "}\n")
	s.Put(podtest.Pod("c"))
	podtest.Eventually(t, func() bool { return inf.LastSyncResourceVersion() == "104" }, inf.LastSyncResourceVersion)
	if status := inf.Status(); status.Objects != 2 || len(status.Rejected) != 0 || status.Dropped != 1 {
		t.Errorf("%d objects, %v rejected, %d dropped", status.Objects, status.Rejected, status.Dropped)
	}
}

func TestObjectsOfAnotherTypeAreRejected(t *testing.T) {
	source := newSource(t, podtest.Pod("a"))
	inf := clientgo.NewSharedIndexInformer(source, &corev1.Node{}, 0, nil).(*clientgo.Shared)
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	if status := inf.Status(); status.Objects != 0 || len(status.Rejected) != 1 {
		t.Errorf("%d objects, %v rejected", status.Objects, status.Rejected)
	}
}

func TestHandlersCanBeRemoved(t *testing.T) {
	source := newSource(t, podtest.Pod("a"))
	inf, other := shared(source, 0), shared(source, 0)
	var twice, once recorder
	first, second := handle(t, inf, &twice), handle(t, inf, &twice)
	third := handle(t, inf, &once)
	if n := inf.Status().Handlers; n != 3 {
		t.Errorf("%d handlers", n)
	}
	if err := other.RemoveEventHandler(first); err != nil {
		t.Errorf("a foreign handle: %v", err)
	}
	if err := inf.RemoveEventHandler(nil); err == nil {
		t.Error("nil is accepted as a handle")
	}
	for range 2 { // a second removal is not an error
		if err := inf.RemoveEventHandler(first); err != nil {
			t.Error(err)
		}
	}
	if n := inf.Status().Handlers; n != 2 {
		t.Errorf("%d handlers", n)
	}
	stop := podtest.Run(t, inf)
	podtest.WaitForSync(t, inf, second, third)
	twice.want(t, "add! a@1")
	if err := inf.RemoveEventHandler(second); err != nil {
		t.Error(err)
	}
	source.Add(podtest.Pod("b"))
	once.want(t, "add! a@1", "add b@2")
	twice.want(t, "add! a@1")
	stop()
	if err := inf.RemoveEventHandler(third); err != nil {
		t.Errorf("of a stopped informer: %v", err)
	}
}

func TestLateHandlers(t *testing.T) {
	source := newSource(t, podtest.Pod("a"))
	inf := shared(source, 0)
	stop := podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	source.Add(podtest.Pod("b"))
	podtest.Eventually(t, func() bool { return len(inf.GetStore().List()) == 2 }, func() string { return "b is missing" })
	var events recorder
	registration := handle(t, inf, &events)
	podtest.WaitForSync(t, registration)
	events.want(t, "add! a@1", "add! b@2")
	source.Add(podtest.Pod("c"))
	events.want(t, "add! a@1", "add! b@2", "add c@3")
	stop()
	if _, err := inf.AddEventHandler(&events); err == nil ||
		!strings.HasSuffix(err.Error(), "was not added to shared informer because it has stopped already") {
		t.Errorf("added to a stopped informer: %v", err)
	}
}

// A handler has synced once it has received the list itself.
func TestHandlersSyncSeparately(t *testing.T) {
	inf := shared(newSource(t, podtest.Pod("a"), podtest.Pod("b")), 0)
	step := make(chan struct{})
	slow := handle(t, inf, &recorder{react: func(string) { <-step }})
	fast := handle(t, inf, &recorder{})
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf, fast)
	step <- struct{}{}
	if slow.HasSynced() {
		t.Error("it has seen one of two objects")
	}
	step <- struct{}{}
	podtest.WaitForSync(t, slow)
}

func TestLifecycle(t *testing.T) {
	inf := shared(newSource(t, podtest.Pod("a")), 0)
	if inf.IsStopped() || inf.HasSynced() || inf.LastSyncResourceVersion() != "" || inf.State() != health.Stopped {
		t.Error("it is not fresh")
	}
	stop := podtest.Run(t, inf)
	podtest.WaitForSync(t, inf, inf.GetController())
	if inf.IsStopped() || inf.LastSyncResourceVersion() != "1" || inf.GetController().LastSyncResourceVersion() != "1" {
		t.Errorf("it is at %q", inf.LastSyncResourceVersion())
	}
	inf.Run(nil) // a second time: returns at once
	stop()
	if !inf.IsStopped() || !inf.HasSynced() || inf.State() != health.Stopped {
		t.Error("it has not stopped")
	}
	inf.Run(nil)
}

func TestStopBeforeSync(t *testing.T) {
	t.Parallel()
	for _, lists := range []bool{false, true} {
		hang := make(chan struct{})
		inf := shared(&cache.ListWatch{ListWithContextFunc: hanging(hang, lists), WatchFuncWithContext: noWatch}, 0)
		registration := handle(t, inf, &recorder{})
		stop := podtest.Run(t, inf)
		stop()
		<-registration.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan()
		if inf.HasSynced() || registration.HasSynced() {
			t.Error("it has synced")
		}
		close(hang)
	}
}

func TestPanicsAreIsolated(t *testing.T) {
	source := newSource(t, podtest.Pod("a"), podtest.Pod("b"))
	inf := shared(source, 0)
	var well recorder
	bad := &recorder{react: func(line string) { panic(line) }}
	registration := handle(t, inf, bad)
	handle(t, inf, &well)
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf, registration)
	source.Add(podtest.Pod("c"))
	for _, r := range []*recorder{&well, bad} {
		r.want(t, "add! a@1", "add! b@2", "add c@3")
	}
	if n := inf.Status().Panics; n != 3 {
		t.Errorf("%d panics", n)
	}
}

// With CrashOnPanic a panic ends the process, here one that runs this test again.
func TestCrashOnPanic(t *testing.T) {
	if os.Getenv("KEEPWATCH_TEST_CRASH") == "" {
		again := exec.Command(os.Args[0], "-test.run=^TestCrashOnPanic$", "-test.timeout=1m")
		again.Env = append(os.Environ(), "KEEPWATCH_TEST_CRASH=1")
		out, err := again.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "panic: add! a@1") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	inf := clientgo.NewGroup(clientgo.CrashOnPanic()).NewSharedIndexInformer(newSource(t, podtest.Pod("a")), &corev1.Pod{},
		0, nil)
	handle(t, inf, &recorder{react: func(line string) { panic(line) }})
	inf.RunWithContext(t.Context())
}

// Handlers are added and removed concurrently while objects change and the informer stops.
func TestConcurrentHandlers(t *testing.T) {
	source := newSource(t)
	inf := shared(source, time.Second)
	stop := podtest.Run(t, inf)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var mine []cache.ResourceEventHandlerRegistration
			for {
				if len(mine) == 0 || rand.IntN(2) == 0 {
					registration, err := inf.AddEventHandlerWithResyncPeriod(&recorder{}, time.Second)
					if err != nil {
						return // it has stopped
					}
					mine = append(mine, registration)
					continue
				}
				last := len(mine) - 1
				if err := inf.RemoveEventHandler(mine[last]); err != nil {
					t.Error(err)
				}
				mine = mine[:last]
			}
		})
	}
	for i := range 100 {
		source.Add(podtest.Pod(fmt.Sprint(i % 50)))
		source.Modify(podtest.Pod(fmt.Sprint(i % 50)))
		source.Delete(podtest.Pod(fmt.Sprint(i % 50)))
	}
	stop()
	wg.Wait()
}

// The events of a handler, applied one after the other, give the server's state.
func TestEventsFoldToTheCache(t *testing.T) {
	s := podtest.NewServer(t)
	inf := sharedOn(s)
	var mu sync.Mutex
	fold := map[string]*corev1.Pod{}
	apply := func(old, new any) {
		mu.Lock()
		defer mu.Unlock()
		if unknown, ok := old.(cache.DeletedFinalStateUnknown); ok {
			old = unknown.Obj
		}
		if old == nil {
			p := new.(*corev1.Pod)
			if fold[p.Name] != nil {
				t.Errorf("%s was added twice", p.Name)
			}
			fold[p.Name] = p
			return
		}
		before := old.(*corev1.Pod)
		switch {
		case fold[before.Name] == nil:
			t.Errorf("%s was not added before", before.Name)
		case new == nil:
			delete(fold, before.Name)
		case fold[before.Name] != before:
			t.Errorf("%s was delivered in another state before", before.Name)
		default:
			fold[before.Name] = new.(*corev1.Pod)
		}
	}
	handle(t, inf, cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { apply(nil, o) }, UpdateFunc: apply, DeleteFunc: func(o any) { apply(o, nil) },
	})
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	for i := range 3000 {
		name := fmt.Sprint(rand.IntN(40))
		s.Mu.Lock()
		_, exists := s.Pods[name]
		s.Mu.Unlock()
		switch {
		case exists && rand.IntN(3) == 0:
			s.Remove(name)
		default:
			s.Put(podtest.Pod(name, podtest.Mark(fmt.Sprint(i))))
		}
		switch rand.IntN(300) {
		case 0:
			s.CutWatches()
		case 1:
			s.ForgetHistory()
			s.CutWatches()
		}
	}
	s.Mu.Lock()
	want := map[string]string{}
	for name, p := range s.Pods {
		want[name] = describe(p)
	}
	s.Mu.Unlock()
	same := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for name, p := range fold {
			if want[name] != describe(p) {
				return false
			}
		}
		return len(fold) == len(want)
	}
	podtest.Eventually(t, same, func() string {
		return fmt.Sprintf("%d objects from events, %d on the server", len(fold),
			len(want))
	})
}
