package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// TestWatchUntilSyncedResumed resumes a stream after other resources were written. The server confirms the revision of
// pods as kube-apiserver does: 2 s before the end of a watch, so only a short watch is confirmed soon.
func TestWatchUntilSyncedResumed(t *testing.T) {
	parallel(t)
	setenv(t, "KUBECACHEDIR="+t.TempDir())
	const podList = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`
	const bookmark = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`
	known := documents()
	var revision, watches atomic.Int64
	revision.Store(10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case !strings.HasSuffix(r.URL.Path, "/pods") && known[r.URL.Path] == "":
			refuse(w, 404, "NotFound")
		case !strings.HasSuffix(r.URL.Path, "/pods"):
			io.WriteString(w, known[r.URL.Path])
		case q.Has("sendInitialEvents"):
			refuse(w, 400, "BadRequest")
		case q.Has("watch"):
			watches.Add(1)
			if seconds, err := strconv.Atoi(q.Get("timeoutSeconds")); err != nil || seconds > 10 {
				t.Errorf("a watch is confirmed after %s s", q.Get("timeoutSeconds"))
			}
			fmt.Fprintf(w, bookmark, revision.Load())
		default:
			fmt.Fprintf(w, podList, revision.Load())
		}
	}))
	defer server.Close()
	args := []string{"watch", "pods", "-s", server.URL, "--state", t.TempDir(), "--until-synced"}
	for _, want := range []string{"10", "20"} {
		code, stdout, stderr := execute(t, args...)
		if code != 0 || stdout != `{"type":"SYNCED","revision":"`+want+`","count":0,"resources":["pods"]}`+"\n" ||
			strings.Contains(stderr, "resuming") {
			t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
		}
		revision.Store(20)
	}
	if watches.Load() == 0 {
		t.Error("no watch was opened")
	}
}
