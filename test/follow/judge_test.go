package follow

import (
	"net/http"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/ndjson"
)

func TestInGap(t *testing.T) {
	fold := ndjson.NewFold()
	fold.First, fold.Gaps = 100, []ndjson.Gap{{From: 200, To: 300}}
	for _, c := range []struct {
		created  string
		lastSeen uint64
		want     bool
	}{
		{"50", 99, true}, // before the first state
		{"50", 100, false},
		{"50", 250, false},
		{"150", 160, false}, // outside
		{"201", 299, true},
		{"201", 300, false}, // it existed at the end of the gap
		{"200", 250, false}, // it existed at the beginning
		{"301", 301, false},
	} {
		if got := inGap(fold, load.Record{Created: c.created, Deleted: true, LastSeen: c.lastSeen}); got != c.want {
			t.Errorf("created at %s, last seen at %d: %t", c.created, c.lastSeen, got)
		}
	}
}

func TestPostponedByServer(t *testing.T) {
	entry := func(class faults.Class, code int) faults.Entry {
		return faults.Entry{Request: faults.Request{Class: class}, Code: code, End: time.Second}
	}
	for _, c := range []struct {
		name  string
		entry faults.Entry
		want  bool
	}{
		{"a list, not yet served", entry(faults.StreamList, http.StatusTooManyRequests), true},
		{"a list, by an unready server", entry(faults.List, http.StatusTooManyRequests), true},
		{"a page", entry(faults.ListPage, http.StatusTooManyRequests), false},
		{"a list that failed", entry(faults.List, http.StatusInternalServerError), false},
		{"a list that succeeded", entry(faults.List, http.StatusOK), false},
		{"a list of something that is not served", entry(faults.List, http.StatusNotFound), false},
		{"a watch", entry(faults.Watch, http.StatusTooManyRequests), false},
		{"no list before", faults.Entry{}, false},
	} {
		if got := postponedByServer(c.entry, 2*time.Second); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
		if postponedByServer(c.entry, time.Second/2) {
			t.Errorf("%s: before its end", c.name)
		}
	}
	byProxy := entry(faults.List, http.StatusTooManyRequests)
	byProxy.Faults = []faults.Injected{{Fault: "status 429 TooManyRequests"}}
	if postponedByServer(byProxy, 2*time.Second) {
		t.Error("a fault of the proxy counts by itself")
	}
}
