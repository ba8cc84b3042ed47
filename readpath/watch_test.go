package readpath

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// watchEvent is an event of a watch in JSON.
type watchEvent struct {
	Type   watch.EventType
	Object struct {
		metav1.ObjectMeta `json:"metadata"`
		Kind              string
		Code              int
		Reason            string
		Message           string
	}
}

// watchClient reads the events of a watch.
type watchClient struct {
	t      testing.TB
	answer *http.Response
	events *json.Decoder
}

func (r *rig) watch(query string) *watchClient {
	r.t.Helper()
	answer := r.open(r.path("")+"?watch=1&"+query, accept("application/json"))
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "application/json" {
		r.t.Fatalf("%s, %v", answer.Status, answer.Header)
	}
	return &watchClient{r.t, answer, json.NewDecoder(answer.Body)}
}

func (w *watchClient) next() (e watchEvent) {
	w.t.Helper()
	must(0, w.events.Decode(&e))(w.t)
	return e
}

// readToEnd returns the remaining events. The stream must end without an error.
func (w *watchClient) readToEnd() (rest []watchEvent) {
	w.t.Helper()
	for {
		var e watchEvent
		err := w.events.Decode(&e)
		if err == io.EOF {
			return rest
		}
		must(0, err)(w.t)
		rest = append(rest, e)
	}
}

// Events equal the codecs' in every encoding: the initial state, the bookmark after it, and changes. A
// deletion has its own revision.
func TestWatchEventsEqualTheCodecs(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		t.Run(k.resource.Resource, func(t *testing.T) {
			r := newRig(t, k, options{})
			for _, f := range allEncodings {
				if k.dynamic && f == objectProtobuf {
					continue // custom resources have none
				}
				name := fmt.Sprint("o", f)
				added := r.create("default", name, withLabel("tier", "a"))
				query := "?watch=1&timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name%3D" + name
				answer := r.open(r.path("")+query, accept(accepted(f, asObject)))
				if want := strings.TrimPrefix(mediaType(f)+";stream=watch", runtime.ContentTypeJSON+";stream=watch"); want != "" && answer.Header.Get("Content-Type") != want {
					t.Errorf("encoding %d: %v", f, answer.Header)
				}
				expect := func(kind watch.EventType, o metav1.Object) {
					t.Helper()
					want := r.expectedEvent(kind, o, f)
					got := make([]byte, len(want))
					must(io.ReadFull(answer.Body, got))(t)
					expectBytes(t, fmt.Sprint(kind, " in encoding ", f), got, want)
				}
				expect(watch.Added, added)
				end := k.newObject().(metav1.Object)
				end.SetResourceVersion(added.GetResourceVersion())
				end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
				expect(watch.Bookmark, end)
				expect(watch.Modified, r.update("default", name, withLabel("tier", "b")))
				expect(watch.Deleted, r.delete("default", name))
				answer.Body.Close()
			}
			if delegated := r.delegated.Load(); delegated > 0 {
				t.Errorf("%d requests were delegated", delegated)
			}
		})
	}
}

func (r *rig) expectedEvent(kind watch.EventType, m metav1.Object, f encoding) []byte {
	t := r.t.(*testing.T)
	t.Helper()
	o := m.(runtime.Object)
	switch {
	case isMetadata(f):
		o = partial(t, o)
	case r.kind.dynamic:
		return encodedEvent(t, string(kind), bytes.TrimSuffix(must(runtime.Encode(r.kind.codec, o))(t), newline), f)
	}
	return encodedEvent(t, string(kind), encoded(t, o, r.kind.gvk.GroupVersion(), f), f)
}

