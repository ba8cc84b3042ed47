package clientgo_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// Each test in the compare files runs one scenario on client-go's informer and on Keepwatch's. It
// logs client-go's outcome (go test -v), and checks Keepwatch's.

// outcome has the requests and the events of a scenario.
type outcome struct {
	lists, streams int // after the first
	events         []string
}

func (o outcome) String() string {
	return fmt.Sprintf("%d lists, %d streaming lists; events %q", o.lists, o.streams, o.events)
}

// compare runs a scenario for both informers, each with a server of its own, and returns
// Keepwatch's outcome.
func compare(t *testing.T, scenario func(t *testing.T, s *podtest.Server, events *recorder)) (keepwatch outcome) {
	t.Helper()
	play := func(t *testing.T, build func(cache.ListerWatcher) cache.SharedIndexInformer) outcome {
		s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"))
		inf := build(podsOn(s))
		var events recorder
		registration := handle(t, inf, &events)
		stop := podtest.Run(t, inf)
		defer stop()
		podtest.WaitForSync(t, inf, registration)
		podtest.Eventually(t, func() bool { lists, streams, _ := s.Counts(); return lists+streams > 0 }, func() string {
			return "no list"
		})
		events.reset()
		lists, streams, _ := s.Counts()
		scenario(t, s, &events)
		listsNow, streamsNow, _ := s.Counts()
		return outcome{listsNow - lists, streamsNow - streams, events.all()}
	}
	t.Run("client-go", func(t *testing.T) {
		t.Logf("client-go: %v", play(t, func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		}))
	})
	t.Run("keepwatch", func(t *testing.T) {
		keepwatch = play(t, func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		})
		t.Logf("keepwatch: %v", keepwatch)
	})
	return keepwatch
}

func want(t *testing.T, o outcome, lists int, events ...string) {
	t.Helper()
	if o.lists+o.streams != lists || !slices.Equal(o.events, events) {
		t.Errorf("keepwatch: %v; want %d lists, and %q", o, lists, events)
	}
}

// After these failures a new watch resumes, without a list.
func TestCompareFailingWatches(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{
		"500":              podtest.Status(500, metav1.StatusReasonInternalError, "oops"),
		"503":              podtest.Status(503, metav1.StatusReasonServiceUnavailable, "not now"),
		"504":              podtest.Status(504, metav1.StatusReasonTimeout, "too late"),
		"dial EOF":         podtest.HangUp,
		"very short watch": func(http.ResponseWriter, *http.Request) {},
		"500 in the stream": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",` +
				`"reason":"InternalError","code":500,"message":"oops"}}` + "\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := compare(t, func(t *testing.T, s *podtest.Server, events *recorder) {
				s.FailWatches(2, fail)
				s.CutWatches()
				s.Put(podtest.Pod("c"))
				events.wantSome(t, "add c@103")
			})
			want(t, o, 0, "add c@103")
		})
	}
}

func TestCompareUndecodableEvents(t *testing.T) {
	t.Parallel()
	o := compare(t, func(t *testing.T, s *podtest.Server, events *recorder) {
		s.Inject(`{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":17}}}` + "\n")
		s.Put(podtest.Pod("c"))
		events.wantSome(t, "add c@103")
	})
	want(t, o, 0, "add c@103")
}

// A list delivers what changed, and a deletion has the last known object.
func TestCompareRelists(t *testing.T) {
	t.Parallel()
	o := compare(t, func(t *testing.T, s *podtest.Server, events *recorder) {
		s.FailWatches(1, func(w http.ResponseWriter, r *http.Request) {
			// Without a watch, one pod is deleted, one is created, and history is compacted.
			s.Remove("b")
			s.Put(podtest.Pod("c"))
			s.ForgetHistory()
			podtest.Status(410, metav1.StatusReasonExpired, "too old")(w, r)
		})
		s.CutWatches()
		events.wantSome(t, "delete? b@102", "add c@104")
	})
	want(t, o, 1, "delete? b@102", "add c@104")
}

