package readpath

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/store"
)

// serve serves a watch without a connection, in virtual time, and returns its events. each is called for each write.
func (r *rig) serve(ctx context.Context, query string, each func()) (sent []watchEvent) {
	r.t.Helper()
	q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+"?watch=1&"+query, nil))(r.t))
	q.Header = accept("application/json")
	r.handler.ServeHTTP(&writingClient{write: func(frames []byte) {
		for events := json.NewDecoder(bytes.NewReader(frames)); events.More(); {
			var e watchEvent
			must(0, events.Decode(&e))(r.t)
			sent = append(sent, e)
		}
		each()
	}}, q)
	return sent
}

// A watch ends at its timeout, and sends a bookmark 2 seconds before, if the client asked for bookmarks.
func TestWatchesEndByTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pods, options{minTimeout: time.Minute})
		written := r.create("default", "o1")
		r.waitFor(written)
		for query, want := range map[string]struct {
			lasts    time.Duration
			bookmark time.Duration // zero for none
		}{
			"timeoutSeconds=3&allowWatchBookmarks=true":   {3 * time.Second, time.Second},
			"timeoutSeconds=3":                            {3 * time.Second, 0},
			"timeoutSeconds=1&allowWatchBookmarks=true":   {time.Second, 0}, // too short for a bookmark
			"timeoutSeconds=-1&allowWatchBookmarks=true":  {0, 0},
			"timeoutSeconds=100&allowWatchBookmarks=true": {100 * time.Second, time.Minute}, // and 98 s
		} {
			begun, first := time.Now(), time.Duration(0)
			sent := r.serve(t.Context(), query+"&resourceVersion="+written.GetResourceVersion(), func() {
				first = cmp.Or(first, time.Since(begun))
			})
			if lasted := time.Since(begun); lasted != want.lasts || first != want.bookmark {
				t.Errorf("%s: it lasts %v, and sends its first bookmark after %v", query, lasted, first)
			}
			for _, e := range sent {
				if e.Type != watch.Bookmark || e.Object.ResourceVersion != written.GetResourceVersion() || e.Object.Kind != "Pod" {
					t.Errorf("%s: %+v", query, e)
				}
			}
		}
		// Without a timeout it lasts as long as the server's minimum says, and up to twice as long.
		begun := time.Now()
		r.serve(t.Context(), "resourceVersion=0&timeoutSeconds=0", func() {})
		if lasted := time.Since(begun); lasted < time.Minute || lasted > 2*time.Minute {
			t.Errorf("without a timeout it lasts %v", lasted)
		}
	})
}

// A watch whose last seconds pass during a write sends its bookmark before it ends.
func TestWatchesThatEndDuringAWriteSendTheirBookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pods, options{})
		first := r.create("default", "o1")
		r.waitFor(first)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // the bookmark is due two before
		defer cancel()
		query := "allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion=" + first.GetResourceVersion()
		var watches sync.WaitGroup
		for range 16 { // many watches, because a select chooses at random
			watches.Go(func() {
				sent := r.serve(ctx, query, func() {
					<-ctx.Done()
					_ = context.Cause(ctx) // it waits until the derived contexts have ended
				})
				if !slices.ContainsFunc(sent, func(e watchEvent) bool { return e.Type == watch.Bookmark }) {
					t.Errorf("sent: %v", sent)
				}
			})
		}
		synctest.Wait() // all watches wait
		r.update("default", "o1", withNote("x"))
		watches.Wait()
	})
}

// A watch whose timeout ends before the watch could begin ends without an error: the source is available.
func TestWatchesThatEndBeforeTheyBegin(t *testing.T) {
	r := newRig(t, pods, options{})
	for _, revision := range []string{"", "1000000"} { // for both, the cache reads the source's revision
		if rest := r.watch("timeoutSeconds=-1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=" +
			revision).readToEnd(); len(rest) > 0 {
			t.Errorf("from %q: %+v", revision, rest)
		}
	}
}

// A watch that never catches up, because there is a write during each of its writes, receives bookmarks,
// too.
func TestWatchesThatAreAlwaysBehindReceiveBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pods, options{})
		large := strings.Repeat("x", chunkSize) // so that each event is written at once
		first := r.create("default", "o1", withNote(large))
		writes := 0
		write := func() { // the first event is written with the second
			writes++
			r.update("default", "o1", withNote(fmt.Sprint(large, writes)))
			r.waitFor(r.update("default", "o1", withNote(large)))
			time.Sleep(100 * time.Millisecond)
		}
		write()
		sent := r.serve(t.Context(), "allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion="+first.GetResourceVersion(),
			write)
		at := slices.IndexFunc(sent, func(e watchEvent) bool { return e.Type == watch.Bookmark })
		if at < 1 || sent[at].Object.ResourceVersion != sent[at-1].Object.ResourceVersion {
			t.Errorf("the bookmark is number %d of %d events", at, len(sent))
		}
	})
}

// writingClient is a client that calls write for each write of the server.
type writingClient struct {
	receiver
	write func(sent []byte)
}

func (c *writingClient) Write(b []byte) (int, error) {
	c.write(b)
	return len(b), nil
}

// seat is the seat of API Priority and Fairness that a watch occupies until it is initialized.
type seat struct{ released atomic.Bool }

func (s *seat) Signal() { s.released.Store(true) }
func (s *seat) Wait()   {}

