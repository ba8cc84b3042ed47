package controlplane_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is counted is shown: by the server, its storages and the read path.
func TestMetricsAreServed(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	maps := c.typed.CoreV1().ConfigMaps(newNamespace(t, c))
	made := must(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}))(t)
	must(maps.List(t.Context(), metav1.ListOptions{}))(t)
	state := must(maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"}))(t)
	defer state.Stop()
	if e := <-state.ResultChan(); e.Type != "ADDED" {
		t.Fatalf("the watch tells %v", e)
	}
	w := must(maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: made.ResourceVersion}))(t)
	defer w.Stop()
	must(0, maps.Delete(t.Context(), "a", metav1.DeleteOptions{}))(t)
	if e := <-w.ResultChan(); e.Type != "DELETED" {
		t.Fatalf("the watch tells %v", e)
	}
	raw := must(c.typed.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t)
	shown := "\n" + string(raw)
	for _, name := range []string{
		`apiserver_watch_cache_resource_version{group="",resource="configmaps"}`,
		`apiserver_watch_cache_events_received_total{group="",resource="configmaps"}`,
		`apiserver_watch_cache_events_dispatched_total{group="",resource="configmaps"}`,
		`apiserver_watch_cache_initializations_total{group="",resource="configmaps"}`,
		`apiserver_watch_cache_initialization_duration_seconds_count{group="",resource="configmaps"}`,
		`apiserver_watch_cache_consistent_read_total{fallback="false",group="",resource="configmaps",success="true"}`,
		`apiserver_init_events_total{group="",resource="configmaps"}`,
		`keepwatch_watch_resumptions_total{answer="exact",group="",resource="configmaps"}`,
		`keepwatch_readpath_answered_total{verb="watch"}`,
		`keepwatch_readpath_encodings_bytes `, `keepwatch_readpath_encodings_budget_bytes `,
		`keepwatch_readpath_encodings_evicted_total `, `keepwatch_readpath_encodings_refused_total `,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1"}`,
		`apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"}`,
		`apiserver_watch_events_total{group="",resource="configmaps",version="v1"}`,
	} {
		if !strings.Contains(shown, "\n"+name) {
			t.Errorf("/metrics does not show %s", name)
		}
	}
}
