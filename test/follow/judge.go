package follow

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/ndjson"
)

// difference describes the first difference between a fold and the server's state, or
// returns "".
func difference(fold *ndjson.Fold, want map[string]*unstructured.Unstructured) string {
	for key, o := range want {
		got, ok := fold.Objects[key]
		if !ok {
			return key + " is missing"
		}
		if got.UID != string(o.GetUID()) || got.Revision != o.GetResourceVersion() {
			return fmt.Sprintf("%s is %s/%s, on the server %s/%s", key, got.UID, got.Revision, o.GetUID(),
				o.GetResourceVersion())
		}
		if text, err := o.MarshalJSON(); err != nil || !sameJSON(text, got.JSON) {
			return fmt.Sprintf("%s is\n%s\non the server\n%s", key, got.JSON, text)
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

// judge compares the stream with the writes: nothing in it is wrong, and every deletion was
// delivered. Only an object that was created and deleted within one gap, or before the first state, may be missing.
// For a stream with a selector only the final state is compared, because an object can
// leave the selection without a deletion.
func judge(t *testing.T, fold *ndjson.Fold, records []load.Record) {
	t.Helper()
	for _, wrong := range fold.Wrong {
		t.Error(wrong)
	}
	if fold.Selected {
		return
	}
	missed := 0
	for _, object := range records {
		uid := string(object.UID)
		switch {
		case !object.Deleted && fold.Deleted[uid]:
			t.Errorf("%s (%s) was delivered as DELETED, but it exists", object.Name, uid)
		case object.Deleted && fold.Delivered[uid] && !fold.Deleted[uid]:
			t.Errorf("%s (%s) was deleted, and the stream did not deliver the deletion", object.Name, uid)
		case object.Deleted && !fold.Delivered[uid] && !inGap(fold, object):
			t.Errorf("%s (%s), created at %s outside of any gap, is missing", object.Name, uid, object.Created)
		case !fold.Delivered[uid]:
			missed++
		}
	}
	t.Logf("%d of %d objects were created and deleted within a gap or before the first state", missed, len(records))
}

// inGap reports whether an object may have been created and deleted within a gap, or before the first state. One that
// existed at the end of a gap must be in the state there.
func inGap(fold *ndjson.Fold, object load.Record) bool {
	created, _ := strconv.ParseUint(object.Created, 10, 64)
	within := func(g ndjson.Gap) bool { return g.From < created && created <= g.To && object.LastSeen < g.To }
	return within(ndjson.Gap{To: fold.First}) || slices.ContainsFunc(fold.Gaps, within)
}

// judgeLists checks the proxy's transcript: each list except the first must have a reason
// that the failure table accepts. It returns the number of lists.
func judgeLists(t *testing.T, w *faultSource) int {
	t.Helper()
	const skew = 3 * time.Second // between a kill and its effect at the proxy
	lists, pages, garbled, terminated := 0, 0, 0, w.terminated
	reason := "the first"
	var previous faults.Entry       // of the resource
	var last, watched time.Duration // the last list, and the watch that followed it, or 0
	for _, e := range w.proxy.Transcript() {
		if e.Resource != w.resource.String() {
			continue
		}
		if e.Class == faults.List || e.Class == faults.StreamList {
			happened := func(at time.Duration) bool { return at > last-skew && at < e.Start+skew }
			// A process watches when its list is complete, however long that takes.
			lost := func(at time.Duration) bool { return happened(at) && (watched == 0 || at < watched+skew) }
			switch {
			case reason != "":
			case slices.ContainsFunc(w.restarts, happened):
				reason = "a server that restarted"
			case slices.ContainsFunc(w.kills, lost):
				reason = "a list that was killed"
			case postponedByServer(previous, e.Start):
				// A custom resource is served before its storage is ready: 429 "storage is (re)initializing".
				t.Logf("listed again, as the server has asked for: %s", previous)
			case terminated > 0 && endedByServer(previous, e.Start):
				// kube-apiserver also ends a list that is streamed when its buffer for the client is full, which
				// can be as small as 10 events. There is nothing to resume yet.
				reason = "a list that the server ended"
				terminated--
			default:
				t.Errorf("no reason to list: %s", e)
			}
			lists, reason, last, watched, garbled = lists+1, "", e.Start, 0, 0
		}
		if e.Class == faults.Watch && watched == 0 {
			watched = e.Start
		}
		if e.Class == faults.List || e.Class == faults.ListPage || e.Class == faults.Newest {
			pages++
		}
		if (e.Class == faults.List || e.Class == faults.ListPage) && e.End-e.Start > idle-time.Second {
			reason = "a list that was idle" // the client's time is the longer one
		}
		previous = e
		for _, f := range e.Faults {
			fault := f.Fault
			switch {
			case strings.Contains(fault, " 410 "):
				reason = fault
			case e.Class == faults.List || e.Class == faults.StreamList || e.Class == faults.ListPage:
				reason = "a list that failed: " + fault
			case strings.HasPrefix(fault, "garbage") || strings.HasPrefix(fault, "tear"):
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

// postponedByServer reports whether a list ended before a time with 429, which is no fault of the proxy's.
func postponedByServer(list faults.Entry, before time.Duration) bool {
	lists := list.Class == faults.List || list.Class == faults.StreamList
	return lists && len(list.Faults) == 0 && list.End > 0 && list.End <= before && list.Code == http.StatusTooManyRequests
}

// endedByServer reports whether a server has begun to stream a list, and ended it before a time without an error.
func endedByServer(list faults.Entry, before time.Duration) bool {
	return list.Class == faults.StreamList && list.Code == http.StatusOK && len(list.Faults) == 0 && list.Err == "" &&
		list.End > 0 && list.End <= before
}
