package follow

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// TestCompleteOfEachEtcd checks that a sink which is not open yet shows each etcd as incomplete.
func TestCompleteOfEachEtcd(t *testing.T) {
	on := func(name string, line int) transfer.Resource {
		return transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: name}, Line: line}}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(syncCollector{transfer.New(nil, []transfer.Resource{on("pods", 0), on("nodes", 0),
		on("events", 1)}, transfer.Options{})})
	want := `
# HELP keepwatch_sync_complete 1 if all resources of one etcd are complete at one revision, else 0.
# TYPE keepwatch_sync_complete gauge
keepwatch_sync_complete{line="0"} 0
keepwatch_sync_complete{line="1"} 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "keepwatch_sync_complete",
		"keepwatch_sync_complete_revision"); err != nil {
		t.Error(err)
	}
}

// TestNotReady checks what /readyz says about each state.
func TestNotReady(t *testing.T) {
	now := time.Now()
	resource := func(name string, line int, confirmed time.Time) transfer.ResourceStatus {
		return transfer.ResourceStatus{
			Stream:    sink.Stream{ID: stream.Identity{Resource: name}, Line: line},
			Reflector: reflector.Progress{State: reflector.Live, LastConfirmed: confirmed},
		}
	}
	cut := func(lines ...int) map[int]sink.Cut {
		cuts := map[int]sink.Cut{}
		for _, line := range lines {
			cuts[line] = sink.Cut{Revision: keepwatch.Revision(1)}
		}
		return cuts
	}
	starting := resource("pods", 0, time.Time{})
	starting.Reflector.State = ""
	for name, row := range map[string]struct {
		status transfer.Status
		want   string
	}{
		"the database is not open": {transfer.Status{Resources: []transfer.ResourceStatus{starting}},
			"pods is not complete: the sink is not open"},
		"a list": {transfer.Status{Resources: []transfer.ResourceStatus{resource("pods", 0, now)}},
			"pods is not complete: LIVE"},
		"complete": {transfer.Status{Resources: []transfer.ResourceStatus{resource("pods", 0, now)},
			Cuts: cut(0)}, ""},
		"another line": {transfer.Status{Resources: []transfer.ResourceStatus{resource("pods", 0, now),
			resource("events", 1, now)}, Cuts: cut(0)}, "events is not complete: LIVE"},
		"lag": {transfer.Status{Resources: []transfer.ResourceStatus{resource("pods", 0,
			now.Add(-6*time.Minute))}, Cuts: cut(0)}, "pods was not confirmed to be current for 6m0s"},
	} {
		if got := notReady(row.status, now, 5*time.Minute); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// TestStandbyHasNoLag checks that a former writer of a database shows no lag while another process writes.
func TestStandbyHasNoLag(t *testing.T) {
	status := transfer.Status{Resources: []transfer.ResourceStatus{
		{Reflector: reflector.Progress{LastConfirmed: time.Now().Add(-time.Hour)}}}}
	for _, standby := range []bool{false, true} {
		status.Standby = standby
		metrics, lags := make(chan prometheus.Metric, 100), 0
		collectStatus(status, metrics)
		close(metrics)
		for m := range metrics {
			if m.Desc() == syncLag {
				lags++
			}
		}
		if want := map[bool]int{false: 1, true: 0}[standby]; lags != want {
			t.Errorf("standby %v: %d lags, want %d", standby, lags, want)
		}
	}
}
