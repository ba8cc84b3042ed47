package main

import (
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

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
		"the database is not open": {transfer.Status{Resources: []transfer.ResourceStatus{starting}}, "pods is not complete: the sink is not open"},
		"a list":                   {transfer.Status{Resources: []transfer.ResourceStatus{resource("pods", 0, now)}}, "pods is not complete: LIVE"},
		"complete":                 {transfer.Status{Resources: []transfer.ResourceStatus{resource("pods", 0, now)}, Cuts: cut(0)}, ""},
		"another line":             {transfer.Status{Resources: []transfer.ResourceStatus{resource("pods", 0, now), resource("events", 1, now)}, Cuts: cut(0)}, "events is not complete: LIVE"},
		"lag":                      {transfer.Status{Resources: []transfer.ResourceStatus{resource("pods", 0, now.Add(-6*time.Minute))}, Cuts: cut(0)}, "pods was not confirmed to be current for 6m0s"},
	} {
		if got := notReady(row.status, now, 5*time.Minute); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