// A list shows what a pod is by a new definition, at its old revision. client-go calls OnUpdate for every
// object of a list; keepwatch for the one that differs.
func TestCompareRedefinedObjects(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(*podtest.Server) cache.SharedIndexInformer{
		"client-go": func(s *podtest.Server) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, cache.Indexers{})
		},
		"keepwatch": func(s *podtest.Server) cache.SharedIndexInformer {
			return clientgo.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, cache.Indexers{})
		},
		"direct": func(s *podtest.Server) cache.SharedIndexInformer {
			cfg, direct := clientgo.Direct(s.Config())
			return clientgo.NewGroup(direct).NewSharedIndexInformer(podsThrough(cfg), &corev1.Pod{}, 0, cache.Indexers{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"))
			inf := build(s)
			if err := inf.SetTransform(func(o any) (any, error) {
				o.(*corev1.Pod).Status.Message = "transformed"
				return o, nil
			}); err != nil {
				t.Fatal(err)
			}
			var events recorder
			handle(t, inf, &events)
			podtest.Run(t, inf)
			podtest.WaitForSync(t, inf)
			events.wantSome(t, "add! a@101", "add! b@102")
			events.reset()
			s.FailWatches(1, func(w http.ResponseWriter, r *http.Request) {
				s.Redefine(func(p *corev1.Pod) {
					if p.Name == "b" {
						p.Spec.SchedulerName = "default-scheduler"
					}
				})
				s.ForgetHistory()
				podtest.Status(410, metav1.StatusReasonExpired, "too old")(w, r)
			})
			s.CutWatches()
			podtest.Eventually(t, func() bool { return slices.Contains(events.all(), "update b@102 to b@102") }, func() string {
				return fmt.Sprint(events.all())
			})
			o, _, err := inf.GetStore().GetByKey("ns/b")
			if p, ok := o.(*corev1.Pod); err != nil || !ok || p.Spec.SchedulerName != "default-scheduler" ||
				p.Status.Message != "transformed" {
				t.Errorf("the store has %v, %v", o, err)
			}
			if got := events.all(); name != "client-go" && len(got) > 1 {
				t.Errorf("delivered %q", got)
			}
		})
	}
}

// An object that was deleted and created again in a gap is delivered as deleted and added.
func TestCompareRecreatedObjects(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(cache.ListerWatcher) cache.SharedIndexInformer{
		"client-go": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		},
		"keepwatch": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		},
	} {
		s := podtest.NewServer(t, podtest.Pod("a"))
		inf := build(podsOn(s))
		var events recorder
		handle(t, inf, &events)
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		events.want(t, "add! a@101")
		events.reset()
		s.FailWatches(1, func(w http.ResponseWriter, r *http.Request) {
			s.Remove("a")
			s.Put(podtest.Pod("a"))
			s.ForgetHistory()
			podtest.Status(410, metav1.StatusReasonExpired, "too old")(w, r)
		})
		s.CutWatches()
		podtest.Eventually(t, func() bool {
			return len(events.all()) > 0 && strings.HasSuffix(events.all()[len(events.all())-1], "a@103")
		}, func() string { return fmt.Sprint(events.all()) })
		stop()
		t.Logf("%s: %q", name, events.all())
		if got := events.all(); name == "keepwatch" && !slices.Equal(got, []string{"delete? a@101", "add a@103"}) {
			t.Errorf("keepwatch delivered %q", got)
		}
	}
}

// A million updates to ten thousand objects are delivered while a handler is blocked by one: the
// memory for the handler does not grow, and it receives every object's last state and every
// deletion. client-go queues a notification for each update.
func TestCompareSlowHandlers(t *testing.T) {
	const objects, updates, deletions = 10_000, 1_000_000, 100
	if testing.Short() {
		t.Skip("a million updates")
	}
	for name, build := range map[string]func(cache.ListerWatcher) cache.SharedIndexInformer{
		"client-go": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		},
		"keepwatch": func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := updates
			if raceEnabled {
				n /= 50
			}
			source := newUpdates(objects)
			inf := build(source)
			var released atomic.Bool
			release := make(chan struct{})
			last, calls := map[string]string{}, 0
			slow := cache.ResourceEventHandlerFuncs{
				AddFunc: func(o any) { last[o.(*corev1.Pod).Name] = o.(*corev1.Pod).ResourceVersion },
				UpdateFunc: func(_, o any) {
					if !released.Load() {
						<-release
					}
					calls++
					last[o.(*corev1.Pod).Name] = o.(*corev1.Pod).ResourceVersion
				},
				DeleteFunc: func(o any) {
					if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
						o = unknown.Obj
					}
					delete(last, o.(*corev1.Pod).Name)
				},
			}
			registration := handle(t, inf, slow)
			stop := podtest.Run(t, inf)
			podtest.WaitForSync(t, inf, registration)
			before := heap()
			source.updates(n)
			podtest.Eventually(t, func() bool { return inf.LastSyncResourceVersion() == source.revision() }, func() string {
				return "the cache is behind"
			})
			grown := int64(heap()) - int64(before)
			source.deletions(deletions)
			podtest.Eventually(t, func() bool { return inf.LastSyncResourceVersion() == source.revision() }, func() string {
				return "the cache is behind"
			})
			released.Store(true)
			close(release)
			t.Logf("%s: %d updates while the handler is busy: the heap grows by %d MiB", name, n, grown>>20)
			if name == "client-go" {
				stop()
				return
			}
			if grown > 64<<20 {
				t.Errorf("the heap has grown by %d MiB", grown>>20)
			}
			podtest.Eventually(t, func() bool { return inf.(*clientgo.Shared).Status().Behind == 0 }, func() string {
				return "the handler is behind"
			})
			stop()
			if calls > 3*objects {
				t.Errorf("the handler was called %d times", calls)
			}
			if want := source.state(); len(last) != len(want) || !equal(last, want) {
				t.Errorf("the handler has %d objects, the server %d", len(last), len(want))
			}
		})
	}
}

func equal(a, b map[string]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
