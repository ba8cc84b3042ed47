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

// heard is an event of a watch, as JSON says it.
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

// watching reads a watch.
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

// ends reads to the end, which has to be a clean one.
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

// Events are what the codecs make of them, in every form: with the state that a watch
// begins with, its end, and changes; a deletion shows the revision of itself.
func TestWatchEventsEqualTheCodecs(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		t.Run(k.resource.Resource, func(t *testing.T) {
			r := newRig(t, k, options{})
			for _, f := range allEncodings {
				if k.dynamic && f == objectProtobuf {
					continue // there is none
				}
				name := fmt.Sprint("o", f)
				added := r.create("default", name, withLabel("tier", "a"))
				query := "?watch=1&timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name%3D" + name
				answer := r.open(r.path("")+query, accept(accepted(f, asObject)))
				if want := strings.TrimPrefix(mediaType(f)+";stream=watch", runtime.ContentTypeJSON+";stream=watch"); want != "" && answer.Header.Get("Content-Type") != want {
					t.Errorf("form %d: %v", f, answer.Header)
				}
				expect := func(kind watch.EventType, o metav1.Object) {
					t.Helper()
					want := r.expectedEvent(kind, o, f)
					got := make([]byte, len(want))
					must(io.ReadFull(answer.Body, got))(t)
					expectBytes(t, fmt.Sprint(kind, " in form ", f), got, want)
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
			if passed := r.delegated.Load(); passed > 0 {
				t.Errorf("%d were passed on", passed)
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

// What enters and leaves a selection is added and deleted, with its last state there.
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
		t.Errorf("then came %+v", e)
	}
}

// A watch ends when its time is over, and says 2 seconds before how far it has come,
// to who wants to know.
func TestWatchesEndByTimeout(t *testing.T) {
	t.Parallel() // it waits
	r := newRig(t, pods, options{})
	written := r.create("default", "o1")
	newest := func() keepwatch.Revision { // of etcd, to which other tests write, too
		return keepwatch.Revision(must(must(etcd())(t).client.KV.Get(t.Context(), r.prefix))(t).Header.Revision)
	}
	for query, bookmarks := range map[string]int{
		"timeoutSeconds=3&allowWatchBookmarks=true": 1,
		"timeoutSeconds=3":                          0,
		"timeoutSeconds=1&allowWatchBookmarks=true": 0, // too short for one
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

// A watch whose last seconds pass while an event is being written sends its bookmark before it ends.
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
	seats := make([]seat, 16) // many watches: a select chooses by chance
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
				_ = context.Cause(ctx) // which waits until those derived from it have ended, too
			}}, q)
			if !slices.Contains(sent, watch.Bookmark) {
				t.Errorf("%v were sent", sent)
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

// A watch whose time is over before it is known where it begins ends as one whose time is
// over does: etcd is not away.
func TestWatchesThatEndBeforeTheyBegin(t *testing.T) {
	r := newRig(t, pods, options{})
	for _, revision := range []string{"", "1000000"} { // of both, etcd is asked
		if rest := r.watch("timeoutSeconds=-1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=" + revision).readToEnd(); len(rest) > 0 {
			t.Errorf("from %q: %+v", revision, rest)
		}
	}
}

// A watch that is never done, since more was written while it was being sent the last, is
// told how far it has come all the same.
func TestWatchesThatAreAlwaysBehindReceiveBookmarks(t *testing.T) {
	r := newRig(t, pods, options{})
	large := strings.Repeat("x", chunkSize) // so that events are sent before others are looked for
	first := r.create("default", "o1", withNote(large))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	query := "?watch=1&allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion=" + first.GetResourceVersion()
	q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+query, nil))(t))
	q.Header = accept("application/json")
	told, newest, writes := "", "", 0
	write := func() { // a first event is sent with the next one
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
				told = e.Object.ResourceVersion
				cancel()
				return
			}
			newest = e.Object.ResourceVersion
		}
		write()
	}}, q)
	if told == "" || told != newest {
		t.Errorf("it was told that it has come to %q, and was sent the events up to %s", told, newest)
	}
}

// chaser is a client for whom more is written whenever it has been sent something.
type writingClient struct {
	receiver
	write func(sent []byte)
}

func (c *writingClient) Write(b []byte) (int, error) {
	c.write(b)
	return len(b), nil
}

// seat is what API Priority and Fairness holds for a watch until it is initialized.
type seat struct{ released atomic.Bool }

func (s *seat) Signal() { s.released.Store(true) }
func (s *seat) Wait()   {}

