package storage_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/store"
)

var groups atomic.Int64

// counts are the metrics of all tests' storages, in a registry of their own.
var (
	registry = metrics.NewKubeRegistry()
	counts   = storage.NewMetrics(registry)
)

// uncounted is a resource without any counts.
func uncounted() schema.GroupResource {
	return schema.GroupResource{Group: fmt.Sprint("group", groups.Add(1)), Resource: "pods"}
}

// metric returns the value of a counter or gauge of one resource, or the number of observations of a
// histogram, zero if there is none.
func metric(t testing.TB, of schema.GroupResource, name string, more ...string) float64 {
	t.Helper()
	want := map[string]string{"group": of.Group, "resource": of.Resource}
	for i := 0; i < len(more); i += 2 {
		want[more[i]] = more[i+1]
	}
	for _, family := range must(prometheus.Gatherers{legacyregistry.DefaultGatherer, registry}.Gather())(t) {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			if maps.Equal(has, want) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// A storage counts what a watch cache counts, under the same names.
func TestMetricsOfAWatchCache(t *testing.T) {
	t.Parallel()
	of := uncounted()
	r := newRig(t, options{resource: of})
	is := func(what string, want float64, name string, more ...string) {
		t.Helper()
		if got := metric(t, of, name, more...); got != want {
			t.Errorf("%s: %s%q is %v, not %v", what, name, more, got, want)
		}
	}
	is("ready", 1, "apiserver_watch_cache_initializations_total")
	is("ready", 1, "apiserver_watch_cache_initialization_duration_seconds")

	first := r.create("a")
	r.create("b")
	r.label("a", "x")
	gone := r.delete("b")
	r.list(everything)
	is("four writes", 4, "apiserver_watch_cache_events_received_total")
	is("four writes", 4, "apiserver_watch_cache_events_dispatched_total")
	if at, last := metric(t, of, "apiserver_watch_cache_resource_version"), must(strconv.ParseFloat(gone.ResourceVersion,
		64))(t); at < last {
		t.Errorf("the metric is at %v, after revision %v was read", at, last)
	}

	consistent := "apiserver_watch_cache_consistent_read_total"
	is("a list", 1, consistent, "success", "true", "fallback", "false")
	must(0, r.Get(t.Context(), "/pods/ns/a", apistorage.GetOptions{}, &example.Pod{}))(t)
	is("a list and an object", 2, consistent, "success", "true", "fallback", "false")
	r.list(from("0"))
	is("and what need not be new", 2, consistent, "success", "true", "fallback", "false")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.GetList(over, "/pods/", everything, &example.PodList{}); err == nil {
		t.Error("a list whose client is gone succeeds")
	}
	is("a list whose client is gone", 1, consistent, "success", "false", "fallback", "true")

	waits := "apiserver_watch_cache_read_wait_seconds"
	before := metric(t, of, waits)
	r.list(from(gone.ResourceVersion))
	is("what is there", before, waits)
	if err := r.GetList(over, "/pods/", from("9999999"), &example.PodList{}); err == nil {
		t.Error("a list of the future succeeds")
	}
	is("a future revision", before+1, waits)

	initial := "apiserver_init_events_total"
	w := r.watch("/pods/", from("0"))
	next(t, w)
	await.True(t, "the initial state is counted", func() bool { return metric(t, of, initial) == 1 })
	w = r.watch("/pods/", from(first.ResourceVersion))
	for range 3 {
		next(t, w)
	}
	await.True(t, "what a watch has missed is counted", func() bool { return metric(t, of, initial) == 4 })
}

// Resumptions are counted by what the watch receives first: the history, the difference, or 410.
func TestMetricsOfResumptions(t *testing.T) {
	t.Parallel()
	of := uncounted()
	r := newRig(t, options{resource: of, store: store.Options{WindowBytes: 1, AttributeBytes: 1}})
	counts := func(exact, difference, expired float64) {
		t.Helper()
		want := map[string]float64{"exact": exact, "difference": difference, "expired": expired}
		has := map[string]float64{}
		await.True(t, "the resumptions are counted", func() bool {
			for answer := range want {
				has[answer] = metric(t, of, "keepwatch_watch_resumptions_total", "answer", answer)
			}
			return maps.Equal(has, want)
		})
	}
	begin := r.create("a")
	r.dropHistory()
	last := r.label("a", "1")
	r.list(everything)

	expect(t, r.watch("/pods/", from("0")), eventText(watch.Added, last))
	counts(0, 0, 0)
	w := r.watch("/pods/", from(last.ResourceVersion))
	counts(1, 0, 0)
	expect(t, w, eventText(watch.Modified, r.label("a", "2")))
	behind := r.watch("/pods/", from(begin.ResourceVersion))
	if next(t, behind) == "end" {
		t.Error("a watch behind the window ends")
	}
	counts(1, 1, 0)
	expect(t, r.watch("/pods/", withLabel(from(begin.ResourceVersion), "1")), "ERROR Expired")
	counts(1, 1, 1)
	if n := metric(t, of, "keepwatch_watches_expired_total"); n != 1 {
		t.Errorf("%v watches have expired", n)
	}
	expect(t, w, eventText(watch.Modified, r.label("a", "3")))
	counts(1, 1, 1)
}