// An object that enters a selection is ADDED. One that leaves it is DELETED, with its last selected state.
func TestWatchSelectorEdges(t *testing.T) {
	r := newRig(t, pods, options{})
	first := r.create("default", "o0")
	w := r.watch("timeoutSeconds=600&labelSelector=tier%3Da&resourceVersion=" + first.GetResourceVersion())
	r.create("default", "o1", withLabel("tier", "b"))
	in := r.update("default", "o1", withLabel("tier", "a"))
	stays := r.update("default", "o1", withNote("x"))
	out := r.update("default", "o1", withLabel("tier", "b"))
	r.delete("default", "o1")
	r.create("default", "o2", withLabel("tier", "a"))
	for i, want := range []struct {
		kind     watch.EventType
		revision string
	}{{watch.Added, in.GetResourceVersion()}, {watch.Modified, stays.GetResourceVersion()}, {watch.Deleted, out.GetResourceVersion()}} {
		e := w.next()
		if e.Type != want.kind || e.Object.ResourceVersion != want.revision || e.Object.Labels["tier"] != "a" {
			t.Errorf("event %d is %+v, want %v", i, e, want)
		}
	}
	if e := w.next(); e.Object.Name != "o2" {
		t.Errorf("the next event is %+v", e)
	}
}

// A watch ends at its timeout, and sends a bookmark 2 seconds before, if the client asked for bookmarks.
func TestWatchesEndByTimeout(t *testing.T) {
	t.Parallel() // it waits
	r := newRig(t, pods, options{})
	written := r.create("default", "o1")
	newest := func() keepwatch.Revision { // of etcd; other tests write to it
		return keepwatch.Revision(must(must(etcd())(t).client.KV.Get(t.Context(), r.prefix))(t).Header.Revision)
	}
	for query, bookmarks := range map[string]int{
		"timeoutSeconds=3&allowWatchBookmarks=true": 1,
		"timeoutSeconds=3":                          0,
		"timeoutSeconds=1&allowWatchBookmarks=true": 0, // too short for a bookmark
		"timeoutSeconds=-1":                         0,
	} {
		t.Run(query, func(t *testing.T) {
			rest := r.watch(query + "&resourceVersion=" + written.GetResourceVersion()).readToEnd()
			if len(rest) != bookmarks {
				t.Fatalf("%+v, want %d bookmarks", rest, bookmarks)
			}
			from, to := must(keepwatch.ParseRevision(written.GetResourceVersion()))(t), newest()
			for _, e := range rest {
				if at := must(keepwatch.ParseRevision(e.Object.ResourceVersion))(t); e.Type != watch.Bookmark || at < from || at > to || e.Object.Kind != "Pod" {
					t.Errorf("%+v, between %v and %v", e, from, to)
				}
			}
		})
	}
}

// A watch whose last seconds pass during a write sends its bookmark before it ends.
func TestWatchesThatEndDuringAWriteSendTheirBookmark(t *testing.T) {
	t.Parallel() // it waits
	r := newRig(t, pods, options{})
	first := r.create("default", "o1")
	r.waitFor(first)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the bookmark is due after three
	defer cancel()
	query := "?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion=" + first.GetResourceVersion()
	q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+query, nil))(t))
	q.Header = accept("application/json")
	var watches sync.WaitGroup
	seats := make([]seat, 16) // many watches, because a select chooses at random
	for i := range seats {
		q := q.WithContext(flowcontrol.WithInitializationSignal(q.Context(), &seats[i]))
		watches.Go(func() {
			var sent []watch.EventType
			r.handler.ServeHTTP(&writingClient{write: func(frames []byte) {
				for events := json.NewDecoder(bytes.NewReader(frames)); events.More(); {
					var e watchEvent
					if err := events.Decode(&e); err != nil {
						t.Error(err)
						return
					}
					sent = append(sent, e.Type)
				}
				<-ctx.Done()
				_ = context.Cause(ctx) // it waits until the derived contexts have ended
			}}, q)
			if !slices.Contains(sent, watch.Bookmark) {
				t.Errorf("sent: %v", sent)
			}
		})
	}
	eventually(t, "all watches wait", func() bool {
		for i := range seats {
			if !seats[i].released.Load() {
				return false
			}
		}
		return true
	})
	r.update("default", "o1", withNote("x"))
	watches.Wait()
}

