package kube

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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

// What follows later waits for the next revision. If the stream ends before, the next one asks for all of the revision
// again: the connection may have lost a part of it. What was delivered of it is not delivered again.
func TestLateDeletionsOfALease(t *testing.T) {
	taken := make(chan struct{})
	all := []string{podFrame("DELETED", "a", 7), podFrame("DELETED", "b", 7), podFrame("DELETED", "c", 7)}
	l := leased{answers: []func(http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, _ *http.Request) {
			send(w, all[0])
			<-taken
			send(w, all[1])
		},
		sends(all...),
		sends(append(all, bookmarkFrame(9))...),
		sends(podFrame("ADDED", "d", 9), podFrame("ADDED", "e", 12)),
	}}
	s := l.source(t)
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
	for i, want := range []struct {
		from, to keepwatch.Revision
		changes  []string
	}{{7, 7, nil}, {7, 9, []string{"DELETED b@9", "DELETED c@9"}}, {9, 12, []string{"ADDED e@12"}}} {
		first.Close()
		first = watch(want.from)
		batches, err := drain(first)
		wantFailure(t, err, keepwatch.Ended)
		if wantHistory(t, batches, want.from, want.to, want.changes...); t.Failed() {
			t.Fatalf("watch %d", i+2)
		}
	}
	first.Close()
	for _, want := range []string{"4", "6", "6", "8"} {
		if got := <-l.asked; got != want {
			t.Errorf("a watch from %s, want %s", got, want)
		}
	}
}

// A source that was not there when a revision was delivered does not know what of it was: it delivers what the server
// sends again as deletions of the next revision. A list shows all of its revision.
func TestDeletionsOfALeaseAfterAStart(t *testing.T) {
	for _, listed := range []bool{false, true} {
		l := leased{answers: []func(http.ResponseWriter, *http.Request){sends(bookmarkFrame(4),
			podFrame("MODIFIED", "d", 5), podFrame("DELETED", "a", 5), bookmarkFrame(9))}}
		s := l.source(t)
		asked, want := "4", []string{"DELETED a@9"}
		if listed {
			if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
				t.Fatal(err)
			}
			asked = "5"
			l.answers[0] = sends(bookmarkFrame(9))
			want = nil
		}
		batches, err := drain(open(t, s))
		wantFailure(t, err, keepwatch.Ended)
		wantHistory(t, batches, 5, 9, want...)
		if got := <-l.asked; got != asked {
			t.Errorf("a watch from %s, want %s", got, asked)
		}
	}
}

// A reflector resumes within the deletions of a lease, and lists once.
func TestReflectorResumesWithinALease(t *testing.T) {
	all := []string{podFrame("DELETED", "a", 7), podFrame("DELETED", "b", 7)}
	l := leased{answers: []func(http.ResponseWriter, *http.Request){
		sends(all[0]),
		func(w http.ResponseWriter, r *http.Request) {
			send(w, append(all, bookmarkFrame(9))...)
			waitClosed(r)
		},
	}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	state := store.New(store.Options{})
	var notices []string
	r := reflector.New(l.source(t), state, reflector.Options{Paged: true, Observe: func(n reflector.Notice) {
		notices = append(notices, fmt.Sprintf("%+v", n))
	}})
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	await.True(t, "the state is the server's", func() bool { return state.Revision() == 9 })
	_, hasB := state.Snapshot().Get(keepwatch.Key{Namespace: "ns", Name: "b"})
	if n := state.Snapshot().Len(); n != 1 || hasB {
		t.Errorf("%d objects at 9", n)
	}
	stop()
	<-ended
	if got, want := []string{<-l.asked, <-l.asked}, []string{"5", "6"}; !slices.Equal(got, want) || len(l.asked) > 0 {
		t.Errorf("watches from %q, want %q; notices %q", got, want, notices)
	}
}
