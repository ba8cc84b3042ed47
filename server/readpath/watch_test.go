package readpath

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
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

// Events equal the codecs' in every encoding, compressed or not: the initial state, the bookmark after it,
// and changes. A deletion has its own revision. A compressed event is complete before the next one follows.
func TestWatchEventsEqualTheCodecs(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		t.Run(k.resource.Resource, func(t *testing.T) {
			r := newRig(t, k, options{})
			for i, f := range slices.Concat(allEncodings, allEncodings) {
				if k.dynamic && f == objectProtobuf {
					continue // custom resources have none
				}
				encoding := []string{"identity", "gzip"}[i/len(allEncodings)]
				name := fmt.Sprint("o", i)
				added := r.create("default", name, withLabel("tier", "a"))
				query := "?watch=1&timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name%3D" + name
				answer := r.open(r.path("")+query, accept(accepted(f, asObject), "Accept-Encoding", encoding))
				body := io.Reader(answer.Body)
				if encoding == "gzip" {
					body = must(gzip.NewReader(body))(t)
				}
				if want := strings.TrimPrefix(mediaType(f)+";stream=watch", runtime.ContentTypeJSON+";stream=watch"); want != "" &&
					answer.Header.Get("Content-Type") != want {
					t.Errorf("encoding %d: %v", f, answer.Header)
				}
				expect := func(kind watch.EventType, o metav1.Object) {
					t.Helper()
					want := r.expectedEvent(kind, o, f)
					got := make([]byte, len(want))
					must(io.ReadFull(body, got))(t)
					expectBytes(t, fmt.Sprint(kind, " in encoding ", f, ", ", encoding), got, want)
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
	}{{watch.Added, in.GetResourceVersion()}, {watch.Modified, stays.GetResourceVersion()},
		{watch.Deleted, out.GetResourceVersion()}} {
		e := w.next()
		if e.Type != want.kind || e.Object.ResourceVersion != want.revision || e.Object.Labels["tier"] != "a" {
			t.Errorf("event %d is %+v, want %v", i, e, want)
		}
	}
	if e := w.next(); e.Object.Name != "o2" {
		t.Errorf("the next event is %+v", e)
	}
}

// A thousand watches of the same objects send the same bytes, which were encoded and compressed once.
func TestManyWatchesShareEventEncodings(t *testing.T) {
	for encoding, query := range map[string]string{
		"identity": "",
		"gzip":     "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
	} {
		t.Run(encoding, func(t *testing.T) { testManyWatches(t, encoding, query) })
	}
}

func testManyWatches(t *testing.T, encoding, query string) {
	const watches, rounds = 1000, 5
	budget := NewBudget(1 << 30)
	budget.watches = newAdmission(0) // each event is a write
	r := newRig(t, pods, options{budget: budget})
	first := r.create("default", "o1")
	r.waitFor(first) // no watch waits for it, and ends with an error when that takes too long
	works, encodings := r.reader.json, 0
	var mu sync.Mutex
	r.reader.json = stubSerializer{works, func(o runtime.Object, to io.Writer) error {
		mu.Lock()
		encodings++
		mu.Unlock()
		return works.Encode(o, to)
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := r.withInfo(must(http.NewRequestWithContext(ctx, http.MethodGet, r.path("")+
		"?watch=1&timeoutSeconds=600&resourceVersion="+first.GetResourceVersion()+query, nil))(t))
	q.Header = accept("application/json", "Accept-Encoding", encoding)
	sent := make([]receiver, watches)
	next := func(i int) []byte {
		t.Helper()
		select {
		case b := <-sent[i].writes:
			return b
		case <-time.After(await.Deadline):
			t.Fatalf("watch %d sends nothing", i)
			return nil
		}
	}
	bookmark := func(b []byte) bool { // about one a minute
		if encoding == "gzip" {
			b = gunzip(t, b)
		}
		return bytes.Contains(b, []byte(`"BOOKMARK"`))
	}
	var all sync.WaitGroup
	for i := range sent {
		sent[i].writes, sent[i].ended = make(chan []byte, rounds), ctx.Done()
		all.Go(func() { r.handler.ServeHTTP(&sent[i], q) })
	}
	if query != "" {
		for i := range sent {
			next(i) // the initial object
			next(i) // the bookmark behind it
		}
		mu.Lock()
		encodings = 0
		mu.Unlock()
	}
	for round := range rounds {
		r.update("default", "o1", withLabel("round", fmt.Sprint(round)))
		var one []byte
		for i := range sent {
			got := next(i)
			for (one == nil || &got[0] != &one[0]) && bookmark(got) {
				got = next(i)
			}
			if one == nil {
				one = got
			}
			if &got[0] != &one[0] || len(got) != len(one) {
				t.Fatalf("round %d: watch %d sends other bytes: %s", round, i, got)
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

// gunzip returns the content of complete gzip members.
func gunzip(t testing.TB, members []byte) []byte {
	t.Helper()
	return must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(members)))(t)))(t)
}

// receiver receives written bytes without copying them, until ended is closed.
type receiver struct {
	header http.Header
	writes chan []byte
	ended  <-chan struct{}
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
	select {
	case r.writes <- b:
		return len(b), nil
	case <-r.ended:
		return 0, io.ErrClosedPipe
	}
}

// A watch whose client stops reading does not end, and delays no other watch. When the client reads
// again, it receives every event, or the difference if the history is gone.
func TestSlowWatchesAreNotEnded(t *testing.T) {
	t.Parallel()
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
	conn := must(net.Dial("tcp", r.server().Listener.Addr().String()))(r.t)
	r.t.Cleanup(func() { conn.Close() })
	must(0, conn.(*net.TCPConn).SetReadBuffer(64<<10))(r.t)
	must(fmt.Fprintf(conn, "GET %s?watch=1&%s HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n\r\n", r.path(""),
		query))(r.t)
	answer := must(http.ReadResponse(bufio.NewReader(conn), nil))(r.t)
	return &watchClient{r.t, answer, json.NewDecoder(answer.Body)}
}
