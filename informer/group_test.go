package informer_test

import (
	"context"
	"errors"
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
	"github.com/keepwatch/keepwatch/informer"
)

// The health check fails on lost progress and says why; quiet is healthy, and what
// has stopped leaves no trace.
func TestGroup(t *testing.T) {
	s := newServer(t, pod("a"))
	group := informer.NewGroup()
	one := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	two := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	stop := run(t, one)
	run(t, two)
	awaitSync(t, one, two)
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
		t.Errorf("%d are left", n)
	}
}

// Nobody else is told why a shared informer has stopped by itself: the check is, until
// another one takes its place.
func TestCheckFailsForTheFailed(t *testing.T) {
	s := newServer(t)
	s.interfering(func(w http.ResponseWriter, r *http.Request) bool {
		status(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")(w, r)
		return true
	})
	group := informer.NewGroup(informer.StartupDeadline(0))
	group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil).RunWithContext(t.Context())
	for range 2 {
		if err := group.Check(nil); err == nil || !strings.HasPrefix(err.Error(), "informer *v1.Pod: STOPPED: ") || !strings.Contains(err.Error(), "you may not") {
			t.Errorf("after it has failed: %v", err)
		}
	}
	if n := len(group.Status()); n != 0 {
		t.Errorf("%d are said to run", n)
	}
	s.interfering(nil)
	inf := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	stop := run(t, inf)
	awaitSync(t, inf)
	if err := group.Check(nil); err != nil {
		t.Errorf("while another one runs: %v", err)
	}
	stop()
	if err := group.Check(nil); err != nil {
		t.Errorf("after a stop that was asked for: %v", err)
	}
}

// Two that failed are two failures, and one that takes a place takes one.
func TestCheckFailsForEachOfTheFailed(t *testing.T) {
	s := newServer(t)
	s.interfering(func(w http.ResponseWriter, r *http.Request) bool {
		status(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")(w, r)
		return true
	})
	group := informer.NewGroup(informer.StartupDeadline(0))
	for _, example := range []runtime.Object{&corev1.Pod{}, &corev1.Node{}, &corev1.Pod{}} {
		group.NewSharedIndexInformer(podsOn(s), example, 0, nil).RunWithContext(t.Context())
	}
	if err := group.Check(nil); err == nil || strings.Count(err.Error(), "you may not") != 2 {
		t.Errorf("after two have failed, and one in the place of the first: %v", err)
	}
	s.interfering(nil)
	inf := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	run(t, inf)
	awaitSync(t, inf)
	if err := group.Check(nil); err == nil || strings.Contains(err.Error(), "*v1.Pod") || !strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("when one of them was replaced: %v", err)
	}
}

// Who runs a typed informer gets its failure: it may be none to him.
func TestCheckLeavesFailuresToTheOwner(t *testing.T) {
	s := newServer(t)
	s.interfering(func(w http.ResponseWriter, r *http.Request) bool {
		status(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")(w, r)
		return true
	})
	group := informer.NewGroup()
	var failure *keepwatch.Failure
	if err := pods(t, s, informer.InGroup(group), informer.StartupDeadline(0)).Run(t.Context()); !errors.As(err, &failure) {
		t.Errorf("Run: %v", err)
	}
	if err := group.Check(nil); err != nil {
		t.Error(err)
	}
}

// The series of an informer are there while it runs.
func TestMetrics(t *testing.T) {
	s := newServer(t, pod("a"), pod("b"))
	group := informer.NewGroup()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(group)
	inf := group.NewSharedIndexInformer(podsOn(s), &corev1.Pod{}, 0, nil)
	registration := handle(t, inf, &recorder{react: func(line string) { panic(line) }})
	stop := run(t, inf)
	awaitSync(t, inf, registration)
	s.failWatches(1, status(503, metav1.StatusReasonServiceUnavailable, "not now"))
	s.cutWatches()
	eventually(t, func() bool { return group.Status()["*v1.Pod"].Reconnects[keepwatch.ServerError] == 1 }, func() string { return "no reconnect" })
	s.put(pod("c"))
	eventually(t, func() bool { return inf.LastSyncResourceVersion() == "103" }, inf.LastSyncResourceVersion)
	eventually(t, func() bool { return group.Status()["*v1.Pod"].Panics == 3 }, func() string { return "the handler is behind" })
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
# HELP keepwatch_watch_reconnects_total New watches from where the last one ended, by what ended it.
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
		t.Errorf("%d series are left, %v", n, err)
	}
}

// Health looks at how long nothing is followed, not at how long the state of the moment
// lasts: a server that takes each watch and resets it makes no progress, one where
// nothing happens does.
func TestHealthIsProgress(t *testing.T) {
	s := informer.Status{State: informer.Stalled, Since: time.Now(), Lost: time.Now().Add(-time.Hour), LastFailure: errors.New("reset")}
	if err := s.Healthy(time.Minute); err == nil || err.Error() != "STALLED, and not following for 1h0m0s: reset" {
		t.Errorf("nothing followed for an hour: %v", err)
	}
	if err := s.Healthy(2 * time.Hour); err != nil {
		t.Errorf("with more patience: %v", err)
	}
	s = informer.Status{State: informer.Quiet, Since: time.Now().Add(-time.Hour), LastFailure: errors.New("reset")}
	if err := s.Healthy(time.Minute); err != nil {
		t.Errorf("quiet for an hour: %v", err)
	}
}

func TestHealthFailsWhereWatchesAreReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := apierrors.NewTooManyRequests("come back later", 0).Status()
		inf := shared(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if options.SendInitialEvents != nil {
					return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
				}
				taken := watch.NewFakeWithChanSize(1, false)
				taken.Error(&refusal)
				return taken, nil
			},
		}, 0)
		stop := run(t, inf)
		awaitSync(t, inf)
		for range 10 {
			time.Sleep(10 * time.Minute)
			if err := inf.Status().Healthy(2 * time.Minute); err == nil || !strings.Contains(err.Error(), "come back later") {
				t.Errorf("%s is healthy: %v", inf.State(), err)
			}
		}
		stop()
	})
}

func TestStates(t *testing.T) {
	s := newServer(t)
	for state, answer := range map[informer.State]http.HandlerFunc{
		informer.Forbidden:    status(403, metav1.StatusReasonForbidden, "no"),
		informer.Absent:       status(404, metav1.StatusReasonNotFound, "no"),
		informer.Unauthorized: status(401, metav1.StatusReasonUnauthorized, "who?"),
		informer.Stalled:      status(503, metav1.StatusReasonServiceUnavailable, "not now"),
	} {
		s.interfering(func(w http.ResponseWriter, r *http.Request) bool { answer(w, r); return true })
		inf := sharedOn(s)
		stop := run(t, inf)
		eventually(t, func() bool { return inf.State() == state }, func() string { return string(inf.State()) + ", want " + string(state) })
		if inf.Status().LastFailure == nil {
			t.Errorf("%s without a failure", state)
		}
		stop()
	}
}

func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := shared(newSource(t, pod("a")), 0)
		stop := run(t, inf)
		awaitSync(t, inf)
		time.Sleep(30 * time.Second)
		if got := inf.State(); got != informer.Live {
			t.Errorf("after half a minute: %s", got)
		}
		time.Sleep(time.Hour)
		if got := inf.State(); got != informer.Quiet {
			t.Errorf("after an hour: %s", got)
		}
		stop()
	})
}
