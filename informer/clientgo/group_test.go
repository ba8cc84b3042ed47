package clientgo_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// The health check passes while the informers follow. A stopped informer is no longer a member.
func TestGroup(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	group := clientgo.NewGroup()
	one := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	two := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	stop := podtest.Run(t, one)
	podtest.Run(t, two)
	podtest.WaitForSync(t, one, two)
	status := group.Status()
	if _, ok := status["*v1.Pod"]; !ok || len(status) != 2 || status["*v1.Pod#2"].Objects != 1 {
		t.Errorf("%v", status)
	}
	answer := httptest.NewRecorder()
	group.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if answer.Code != http.StatusOK || answer.Body.String() != "ok\n" {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	stop()
	if n := len(group.Status()); n != 1 {
		t.Errorf("the group has %d members", n)
	}
}

// Check fails for a shared informer that has stopped by itself, until another one has its name.
func TestCheckFailsForStoppedInformers(t *testing.T) {
	s := podtest.NewServer(t)
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		podtest.Status(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")(w, r)
		return true
	})
	group := clientgo.NewGroup(clientgo.StartupDeadline(0))
	group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil).RunWithContext(t.Context())
	for range 2 {
		if err := group.Check(nil); err == nil || !strings.HasPrefix(err.Error(), "informer *v1.Pod: STOPPED: ") ||
			!strings.Contains(err.Error(), "you may not") {
			t.Errorf("after it has failed: %v", err)
		}
	}
	if n := len(group.Status()); n != 0 {
		t.Errorf("the group has %d members", n)
	}
	s.Intercept(nil)
	inf := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	stop := podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	if err := group.Check(nil); err != nil {
		t.Errorf("while another one runs: %v", err)
	}
	stop()
	if err := group.Check(nil); err != nil {
		t.Errorf("after a requested stop: %v", err)
	}
}

// The error of an informer that has stopped by itself has the server's Status, with Direct as without it: in the
// group, and for the error handlers of the process.
func TestStoppedInformersHaveTheStatus(t *testing.T) {
	s := podtest.NewServer(t)
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		podtest.Status(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")(w, r)
		return true
	})
	for _, direct := range []bool{false, true} {
		cfg, options := s.Config(), []clientgo.Option{clientgo.StartupDeadline(0)}
		if direct {
			forClients, option := clientgo.Direct(cfg)
			cfg, options = forClients, append(options, option)
		}
		group := clientgo.NewGroup(options...)
		group.NewSharedIndexInformer(podsThrough(cfg), &corev1.Pod{}, 0, nil).RunWithContext(t.Context())
		if err := group.Check(nil); !apierrors.IsForbidden(err) {
			t.Errorf("direct %v: %v", direct, err)
		}
	}
}

// StartupDeadline means the same as in package informer: zero and a positive deadline stop the
// informer, a negative one waits without limit.
func TestStartupDeadline(t *testing.T) {
	s := podtest.NewServer(t)
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		podtest.Status(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")(w, r)
		return true
	})
	for _, deadline := range []time.Duration{0, 50 * time.Millisecond} {
		group := clientgo.NewGroup(clientgo.StartupDeadline(deadline))
		begin := time.Now()
		group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil).RunWithContext(t.Context())
		if took := time.Since(begin); took < deadline || group.Check(nil) == nil {
			t.Errorf("%v: the informer stops after %v; Check: %v", deadline, took, group.Check(nil))
		}
	}
	inf := clientgo.NewGroup(clientgo.StartupDeadline(-1)).NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0,
		nil).(*clientgo.Shared)
	podtest.Run(t, inf)
	podtest.Eventually(t, func() bool { return inf.State() == health.Forbidden }, func() string {
		return string(inf.State())
	})
	s.Intercept(nil)
	podtest.WaitForSync(t, inf)
}

// Check has one failure for each name. Another informer of a name removes that failure only.
func TestCheckFailsForEachStoppedInformer(t *testing.T) {
	s := podtest.NewServer(t)
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		podtest.Status(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")(w, r)
		return true
	})
	group := clientgo.NewGroup(clientgo.StartupDeadline(0))
	for _, example := range []runtime.Object{&corev1.Pod{}, &corev1.Node{}, &corev1.Pod{}} {
		group.NewSharedIndexInformer(podsOn(s), example, 0, nil).RunWithContext(t.Context())
	}
	if err := group.Check(nil); err == nil || strings.Count(err.Error(), "you may not") != 2 {
		t.Errorf("after two have failed, and one in the place of the first: %v", err)
	}
	s.Intercept(nil)
	inf := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	if err := group.Check(nil); err == nil || strings.Contains(err.Error(), "*v1.Pod") ||
		!strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("when one of them was replaced: %v", err)
	}
}