// A watch releases its seat after the changes that existed when it began, not when it has caught up: a
// watch that is always behind never does.
func TestWatchesAreInitialized(t *testing.T) {
	for name, query := range map[string]string{
		"initial state":   "resourceVersion=0",
		"with a bookmark": "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"changes":         "resourceVersion=",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pods, options{})
			large := strings.Repeat("x", chunkSize) // so that each event is written at once
			first := r.create("default", "o0", withNote(large))
			last := first
			for i := range 3 {
				last = r.create("default", fmt.Sprint("o", 1+i), withNote(large))
			}
			r.waitFor(last)
			if strings.HasSuffix(query, "=") {
				query += first.GetResourceVersion()
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			occupied := &seat{}
			r.context = func(ctx context.Context) context.Context { return flowcontrol.WithInitializationSignal(ctx, occupied) }
			q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+"?watch=1&timeoutSeconds=60&"+query,
				nil))(t))
			q.Header = accept("application/json")
			there := must(keepwatch.ParseRevision(last.GetResourceVersion()))(t)
			later := 0
			r.handler.ServeHTTP(&writingClient{write: func(sent []byte) {
				for events := json.NewDecoder(bytes.NewReader(sent)); events.More(); {
					var e watchEvent
					must(0, events.Decode(&e))(t)
					at := must(keepwatch.ParseRevision(e.Object.ResourceVersion))(t)
					if at > there {
						later++
					}
					if released := occupied.released.Load(); released != (at > there) {
						t.Errorf("%s at %v, and the watch began at %v: the seat is released: %v", e.Type, at, there, released)
					}
				}
				if later > 2 {
					cancel()
					return
				}
				r.update("default", "o1", withNote(large+fmt.Sprint(later)))
				r.waitFor(r.update("default", "o1", withNote(large)))
			}}, q)
			if later == 0 {
				t.Error("no event followed the initial ones")
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		r := newRig(t, pods, options{})
		occupied := &seat{}
		r.context = func(ctx context.Context) context.Context { return flowcontrol.WithInitializationSignal(ctx, occupied) }
		r.watch("timeoutSeconds=60&resourceVersion=" + r.create("default", "o0").GetResourceVersion())
		await.True(t, "the seat is released", occupied.released.Load)
	})
}

// signals signals that the server is shutting down.
type signals chan struct{}

func (s signals) ShuttingDown() <-chan struct{} { return s }

func TestWatchesEndWithTheServer(t *testing.T) {
	r := newRig(t, pods, options{})
	down := make(signals)
	r.context = func(ctx context.Context) context.Context { return request.WithServerShutdownSignal(ctx, down) }
	written := r.create("default", "o1")
	w := r.watch("timeoutSeconds=600")
	if e := w.next(); e.Object.ResourceVersion != written.GetResourceVersion() {
		t.Errorf("%+v", e)
	}
	close(down)
	if rest := w.readToEnd(); len(rest) > 0 {
		t.Errorf("%+v", rest)
	}
}

func TestWatchesEndWithTheStorage(t *testing.T) {
	r := newRig(t, pods, options{})
	r.create("default", "o1")
	w := r.watch("timeoutSeconds=600")
	w.next()
	r.stop()
	if rest := w.readToEnd(); len(rest) > 0 {
		t.Errorf("%+v", rest)
	}
}

// A watch from a revision for which neither the history nor a difference exists ends with an error event.
func TestWatchesFromExpiredRevisions(t *testing.T) {
	r := newRig(t, pods, options{store: store.Options{WindowBytes: 1, Tombstones: 1, TombstoneBytes: 1}})
	first := r.create("default", "o0", withLabel("tier", "a"))
	for i := range 20 {
		// One at a time: the store keeps the newest delivery, whatever its size.
		r.waitFor(r.create("default", fmt.Sprint("p", i), withLabel("tier", "a")))
		r.delete("default", fmt.Sprint("p", i))
	}
	r.waitFor(r.create("default", "last"))
	for _, query := range []string{"", "&labelSelector=tier%3Da"} {
		all := r.watch("timeoutSeconds=600&resourceVersion=" + first.GetResourceVersion() + query).readToEnd()
		if len(all) != 1 || all[0].Type != watch.Error || all[0].Object.Kind != "Status" ||
			all[0].Object.Code != http.StatusGone || all[0].Object.Reason != "Expired" {
			t.Errorf("%q: %+v", query, all)
		}
	}
}

// A watch ends with an error at an event that can't be encoded.
func TestWatchesEndWhereAnEventCannotBeEncoded(t *testing.T) {
	r := newRig(t, pods, options{})
	r.waitFor(r.create("default", "o1"))
	works := r.reader.json
	r.reader.json = stubSerializer{works, func(runtime.Object, io.Writer) error { return errGone }}
	for _, query := range []string{"", "&resourceVersion=1"} {
		all := r.watch("timeoutSeconds=600" + query).readToEnd()
		if len(all) != 1 || all[0].Type != watch.Error || all[0].Object.Code != http.StatusInternalServerError {
			t.Errorf("%q: %+v", query, all)
		}
	}
}

// Any number is a timeout: long ones do not overflow, and negative ones end the watch at once.
func TestWatchTimeouts(t *testing.T) {
	r := newRig(t, pods, options{})
	r.waitFor(r.create("default", "o1"))
	for _, seconds := range []int64{9223371976, 9223372035, 9223372036, 9223372037, 18446744073, math.MaxInt64} {
		w := r.watch(fmt.Sprint("resourceVersion=0&timeoutSeconds=", seconds))
		if e := w.next(); e.Object.Name != "o1" {
			t.Errorf("for %d seconds: %+v", seconds, e)
		}
	}
	for _, seconds := range []int64{-1, -61, -9223372036, math.MinInt64} {
		for _, query := range []string{"", "resourceVersion=0&",
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&"} {
			if all := r.watch(fmt.Sprint(query, "timeoutSeconds=", seconds)).readToEnd(); len(all) != 0 {
				t.Errorf("%s for %d seconds: %+v", query, seconds, all)
			}
		}
	}
}