// A watch whose timeout ends before the watch could begin ends without an error: etcd is available.
func TestWatchesThatEndBeforeTheyBegin(t *testing.T) {
	r := newRig(t, pods, options{})
	for _, revision := range []string{"", "1000000"} { // for both, the cache reads etcd's revision
		if rest := r.watch("timeoutSeconds=-1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=" + revision).readToEnd(); len(rest) > 0 {
			t.Errorf("from %q: %+v", revision, rest)
		}
	}
}

// A watch that never catches up, because there is a write during each of its writes, receives bookmarks,
// too.
func TestWatchesThatAreAlwaysBehindReceiveBookmarks(t *testing.T) {
	r := newRig(t, pods, options{})
	large := strings.Repeat("x", chunkSize) // so that each event is written at once
	first := r.create("default", "o1", withNote(large))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	query := "?watch=1&allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion=" + first.GetResourceVersion()
	q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+query, nil))(t))
	q.Header = accept("application/json")
	bookmark, newest, writes := "", "", 0
	write := func() { // the first event is written with the second
		writes++
		r.update("default", "o1", withNote(fmt.Sprint(large, writes)))
		r.waitFor(r.update("default", "o1", withNote(large)))
	}
	write()
	r.handler.ServeHTTP(&writingClient{write: func(sent []byte) {
		for events := json.NewDecoder(bytes.NewReader(sent)); events.More(); {
			var e watchEvent
			must(0, events.Decode(&e))(t)
			if e.Type == watch.Bookmark {
				bookmark = e.Object.ResourceVersion
				cancel()
				return
			}
			newest = e.Object.ResourceVersion
		}
		write()
	}}, q)
	if bookmark == "" || bookmark != newest {
		t.Errorf("the bookmark is at %q, the last event before it at %s", bookmark, newest)
	}
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
			q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+"?watch=1&timeoutSeconds=60&"+query, nil))(t))
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
		eventually(t, "the seat is released", occupied.released.Load)
	})
}

// A watch without a timeout lasts as long as the server's minimum says.
func TestWatchesWithoutATimeout(t *testing.T) {
	r := newRig(t, pods, options{minTimeout: 1})
	if rest := r.watch("resourceVersion=0&timeoutSeconds=0").readToEnd(); len(rest) != 0 {
		t.Errorf("%+v", rest)
	}
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
		if len(all) != 1 || all[0].Type != watch.Error || all[0].Object.Kind != "Status" || all[0].Object.Code != http.StatusGone || all[0].Object.Reason != "Expired" {
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

// A thousand watches of the same objects send the same bytes, which were encoded once.
func TestManyWatchesShareEventEncodings(t *testing.T) {
	const watches, rounds = 1000, 5
	r := newRig(t, pods, options{})
	first := r.create("default", "o1")
	works, encodings := r.reader.json, 0
	var mu sync.Mutex
	r.reader.json = stubSerializer{works, func(o runtime.Object, to io.Writer) error {
		mu.Lock()
		encodings++
		mu.Unlock()
		return works.Encode(o, to)
	}}
	ctx, cancel := context.WithCancel(t.Context())
	q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+"?watch=1&timeoutSeconds=600&resourceVersion="+first.GetResourceVersion(), nil))(t))
	q.Header = accept("application/json")
	sent := make([]receiver, watches)
	var all sync.WaitGroup
	for i := range sent {
		sent[i].writes = make(chan []byte, rounds)
		all.Go(func() { r.handler.ServeHTTP(&sent[i], q) })
	}
	for round := range rounds {
		r.update("default", "o1", withLabel("round", fmt.Sprint(round)))
		one := <-sent[0].writes
		for i := range sent[1:] {
			if other := <-sent[1+i].writes; &other[0] != &one[0] || len(other) != len(one) {
				t.Fatalf("round %d: watch %d sends other bytes: %s", round, i, other)
			}
		}
	}
	cancel()
	all.Wait()
	if encodings > rounds {
		t.Errorf("%d events were encoded %d times", rounds, encodings)
	}
	if r.delegated.Load() > 0 {
		t.Error("requests were delegated")
	}
}

