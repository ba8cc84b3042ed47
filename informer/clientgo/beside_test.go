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
	"github.com/keepwatch/keepwatch/informer/internal/podtest"
)

// Each of these runs one scenario on client-go's informer and on ours. Theirs is
// logged (go test -v), ours must be as it says.

// outcome is what a scenario cost and showed.
type outcome struct {
	lists, streams int // after the first
	told           []string
}

func (o outcome) String() string {
	return fmt.Sprintf("%d lists, %d streaming lists; told %q", o.lists, o.streams, o.told)
}

// beside runs a scenario for both kinds of informers, each with a server of its
// own, and returns what ours came to.
func beside(t *testing.T, scenario func(t *testing.T, s *podtest.Server, told *recorder)) (ours outcome) {
	t.Helper()
	play := func(t *testing.T, build func(cache.ListerWatcher) cache.SharedIndexInformer) outcome {
		s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"))
		inf := build(podsOn(s))
		var told recorder
		registration := handle(t, inf, &told)
		stop := podtest.Run(t, inf)
		defer stop()
		podtest.WaitForSync(t, inf, registration)
		podtest.Eventually(t, func() bool { lists, streams, _ := s.Counts(); return lists+streams > 0 }, func() string { return "no list" })
		told.forget()
		lists, streams, _ := s.Counts()
		scenario(t, s, &told)
		listsNow, streamsNow, _ := s.Counts()
		return outcome{listsNow - lists, streamsNow - streams, told.told()}
	}
	t.Run("client-go", func(t *testing.T) {
		t.Logf("client-go: %v", play(t, func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		}))
	})
	t.Run("keepwatch", func(t *testing.T) {
		ours = play(t, func(lw cache.ListerWatcher) cache.SharedIndexInformer {
			return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		})
		t.Logf("keepwatch: %v", ours)
	})
	return ours
}

func want(t *testing.T, o outcome, lists int, told ...string) {
	t.Helper()
	if o.lists+o.streams != lists || !slices.Equal(o.told, told) {
		t.Errorf("ours came to %v; want %d lists, and %q", o, lists, told)
	}
}

// What a new watch mends is not listed for.
func TestBesideFailingWatches(t *testing.T) {
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
			o := beside(t, func(t *testing.T, s *podtest.Server, told *recorder) {
				s.FailWatches(2, fail)
				s.CutWatches()
				s.Put(podtest.Pod("c"))
				told.hears(t, "add c@103")
			})
			want(t, o, 0, "add c@103")
		})
	}
}

func TestBesideUnreadableFrames(t *testing.T) {
	t.Parallel()
	o := beside(t, func(t *testing.T, s *podtest.Server, told *recorder) {
		s.Inject(`{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":17}}}` + "\n")
		s.Put(podtest.Pod("c"))
		told.hears(t, "add c@103")
	})
	want(t, o, 0, "add c@103")
}

// A list tells of what it changed, and a deletion has the last known object.
func TestBesideRelists(t *testing.T) {
	t.Parallel()
	o := beside(t, func(t *testing.T, s *podtest.Server, told *recorder) {
		s.FailWatches(1, func(w http.ResponseWriter, r *http.Request) {
			// While nobody watches, one pod goes, one comes, and history is compacted.
			s.Remove("b")
			s.Put(podtest.Pod("c"))
			s.ForgetHistory()
			podtest.Status(410, metav1.StatusReasonExpired, "too old")(w, r)
		})
		s.CutWatches()
		told.hears(t, "delete? b@102", "add c@104")
	})
	want(t, o, 1, "delete? b@102", "add c@104")
}

// An object that was deleted and created again in a gap is another one.
func TestBesideAnotherLife(t *testing.T) {
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
		var told recorder
		handle(t, inf, &told)
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		told.wants(t, "add! a@101")
		told.forget()
		s.FailWatches(1, func(w http.ResponseWriter, r *http.Request) {
			s.Remove("a")
			s.Put(podtest.Pod("a"))
			s.ForgetHistory()
			podtest.Status(410, metav1.StatusReasonExpired, "too old")(w, r)
		})
		s.CutWatches()
		podtest.Eventually(t, func() bool {
			return len(told.told()) > 0 && strings.HasSuffix(told.told()[len(told.told())-1], "a@103")
		}, func() string { return fmt.Sprint(told.told()) })
		stop()
		t.Logf("%s: %q", name, told.told())
		if got := told.told(); name == "keepwatch" && !slices.Equal(got, []string{"delete? a@101", "add a@103"}) {
			t.Errorf("ours told %q", got)
		}
	}
}

// A million updates to ten thousand objects, while a handler is busy with one: what
// is kept for it does not grow, and it learns of every object's last state and of
// every deletion. client-go keeps a notification for each update.
func TestBesideSlowHandlers(t *testing.T) {
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
			storm := newStorm(objects)
			inf := build(storm)
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
			storm.updates(n)
			podtest.Eventually(t, func() bool { return inf.LastSyncResourceVersion() == storm.revision() }, func() string { return "it does not catch up" })
			grown := int64(heap()) - int64(before)
			storm.deletions(deletions)
			podtest.Eventually(t, func() bool { return inf.LastSyncResourceVersion() == storm.revision() }, func() string { return "it does not catch up" })
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
			podtest.Eventually(t, func() bool { return inf.(*clientgo.Shared).Status().Behind == 0 }, func() string { return "the handler is behind" })
			stop()
			if calls > 3*objects {
				t.Errorf("the handler was called %d times", calls)
			}
			if want := storm.state(); len(last) != len(want) || !equal(last, want) {
				t.Errorf("the handler knows %d objects, %d are there", len(last), len(want))
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