// A watch gives its seat back right behind what there was when it began, and not when
// nothing is left to send: for who is always behind that is never.
func TestWatchesAreInitialized(t *testing.T) {
	for name, query := range map[string]string{
		"with the state":      "resourceVersion=0",
		"with its end":        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"with what it missed": "resourceVersion=",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pods, options{})
			large := strings.Repeat("x", chunkSize) // so that events are sent before others are looked for
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
			held := &seat{}
			r.context = func(ctx context.Context) context.Context { return flowcontrol.WithInitializationSignal(ctx, held) }
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
					if given := held.released.Load(); given != (at > there) {
						t.Errorf("%s at %v, where what there was ended at %v: the seat is given back: %v", e.Type, at, there, given)
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
				t.Error("nothing came behind what there was")
			}
		})
	}
	t.Run("with nothing", func(t *testing.T) {
		r := newRig(t, pods, options{})
		held := &seat{}
		r.context = func(ctx context.Context) context.Context { return flowcontrol.WithInitializationSignal(ctx, held) }
		r.watch("timeoutSeconds=60&resourceVersion=" + r.create("default", "o0").GetResourceVersion())
		eventually(t, "the seat is given back", held.released.Load)
	})
}

// A watch that names no time lasts as long as the server has it.
func TestWatchesWithoutATimeout(t *testing.T) {
	r := newRig(t, pods, options{minTimeout: 1})
	if rest := r.watch("resourceVersion=0&timeoutSeconds=0").readToEnd(); len(rest) != 0 {
		t.Errorf("%+v", rest)
	}
}

// signals tells that the server is shutting down.
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

// A revision that is no longer known, nor the difference since then, is told as an
// error in the stream, behind which nothing comes.
func TestWatchesFromExpiredRevisions(t *testing.T) {
	r := newRig(t, pods, options{store: store.Options{WindowBytes: 1, Tombstones: 1, TombstoneBytes: 1}})
	first := r.create("default", "o0", withLabel("tier", "a"))
	for i := range 20 {
		// Each by itself: the store keeps the newest delivery, however much is in it.
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

// A watch whose event can't be encoded is told so, and does not go on without it.
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

// A thousand who watch the same are sent the same bytes, which were made once.
func TestManyWatchesShareEventEncodings(t *testing.T) {
	const watches, rounds = 1000, 5
	r := newRig(t, pods, options{})
	first := r.create("default", "o1")
	works, made := r.reader.json, 0
	var mu sync.Mutex
	r.reader.json = stubSerializer{works, func(o runtime.Object, to io.Writer) error {
		mu.Lock()
		made++
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
				t.Fatalf("round %d: watch %d is sent bytes of its own: %s", round, i, other)
			}
		}
	}
	cancel()
	all.Wait()
	if made > rounds {
		t.Errorf("%d events were encoded %d times", rounds, made)
	}
	if r.delegated.Load() > 0 {
		t.Error("they were passed on")
	}
}

// receiver keeps what it is sent as it is.
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

// A reader that stops reading is not cut off, and keeps nobody else waiting. When it
// reads again it is told every event; and if those have become too many to be kept, what
// has changed since.
func TestSlowWatchesAreNotEnded(t *testing.T) {
	large := string(bytes.Repeat([]byte("0123456789abcdef"), 25<<10)) // 400 KiB
	for name, test := range map[string]struct {
		window int64
		every  bool
	}{"with history": {1 << 30, true}, "without": {1 << 20, false}} {
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
			state, told := map[string]string{"stays": first.GetResourceVersion()}, 0
			for e := slow.next(); ; e = slow.next() {
				told++
				switch e.Type {
				case watch.Deleted:
					delete(state, e.Object.Name)
				case watch.Added, watch.Modified:
					state[e.Object.Name] = e.Object.ResourceVersion
				default:
					t.Fatalf("it was told %+v", e)
				}
				if e.Object.ResourceVersion == last.GetResourceVersion() {
					break
				}
			}
			if test.every && told != events+2 || !test.every && told >= events {
				t.Errorf("%d events, of which it was told %d", events+2, told)
			}
			for o := range r.storage.Cache().Snapshot().All() {
				if state[o.Key().Name] != o.Revision().String() {
					t.Errorf("%s: it was told %q, want %v", o.Key(), state[o.Key().Name], o.Revision())
				}
				delete(state, o.Key().Name)
			}
			if len(state) > 0 {
				t.Errorf("it was not told that these are gone: %v", state)
			}
		})
	}
}

// stalled is a watch of which nothing is read yet, behind a small buffer.
func (r *rig) stalled(query string) *watchClient {
	r.t.Helper()
	conn := must(net.Dial("tcp", r.server.Listener.Addr().String()))(r.t)
	r.t.Cleanup(func() { conn.Close() })
	must(0, conn.(*net.TCPConn).SetReadBuffer(64<<10))(r.t)
	must(fmt.Fprintf(conn, "GET %s?watch=1&%s HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n\r\n", r.path(""), query))(r.t)
	answer := must(http.ReadResponse(bufio.NewReader(conn), nil))(r.t)
	return &watchClient{r.t, answer, json.NewDecoder(answer.Body)}
}

// A timeout of any number is a timeout: the longest are no deadline that overflows, and one of less
// than no time ends a watch that has not begun.
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