// receiver receives written bytes without copying them.
type receiver struct {
	header http.Header
	writes chan []byte
}

func (r *receiver) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}
func (r *receiver) WriteHeader(int) {}
func (r *receiver) Flush()          {}
func (r *receiver) Write(b []byte) (int, error) {
	r.writes <- b
	return len(b), nil
}

// A watch whose client stops reading does not end, and delays no other watch. When the client reads
// again, it receives every event, or the difference if the history is gone.
func TestSlowWatchesAreNotEnded(t *testing.T) {
	large := string(bytes.Repeat([]byte("0123456789abcdef"), 25<<10)) // 400 KiB
	for name, test := range map[string]struct {
		window int64
		every  bool
	}{"with history": {1 << 30, true}, "without history": {1 << 20, false}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pods, options{store: store.Options{WindowBytes: test.window}})
			first := r.create("default", "stays")
			since := "timeoutSeconds=600&resourceVersion=" + first.GetResourceVersion()
			slow := r.stalled(since)
			fast := r.watch(since)
			events := 0
			for i := range 40 { // 16 MB, more than any buffer on the way
				name := fmt.Sprint("o", i%10)
				if i >= 10 {
					r.delete("default", name)
					fast.next()
					events++
				}
				r.create("default", name, withNote(large))
				fast.next()
				events++
			}
			r.delete("default", "o3")
			last := r.update("default", "stays", withLabel("the", "last"))
			state, received := map[string]string{"stays": first.GetResourceVersion()}, 0
			for e := slow.next(); ; e = slow.next() {
				received++
				switch e.Type {
				case watch.Deleted:
					delete(state, e.Object.Name)
				case watch.Added, watch.Modified:
					state[e.Object.Name] = e.Object.ResourceVersion
				default:
					t.Fatalf("received %+v", e)
				}
				if e.Object.ResourceVersion == last.GetResourceVersion() {
					break
				}
			}
			if test.every && received != events+2 || !test.every && received >= events {
				t.Errorf("received %d of %d events", received, events+2)
			}
			for o := range r.storage.Cache().Snapshot().All() {
				if state[o.Key().Name] != o.Revision().String() {
					t.Errorf("%s: received %q, want %v", o.Key(), state[o.Key().Name], o.Revision())
				}
				delete(state, o.Key().Name)
			}
			if len(state) > 0 {
				t.Errorf("not reported as deleted: %v", state)
			}
		})
	}
}

// stalled returns a watch with a small receive buffer of which nothing is read yet.
func (r *rig) stalled(query string) *watchClient {
	r.t.Helper()
	conn := must(net.Dial("tcp", r.server.Listener.Addr().String()))(r.t)
	r.t.Cleanup(func() { conn.Close() })
	must(0, conn.(*net.TCPConn).SetReadBuffer(64<<10))(r.t)
	must(fmt.Fprintf(conn, "GET %s?watch=1&%s HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n\r\n", r.path(""), query))(r.t)
	answer := must(http.ReadResponse(bufio.NewReader(conn), nil))(r.t)
	return &watchClient{r.t, answer, json.NewDecoder(answer.Body)}
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
		for _, query := range []string{"", "resourceVersion=0&", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&"} {
			if all := r.watch(fmt.Sprint(query, "timeoutSeconds=", seconds)).readToEnd(); len(all) != 0 {
				t.Errorf("%s for %d seconds: %+v", query, seconds, all)
			}
		}
	}
}
