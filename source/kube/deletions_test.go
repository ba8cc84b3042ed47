package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
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
		"behind a bookmark": {[]string{bookmarkFrame(7), podFrame("DELETED", "a", 7), podFrame("MODIFIED", "c", 9)}, 9,
			[]string{"DELETED a@9", "MODIFIED c@9"}},
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

// A deletion behind a bookmark at its revision may not be sent again: the bookmark has confirmed that revision. If
// nothing follows to which it belongs, only a list shows it.
func TestDeletionsBehindABookmark(t *testing.T) {
	early := []string{bookmarkFrame(7), podFrame("DELETED", "a", 7)}
	for name, test := range map[string]struct {
		frames []string
		want   keepwatch.FailureKind
		resume bool // a watch from the bookmark may be opened
	}{
		"the stream's end":            {early, keepwatch.Ended, false},
		"the same bookmark again":     {append(early, bookmarkFrame(7)), keepwatch.ProtocolViolation, false},
		"the stream's end, behind it": {append(early, podFrame("MODIFIED", "c", 9)), keepwatch.Ended, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") != "true" {
					w.Write([]byte(podList(7, "")))
					return
				}
				send(w, test.frames...)
			}), Options{})
			batches, err := drain(open(t, s))
			wantFailure(t, err, test.want)
			watch := func(from keepwatch.Revision) error {
				w, err := s.Watch(t.Context(), from)
				if err == nil {
					w.Close()
				}
				return err
			}
			if err := watch(batches[len(batches)-1].To); test.resume {
				if err != nil {
					t.Error(err)
				}
				return
			} else {
				wantFailure(t, err, keepwatch.Expired)
			}
			if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
				t.Fatal(err)
			}
			if err := watch(7); err != nil {
				t.Errorf("after a list: %v", err)
			}
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

// leased is a server of Events that sends what its answers say, one to each watch, and a list at revision 5 of a, b and
// c.
type leased struct {
	asked   chan string // the resourceVersions of watches
	answers []func(w http.ResponseWriter, r *http.Request)
	watches atomic.Int32
}

func (l *leased) source(t *testing.T) *Source {
	l.asked = make(chan string, 10)
	return newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/events"):
			http.NotFound(w, r) // the definition
		case !r.URL.Query().Has("watch"):
			send(w, podList(5, "", pod("a", 2), pod("b", 3), pod("c", 4)))
		default:
			l.asked <- r.URL.Query().Get("resourceVersion")
			l.answers[min(int(l.watches.Add(1)), len(l.answers))-1](w, r)
		}
	}), eventsOptions)
}

func sends(texts ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { send(w, texts...) }
}

// What follows later waits for the next revision. If the stream ends before, only a list shows it: the server does not
// send it again.
func TestLateDeletionsOfALease(t *testing.T) {
	for _, ends := range []bool{false, true} {
		taken := make(chan struct{})
		l := leased{answers: []func(http.ResponseWriter, *http.Request){
			func(w http.ResponseWriter, _ *http.Request) {
				send(w, podFrame("DELETED", "a", 7))
				<-taken
				send(w, podFrame("DELETED", "b", 7))
				if !ends {
					send(w, bookmarkFrame(9))
				}
			},
			sends(bookmarkFrame(9)),
		}}
		s := l.source(t)
		w := open(t, s)
		b, err := w.Next()
		if got := describe(b); err != nil || got != "(5,7] DELETED a@7" {
			t.Errorf("the first batch is %s, %v", got, err)
		}
		close(taken)
		batches, err := drain(w)
		wantFailure(t, err, keepwatch.Ended)
		w.Close()
		if !ends {
			wantHistory(t, batches, 7, 9, "DELETED b@9")
			continue
		}
		if len(batches) > 0 {
			t.Errorf("behind the first batch are %d", len(batches))
		}
		_, err = s.Watch(t.Context(), 7)
		wantFailure(t, err, keepwatch.Expired, "within the deletions at revision 7")
		if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
			t.Fatal(err)
		}
		open(t, s)
	}
}

// A reflector whose stream ends within a lease lists once, also at the revision of the lease, and goes on.
func TestReflectorListsBehindACutLease(t *testing.T) {
	var lists, watches atomic.Int32
	delivered := make(chan struct{})
	s := newSource(t, serve(t, "HTTP/1.1", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/events"):
			http.NotFound(w, r) // the definition
		case !r.URL.Query().Has("watch") && lists.Add(1) == 1:
			send(w, podList(5, "", pod("a", 2), pod("b", 3), pod("c", 4)))
		case !r.URL.Query().Has("watch"):
			send(w, podList(7, "", pod("c", 4)))
		case watches.Add(1) == 1:
			send(w, podFrame("DELETED", "a", 7))
			<-delivered
			send(w, podFrame("DELETED", "b", 7))
		default:
			send(w, bookmarkFrame(9))
			waitClosed(r)
		}
	}), eventsOptions)
	state := store.New(store.Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- reflector.New(s, state, reflector.Options{Paged: true}).Run(ctx) }()
	await.True(t, "the first deletion is delivered", func() bool { return state.Revision() == 7 })
	close(delivered)
	await.True(t, "the watch goes on", func() bool { return state.Revision() == 9 })
	stop()
	<-ended
	if state.Snapshot().Len() != 1 || lists.Load() != 2 || watches.Load() != 2 {
		t.Errorf("%d objects after %d lists and %d watches, want 1, 2 and 2", state.Snapshot().Len(), lists.Load(),
			watches.Load())
	}
}
