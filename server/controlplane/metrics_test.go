package controlplane_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// The server shows the metrics of its storages and of the read path.
func TestMetricsAreServed(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	maps := c.typed.CoreV1().ConfigMaps(newNamespace(t, c))
	made := must(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{}))(t)
	must(maps.List(t.Context(), metav1.ListOptions{}))(t)
	must(maps.List(t.Context(), metav1.ListOptions{LabelSelector: "a=b"}))(t)
	state := must(maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"}))(t)
	defer state.Stop()
	if e := <-state.ResultChan(); e.Type != "ADDED" {
		t.Fatalf("the watch sends %v", e)
	}
	w := must(maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: made.ResourceVersion}))(t)
	defer w.Stop()
	must(0, maps.Delete(t.Context(), "a", metav1.DeleteOptions{}))(t)
	if e := <-w.ResultChan(); e.Type != "DELETED" {
		t.Fatalf("the watch sends %v", e)
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
		`keepwatch_selector_indexes{group="",resource="configmaps"}`,
		`keepwatch_selector_indexes_bytes{group="",resource="configmaps"}`,
		`keepwatch_selective_lists_total{by="scan",group="",resource="configmaps"}`,
		`keepwatch_readpath_answered_total{verb="watch"}`,
		`keepwatch_readpath_encodings_bytes `, `keepwatch_readpath_encodings_budget_bytes `,
		`keepwatch_readpath_buffer_bytes `, `keepwatch_readpath_watch_buffers_refused_total `,
		`keepwatch_readpath_encodings_evicted_total `, `keepwatch_readpath_encodings_refused_total `,
		`keepwatch_readpath_encodings_cold_total `,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1"}`,
		`apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"}`,
		`apiserver_watch_events_total{group="",resource="configmaps",version="v1"}`,
	} {
		if !strings.Contains(shown, "\n"+name) {
			t.Errorf("/metrics does not show %s", name)
		}
	}
}

// A watch is counted when it has ended, with the status that its client received, whether the read path
// or k8s.io/apiserver served it.
func TestWatchesAreCountedWithTheirStatus(t *testing.T) {
	config := shared.RESTConfig()
	const of = `",component="apiserver",dry_run="",group="",resource="replicationcontrollers",scope="cluster",subresource="",verb="WATCH",version="v1"}`
	// The metric is the process's. Requests that nobody answers, as those of a server that ends, have no status.
	const metric, none = `apiserver_request_total{code="200` + of, `apiserver_request_total{code="0` + of
	without := counted(t, config, none)
	for _, query := range []string{"", "&pretty=true"} {
		before := counted(t, config, metric)
		must(request(t.Context(), config, "/api/v1/replicationcontrollers?watch=1&timeoutSeconds=1"+query, asJSON,
			"identity"))(t)
		await.State(t, "the watch is counted", func() (bool, string) {
			return counted(t, config, metric) > before, query
		})
	}
	if n := counted(t, config, none) - without; n > 0 {
		t.Errorf("%v requests are counted without a status", n)
	}
}

// Two servers in one process count their own requests only.
func TestServersCountSeparately(t *testing.T) {
	other := start(t, controlplane.Options{}).RESTConfig()
	// The servers' own clients list meanwhile, and never what is invalid.
	const invalid = `keepwatch_readpath_delegated_total{reason="invalid"}`
	own, before := counted(t, shared.RESTConfig(), invalid), counted(t, other, invalid)
	for range 5 {
		must(request(t.Context(), other, "/api/v1/limitranges?fieldSelector=none%3Da", asJSON, "identity"))(t)
	}
	if n := counted(t, other, invalid) - before; n != 5 {
		t.Errorf("%v of 5 lists are counted", n)
	}
	if n := counted(t, shared.RESTConfig(), invalid) - own; n != 0 {
		t.Errorf("another server counts %v of them", n)
	}
	if n := counted(t, other, "keepwatch_readpath_encodings_budget_bytes"); n != 1<<30 {
		t.Errorf("the budget is %v bytes", n)
	}
}
