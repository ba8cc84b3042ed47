package follow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/test/faultproxy"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/ndjson"
)

// difference says in what a fold differs from the server's state.
func difference(fold *ndjson.Fold, want map[string]*unstructured.Unstructured) string {
	for key, o := range want {
		held, ok := fold.Objects[key]
		if !ok {
			return key + " is missing"
		}
		if held.UID != string(o.GetUID()) || held.Revision != o.GetResourceVersion() {
			return fmt.Sprintf("%s is %s/%s, on the server %s/%s", key, held.UID, held.Revision, o.GetUID(), o.GetResourceVersion())
		}
		if text, err := o.MarshalJSON(); err != nil || !sameJSON(text, held.Object) {
			return fmt.Sprintf("%s is\n%s\non the server\n%s", key, held.Object, text)
		}
	}
	for key := range fold.Objects {
		if _, ok := want[key]; !ok {
			return key + " does not exist any more"
		}
	}
	return ""
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// judge holds the stream against the books: nothing wrong in it, and every delete
// told. Only an object that came and went within one gap may be unknown to it. Of
// a stream with a selector the books can't tell; there the final state decides.
func judge(t *testing.T, fold *ndjson.Fold, lives []load.Life) {
	t.Helper()
	for _, wrong := range fold.Wrong {
		t.Error(wrong)
	}
	if fold.Selected {
		return // what leaves the selection need not have been deleted
	}
	missed := 0
	for _, life := range lives {
		uid := string(life.UID)
		switch {
		case !life.Deleted && fold.Deleted[uid]:
			t.Errorf("%s (%s) was told as DELETED, but it lives", life.Name, uid)
		case life.Deleted && fold.Told[uid] && !fold.Deleted[uid]:
			t.Errorf("%s (%s) was deleted, and the stream never said so", life.Name, uid)
		case life.Deleted && !fold.Told[uid] && !inGap(fold.Gaps, life.Created):
			t.Errorf("%s (%s), created at %s outside of any gap, is missing", life.Name, uid, life.Created)
		case !fold.Told[uid]:
			missed++
		}
	}
	t.Logf("%d of %d objects came and went within a gap", missed, len(lives))
}

func inGap(gaps []ndjson.Gap, revision string) bool {
	r, _ := strconv.ParseUint(revision, 10, 64)
	return slices.ContainsFunc(gaps, func(g ndjson.Gap) bool { return g.From < r && r <= g.To })
}

// judgeLists goes through the proxy's transcript: each list but the first must
// have a reason that the failure table accepts. It returns how many there were.
func judgeLists(t *testing.T, w *weather) int {
	t.Helper()
	const skew = 3 * time.Second // between a kill and what of it arrives at the proxy
	lists, pages, garbled := 0, 0, 0
	reason := "the first"
	var last time.Duration
	for _, e := range w.proxy.Transcript() {
		if e.Resource != w.resource.String() {
			continue
		}
		if e.Class == faultproxy.List || e.Class == faultproxy.StreamList {
			happened := func(at time.Duration) bool { return at > last-skew && at < e.Start+skew }
			switch {
			case reason != "":
			case slices.ContainsFunc(w.restarts, happened):
				reason = "a server that restarted"
			case slices.ContainsFunc(w.kills, func(at time.Duration) bool { return at > last-skew && at < last+skew }):
				reason = "a list that was killed"
			default:
				t.Errorf("no reason to list: %s", e)
			}
			lists, reason, last, garbled = lists+1, "", e.Start, 0
		}
		if e.Class == faultproxy.List || e.Class == faultproxy.ListPage || e.Class == faultproxy.Newest {
			pages++
		}
		for _, f := range e.Faults {
			what := f.Fault.String()
			switch {
			case strings.Contains(what, " 410 "):
				reason = what
			case e.Class == faultproxy.List || e.Class == faultproxy.StreamList || e.Class == faultproxy.ListPage:
				reason = "a list that failed: " + what
			case strings.HasPrefix(what, "garbage") || strings.HasPrefix(what, "tear"):
				if garbled++; garbled >= 3 {
					reason = "garbled three times"
				}
			}
		}
	}
	if w.counted-ours > pages {
		t.Errorf("the server counts %d pages of lists, the proxy saw %d", w.counted-ours, pages)
	}
	return lists
}