// The series of an informer exist while it runs.
func TestMetrics(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"), podtest.Pod("b"))
	group := clientgo.NewGroup()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(group)
	inf := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	registration := handle(t, inf, &recorder{react: func(line string) { panic(line) }})
	stop := podtest.Run(t, inf)
	podtest.WaitForSync(t, inf, registration)
	s.FailWatches(1, podtest.Status(503, metav1.StatusReasonServiceUnavailable, "not now"))
	s.CutWatches()
	podtest.Eventually(t, func() bool { return group.Status()["*v1.Pod"].Reconnects[keepwatch.ServerError] == 1 },
		func() string { return "no reconnect" })
	s.Put(podtest.Pod("c"))
	podtest.Eventually(t, func() bool { return inf.LastSyncResourceVersion() == "103" }, inf.LastSyncResourceVersion)
	podtest.Eventually(t, func() bool { return group.Status()["*v1.Pod"].Panics == 3 }, func() string {
		return "the handler is behind"
	})
	want := `
# HELP informer_store_resource_version [ALPHA] The 15 least significant digits of the resource version of the store.
# TYPE informer_store_resource_version gauge
informer_store_resource_version{group="",name="*v1.Pod",resource="",version=""} 103
# HELP keepwatch_watch_handler_panics_total Panics in event handlers.
# TYPE keepwatch_watch_handler_panics_total counter
keepwatch_watch_handler_panics_total{informer="*v1.Pod"} 3
# HELP keepwatch_watch_objects Objects in the cache.
# TYPE keepwatch_watch_objects gauge
keepwatch_watch_objects{informer="*v1.Pod"} 3
# HELP keepwatch_watch_reconnects_total New watches from the revision where the last one ended, by what ended it.
# TYPE keepwatch_watch_reconnects_total counter
keepwatch_watch_reconnects_total{informer="*v1.Pod",reason="ended"} 1
keepwatch_watch_reconnects_total{informer="*v1.Pod",reason="server error"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "informer_store_resource_version",
		"keepwatch_watch_handler_panics_total", "keepwatch_watch_objects", "keepwatch_watch_reconnects_total"); err != nil {
		t.Error(err)
	}
	stop()
	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
}

func TestHealthyFailsIfWatchesAreReset(t *testing.T) {
	refusal := apierrors.NewTooManyRequests("come back later", 0).Status()
	healthyFails(t, &refusal, "come back later")
	healthyFails(t, reset(), "INTERNAL_ERROR")
}

func healthyFails(t *testing.T, ending *metav1.Status, want string) {
	synctest.Test(t, func(t *testing.T) {
		inf := shared(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if options.SendInitialEvents != nil {
					return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
				}
				taken := watch.NewFakeWithChanSize(1, false)
				taken.Error(ending)
				return taken, nil
			},
		}, 0)
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		for range 10 {
			time.Sleep(10 * time.Minute)
			if err := inf.Status().Healthy(2 * time.Minute); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s is healthy: %v", inf.State(), err)
			}
		}
		stop()
	})
}

func TestStates(t *testing.T) {
	s := podtest.NewServer(t)
	for state, answer := range map[health.State]http.HandlerFunc{
		health.Forbidden:    podtest.Status(403, metav1.StatusReasonForbidden, "no"),
		health.Absent:       podtest.Status(404, metav1.StatusReasonNotFound, "no"),
		health.Unauthorized: podtest.Status(401, metav1.StatusReasonUnauthorized, "who?"),
		health.Stalled:      podtest.Status(503, metav1.StatusReasonServiceUnavailable, "not now"),
	} {
		s.Intercept(func(w http.ResponseWriter, r *http.Request) bool { answer(w, r); return true })
		inf := sharedOn(s)
		stop := podtest.Run(t, inf)
		podtest.Eventually(t, func() bool { return inf.State() == state }, func() string {
			return string(inf.State()) + ", want " + string(state)
		})
		if inf.Status().LastFailure == nil {
			t.Errorf("%s without a failure", state)
		}
		stop()
	}
}

func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := shared(newSource(t, podtest.Pod("a")), 0)
		stop := podtest.Run(t, inf)
		podtest.WaitForSync(t, inf)
		time.Sleep(30 * time.Second)
		if got := inf.State(); got != health.Live {
			t.Errorf("after half a minute: %s", got)
		}
		time.Sleep(time.Hour)
		if got := inf.State(); got != health.Quiet {
			t.Errorf("after an hour: %s", got)
		}
		stop()
	})
}
