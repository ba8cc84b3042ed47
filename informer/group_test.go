package informer_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// Run returns the failure of a typed informer to its caller, so that Check does not report it.
func TestCheckIgnoresTypedFailures(t *testing.T) {
	s := podtest.NewServer(t)
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		podtest.Status(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")(w, r)
		return true
	})
	group := health.NewGroup()
	var failure *keepwatch.Failure
	if err := pods(t, s, informer.InGroup(group), informer.StartupDeadline(0)).Run(t.Context()); !errors.As(err,
		&failure) {
		t.Errorf("Run: %v", err)
	}
	if err := group.Check(nil); err != nil {
		t.Error(err)
	}
}

// The metrics name the resource of an informer that reads the server itself.
func TestMetricsNameTheResource(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	group := health.NewGroup()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(group)
	inf := pods(t, s, informer.InGroup(group))
	podtest.RunTyped(t, inf)
	<-inf.Synced()
	want := `
# HELP informer_store_resource_version [ALPHA] The 15 least significant digits of the resource version of the store.
# TYPE informer_store_resource_version gauge
informer_store_resource_version{group="",name="Pod",resource="pods",version="v1"} 101
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "informer_store_resource_version"); err != nil {
		t.Error(err)
	}
	if want := corev1.SchemeGroupVersion.WithResource("pods"); inf.Status().Resource != want {
		t.Errorf("the status has %v, want %v", inf.Status().Resource, want)
	}
}
