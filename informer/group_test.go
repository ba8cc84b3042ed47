package informer_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestHealthIsProgress(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for state, healthy := range map[informer.State]bool{
		informer.Syncing: false, informer.Live: true, informer.Quiet: true, informer.Stalled: false, informer.Relisting: false,
		informer.Forbidden: false, informer.Absent: false, informer.Unauthorized: false, informer.Stopped: true,
	} {
		s := informer.Status{State: state, Since: long}
		if err := s.Healthy(time.Minute); (err == nil) != healthy {
			t.Errorf("%s for an hour: %v", state, err)
		}
		if err := s.Healthy(2 * time.Hour); err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
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
