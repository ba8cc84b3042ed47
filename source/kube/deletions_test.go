package kube

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// Deletions at the revision that the stream has reached are changes of the next one, and are not lost with a stream
// that ends before.
func TestDeletionsAtTheReachedRevision(t *testing.T) {
	for name, test := range map[string]struct {
		frames []string
		to     keepwatch.Revision
		want   []string
	}{
		"at the start": {[]string{podFrame("DELETED", "a", 5), podFrame("DELETED", "b", 5), podFrame("MODIFIED", "c",
			9)}, 9, []string{"DELETED a@9", "DELETED b@9", "MODIFIED c@9"}},
		"behind another": {[]string{podFrame("ADDED", "c", 7), podFrame("DELETED", "a", 7), podFrame("DELETED", "b", 8)},
			8, []string{"ADDED c@7", "DELETED a@8", "DELETED b@8"}},
		"before a bookmark": {[]string{podFrame("DELETED", "a", 5), bookmarkFrame(8)}, 8, []string{"DELETED a@8"}},
		"the same bookmark": {[]string{podFrame("DELETED", "a", 5), bookmarkFrame(5), bookmarkFrame(9)}, 9,
			[]string{"DELETED a@9"}},
		"created again": {[]string{podFrame("DELETED", "a", 5), podFrame("ADDED", "a", 9)}, 9, []string{"DELETED a@9",
			"ADDED a@9"}},
		"repeated": {[]string{podFrame("DELETED", "a", 5), podFrame("DELETED", "a", 5), podFrame("ADDED", "c", 9)},
			9, []string{"DELETED a@9", "ADDED c@9"}},
		"a repeated newest": {[]string{podFrame("DELETED", "a", 7), podFrame("DELETED", "a", 7), podFrame("ADDED", "c", 9)},
			9, []string{"DELETED a@7", "DELETED a@7", "ADDED c@9"}},
		"the stream's end": {[]string{podFrame("ADDED", "c", 7), podFrame("DELETED", "a", 7)}, 7, []string{"ADDED c@7"}},
		"an earlier one": {[]string{podFrame("ADDED", "c", 7), podFrame("DELETED", "a", 6), podFrame("ADDED", "d", 9)}, 9,
			[]string{"ADDED c@7", "DELETED a@6", "ADDED d@9"}},
		"another one's turn": {[]string{podFrame("DELETED", "a", 5), podFrame("DELETED", "b", 6), podFrame("DELETED", "b", 6),
			podFrame("DELETED", "c", 6), bookmarkFrame(7)}, 7, []string{"DELETED a@6", "DELETED b@6", "DELETED b@6",
			"DELETED c@7"}},
	} {
		t.Run(name, func(t *testing.T) {
			overEach(t, func(w http.ResponseWriter, _ *http.Request) { send(w, test.frames...) }, Options{},
				func(t *testing.T, s *Source) {
					batches, err := drain(open(t, s))
					wantFailure(t, err, keepwatch.Ended, "watch pods: the server ended the stream")
					wantHistory(t, batches, 5, test.to, test.want...)
				})
		})
	}
}

// A server that sends deletions without end at one revision is not believed.
func TestDeletionsAreBounded(t *testing.T) {
	name := strings.Repeat("x", 1<<20)
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 128 {
			send(w, podFrame("DELETED", fmt.Sprint(name, i), 5))
		}
	}), Options{})
	batches, err := drain(open(t, s))
	wantFailure(t, err, keepwatch.ProtocolViolation, "64 MiB, at revision 5")
	if len(batches) > 0 {
		t.Errorf("%d batches", len(batches))
	}
}

// eventsOptions are those of a source of Events.
var eventsOptions = Options{Resource: schema.GroupVersionResource{Version: "v1", Resource: "events"}}

// The Events of one lease of etcd's are deleted at one revision, which is in one batch. A target would otherwise show a
// state of that revision that the server never had.
func TestDeletionsOfALease(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"a", "b", "c"} {
			send(w, podFrame("DELETED", name, 7)) // each in a chunk of its own
		}
		send(w, podFrame("ADDED", "d", 9))
	}
	overEach(t, answer, eventsOptions, func(t *testing.T, s *Source) {
		s.leaseOpen = time.Hour // the end of the revision ends the wait
		batches, err := drain(open(t, s))
		wantFailure(t, err, keepwatch.Ended, "watch events: the server ended the stream")
		wantHistory(t, batches, 5, 9, "DELETED a@7", "DELETED b@7", "DELETED c@7", "ADDED d@9")
		if len(batches) != 1 {
			t.Errorf("%d batches", len(batches))
		}
	})
}

// What follows later waits for the next revision, and so it does if the stream ends before. It is asked for again: the
// connection may have lost a part of the revision.
func TestLateDeletionsOfALease(t *testing.T) {
	taken := make(chan struct{})
	asked := make(chan string, 3)
	var streams atomic.Int32
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			http.NotFound(w, r) // the definition
			return
		}
		asked <- r.URL.Query().Get("resourceVersion")
		switch streams.Add(1) {
		case 1:
			send(w, podFrame("DELETED", "a", 7))
			<-taken
			send(w, podFrame("DELETED", "b", 7))
		case 2:
			send(w, podFrame("DELETED", "a", 7), podFrame("DELETED", "b", 7), podFrame("DELETED", "c", 7))
		default:
			send(w, bookmarkFrame(9))
		}
	}), eventsOptions)
	watch := func(from keepwatch.Revision) keepwatch.Watch {
		w, err := s.Watch(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := watch(5)
	b, err := first.Next()
	if got := describe(b); err != nil || got != "(5,7] DELETED a@7" {
		t.Errorf("the first batch is %s, %v", got, err)
	}
	close(taken)
	if batches, _ := drain(first); len(batches) > 0 {
		t.Errorf("behind it are %d batches", len(batches))
	}
	first.Close()
	second := watch(7)
	batches, _ := drain(second)
	wantHistory(t, batches, 7, 7, "DELETED a@7") // which repeats
	second.Close()
	third := watch(7)
	batches, _ = drain(third)
	wantHistory(t, batches, 7, 9, "DELETED b@9", "DELETED c@9")
	third.Close()
	for _, want := range []string{"5", "6", "6"} {
		if got := <-asked; got != want {
			t.Errorf("a watch from %s, want %s", got, want)
		}
	}
}

// What waits is kept for the stream that continues it, unless a list comes between them.
func TestDeletionsAreKept(t *testing.T) {
	for _, listed := range []bool{false, true} {
		var streams atomic.Int32
		s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !strings.HasSuffix(r.URL.Path, "/pods"):
				http.NotFound(w, r) // the definition
			case !r.URL.Query().Has("watch"):
				send(w, podList(5, ""))
			case streams.Add(1) == 1:
				send(w, podFrame("DELETED", "a", 5))
			default:
				send(w, bookmarkFrame(9))
			}
		}), Options{})
		w := open(t, s)
		drain(w)
		w.Close()
		want := []string{"DELETED a@9"}
		if listed {
			if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
				t.Fatal(err)
			}
			want = nil
		}
		batches, err := drain(open(t, s))
		wantFailure(t, err, keepwatch.Ended)
		wantHistory(t, batches, 5, 9, want...)
	}
}
