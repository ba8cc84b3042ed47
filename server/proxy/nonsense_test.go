package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

var nonsenseFlag = flag.Int("proxy.nonsense", 8, "how many kinds of nonsense TestNonsense draws; 0: all of them")

// nonsense is what a server answers to the requests by which the proxy follows config maps.
type nonsense struct {
	// list and watch write an answer in place of the server's, which they can read. One that is nil leaves the server's.
	list, watch func(w http.ResponseWriter, honest func() []byte)
	protobuf    bool // the proxy's client reads protobuf
	leaves      bool // the proxy leaves the resource to the server: its lists lack an object
}

// expired makes the proxy list again.
var expired = body("application/json",
	`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)

// body answers with a text.
func body(contentType, text string) func(http.ResponseWriter, func() []byte) {
	return func(w http.ResponseWriter, _ func() []byte) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, text)
	}
}

func both(answer func(http.ResponseWriter, func() []byte)) nonsense {
	return nonsense{list: answer, watch: answer}
}

// changed answers a list with the server's text, changed.
func changed(change func(text []byte) []byte) func(http.ResponseWriter, func() []byte) {
	return func(w http.ResponseWriter, honest func() []byte) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(change(honest()))
	}
}

var listRevision = regexp.MustCompile(`"metadata":\{"resourceVersion":"[0-9]+"`)

// revised replaces the revision of a list.
func revised(by string) func(http.ResponseWriter, func() []byte) {
	return changed(func(text []byte) []byte {
		return listRevision.ReplaceAll(text, []byte(`"metadata":{`+by))
	})
}

// with adds an item to a list.
func with(item string) func(http.ResponseWriter, func() []byte) {
	return changed(func(text []byte) []byte {
		return bytes.Replace(text, []byte(`"items":[`), []byte(`"items":[`+item+`,`), 1)
	})
}

// events answers a watch with events and leaves it open, as a server does.
func events(frames ...string) nonsense {
	return nonsense{watch: func(w http.ResponseWriter, _ func() []byte) {
		w.Header().Set("Content-Type", "application/json")
		for _, frame := range frames {
			if _, err := io.WriteString(w, frame+"\n"); err != nil {
				return
			}
		}
	}}
}

// configMap is the text of an object that no server has.
func configMap(metadata string) string {
	return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{` + metadata + `}}`
}

// large is a text of n bytes in JSON strings of a size.
func large(n, size int) string {
	one := `"` + strings.Repeat("x", size) + `",`
	return strings.Repeat(one, n/len(one)) + `""`
}

const invented = `"name":"invented","namespace":"default","uid":"none"`

// allNonsense has one entry for each way to be wrong. The sizes of large answers are in bytes.
func allNonsense() map[string]nonsense {
	const tooLong = 40 << 20 // an object may have 32 MiB
	return map[string]nonsense{
		"garbage":        both(body("application/json", "garbage")),
		"a page to read": both(body("text/html", "<html><body>Please log in</body></html>")),
		"nothing":        both(body("application/json", "")),
		"null":           both(body("application/json", "null")),
		"binary":         both(body("application/vnd.kubernetes.protobuf", "k8s\x00\x0a\xff\xff\xff\xff")),
		"a status":       both(body("application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`)),
		"not compressed": both(func(w http.ResponseWriter, _ func() []byte) {
			w.Header().Set("Content-Encoding", "gzip")
			body("application/json", "not gzip")(w, nil)
		}),
		"elsewhere": both(func(w http.ResponseWriter, _ func() []byte) {
			w.Header().Set("Location", "/version")
			w.WriteHeader(http.StatusFound)
		}),
		"no content": both(func(w http.ResponseWriter, _ func() []byte) { w.WriteHeader(http.StatusNoContent) }),
		"half a list": {
			list:  changed(func(text []byte) []byte { return text[:len(text)/2] }),
			watch: expired,
		},
		"a list of numbers": both(body("application/json",
			`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[1,2,3]}`)),
		"no revision":         {list: revised(`"remainingItemCount":0`), watch: expired},
		"a revision in words": {list: revised(`"resourceVersion":"newest"`), watch: expired},
		"a negative revision": {list: revised(`"resourceVersion":"-7"`), watch: expired},
		"a huge revision":     {list: revised(`"resourceVersion":"99999999999999999999999999"`), watch: expired},
		"an object without name": {list: with(configMap(`"uid":"none","resourceVersion":"7"`)), watch: expired,
			leaves: true},
		"an object of no version": {list: with(configMap(invented)), watch: expired, leaves: true},
		"a name that is a number": {list: with(configMap(`"name":7,"resourceVersion":"7"`)), watch: expired, leaves: true},
		"an object of 40 MB": {
			list: with(`{"metadata":{"name":"long","namespace":"default","uid":"none","resourceVersion":"7"},"data":[` +
				large(tooLong, 1<<20) + `]}`),
			watch: expired, leaves: true,
		},
		"a string of 40 MB": {list: with(configMap(invented + `,"resourceVersion":"7","note":` + large(tooLong,
			tooLong-10))), watch: expired},
		"an event of 40 MB": events(`{"type":"ADDED","object":` + configMap(invented+`,"resourceVersion":"7","note":[`+
			large(tooLong, 1<<20)+`]`)),
		"space without end":   events(strings.Repeat(" ", tooLong)),
		"events that are no":  events(`{"type":"ADDED"}`),
		"events without type": events(`{"object":` + configMap(invented+`,"resourceVersion":"7"`) + `}`),
		"events of no type": events(`{"type":"RENAMED","object":` + configMap(invented+`,"resourceVersion":"7"`) +
			`}`),
		"events without name": events(`{"type":"ADDED","object":` + configMap(`"uid":"none","resourceVersion":"7"`) +
			`}`),
		"events without revision": events(`{"type":"DELETED","object":` + configMap(invented) + `}`),
		"revisions in words": events(`{"type":"MODIFIED","object":` +
			configMap(invented+`,"resourceVersion":"newest"`) + `}`),
		"huge revisions": events(`{"type":"MODIFIED","object":` +
			configMap(invented+`,"resourceVersion":"99999999999999999999999999"`) + `}`),
		"a bookmark of the past": events(`{"type":"BOOKMARK","object":` + configMap(`"resourceVersion":"1"`) + `}`),
		"a bookmark in words":    events(`{"type":"BOOKMARK","object":` + configMap(`"resourceVersion":"newest"`) + `}`),
		"half an event":          events(`{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"in`),
		"errors that are none":   events(`{"type":"ERROR","object":7}`),
		"errors without end": events(slices.Repeat([]string{`{"type":"ERROR","object":{"kind":"Status","code":200}}`},
			1000)...),
		"expired, again and again": {watch: expired},
		"a slow list": {watch: expired, list: func(w http.ResponseWriter, honest func() []byte) {
			w.Header().Set("Content-Type", "application/json")
			for part := range slices.Chunk(honest(), 512) {
				_, _ = w.Write(part)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(50 * time.Millisecond) // the slowness
			}
		}},
		"not protobuf": {list: body("application/json", `{"items":[]}`),
			watch: body("application/vnd.kubernetes.protobuf;stream=watch", "k8s"), protobuf: true},
		"a frame of 4 GB": {protobuf: true, watch: func(w http.ResponseWriter, _ func() []byte) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			_ = binary.Write(w, binary.BigEndian, uint32(1<<32-1))
			_, _ = w.Write(bytes.Repeat([]byte{'x'}, tooLong))
		}},
		"frames of nothing": {protobuf: true, watch: func(w http.ResponseWriter, _ func() []byte) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			_, _ = w.Write(make([]byte, 4096))
		}},
	}
}

// A server that answers nonsense, for a while, where the proxy follows config maps: the proxy's clients receive nothing
// that the server does not have, none of its other resources is concerned, and afterwards the watches of its clients
// arrive at the server's state.
func TestNonsense(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	all := allNonsense()
	names := slices.Sorted(maps.Keys(all))
	if *nonsenseFlag > 0 {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:min(len(names), *nonsenseFlag)]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newNonsenseRig(t, srv.Config(), all[name]).run()
		})
	}
}

// nonsenseRig is a proxy in front of a server that can answer nonsense, and a client that watches.
type nonsenseRig struct {
	*testing.T
	nonsense
	maps  corev1client.ConfigMapInterface // of the server
	space string                          // their namespace
	proxy *Proxy
	serve *httptest.Server // it
	front *httptest.Server // the server, or nonsense

	speaking atomic.Bool
	spoken   atomic.Int64 // answers

	client *witness
	allows map[string]bool // the states that the server has had, and its deletions
}

func newNonsenseRig(t *testing.T, server *rest.Config, n nonsense) *nonsenseRig {
	r := &nonsenseRig{T: t, nonsense: n, allows: map[string]bool{}}
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		t.Fatal(err)
	}
	space, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.space, r.maps = space.Name, client.CoreV1().ConfigMaps(space.Name)
	location, err := url.Parse(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(server))
	if err != nil {
		t.Fatal(err)
	}
	honest := httputil.NewSingleHostReverseProxy(location)
	honest.Transport, honest.FlushInterval = transport, -1
	honest.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) { w.WriteHeader(http.StatusBadGateway) }
	r.front = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.answer(w, q, honest)
	}))
	r.front.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.front.StartTLS()
	t.Cleanup(r.front.Close)
	t.Cleanup(r.front.CloseClientConnections)
	config := rest.CopyConfig(server)
	config.Host, config.TLSClientConfig = r.front.URL, rest.TLSClientConfig{Insecure: true}
	p, err := New(Config{Server: config, OwnToken: "own"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	r.proxy, r.serve = p, httptest.NewServer(p)
	t.Cleanup(func() {
		cancel()
		r.serve.CloseClientConnections()
		r.serve.Close()
		r.front.CloseClientConnections()
		<-ended
	})
	return r
}

// answer answers a request as the server does, or with nonsense if it is the proxy's own for config maps.
func (r *nonsenseRig) answer(w http.ResponseWriter, q *http.Request, honest http.Handler) {
	of := r.list
	if q.URL.Query().Has("watch") {
		of = r.watch
	}
	if !r.speaking.Load() || of == nil || !strings.HasPrefix(q.UserAgent(), "keepwatch") ||
		!strings.HasSuffix(q.URL.Path, "/configmaps") {
		honest.ServeHTTP(w, q)
		return
	}
	r.spoken.Add(1)
	of(w, func() []byte {
		recorded := httptest.NewRecorder()
		q.Header.Del("Accept-Encoding")
		honest.ServeHTTP(recorded, q)
		return recorded.Body.Bytes()
	})
	if q.URL.Query().Has("watch") && r.list == nil { // events: the watch stays open
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	}
}

func (r *nonsenseRig) get(ctx context.Context, path string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.serve.URL+path, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer own")
	q.Header.Set("Accept", "application/json")
	if r.protobuf && strings.HasSuffix(q.URL.Path, "/configmaps") {
		q.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	}
	return r.serve.Client().Do(q)
}

// status returns the status of a read, and an empty text if it can't be sent.
func (r *nonsenseRig) status(path string) string {
	response, err := r.get(r.Context(), path)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.Status
}

func (r *nonsenseRig) run() {
	for i := range 5 {
		r.create(fmt.Sprint("a-", i))
	}
	r.cached("configmaps")
	r.cached("services")
	r.client = newWitness(r.get, "/api/v1/configmaps", r.space)
	defer r.client.follow(r.Context())()
	r.until("a watch is open", func() bool { return r.client.opened() > 0 })
	r.change(0)
	r.settle()

	r.speaking.Store(true)
	r.front.CloseClientConnections()
	r.until("the server has answered nonsense", func() bool { return r.spoken.Load() > 0 || r.why("configmaps") != "" })
	r.change(1)
	r.until("nonsense is repeated, or the resource left to the server", func() bool {
		return r.spoken.Load() > 3 || r.why("configmaps") != "" || r.list == nil && r.spoken.Load() > 0
	})
	r.until("the proxy leaves a resource to the server of which it cannot read an object", func() bool {
		return !r.leaves || r.why("configmaps") != ""
	})
	if got := r.status("/livez"); got != "200 OK" {
		r.Errorf("/livez while the server answers nonsense: %s", got)
	}
	r.cached("services")
	if got := r.status("/api/v1/configmaps?resourceVersion=0"); got != "200 OK" {
		r.Errorf("a list of any state while the server answers nonsense: %s", got)
	}
	r.speaking.Store(false)
	r.front.CloseClientConnections()
	r.change(2)
	r.settle()
	for _, wrong := range r.client.wrongAmong(r.allows) {
		r.Error(wrong)
	}
}

// why returns why a list of a resource is forwarded, and nothing if it is answered from memory.
func (r *nonsenseRig) why(resource string) reason {
	q := httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/api/v1/"+resource, nil)
	if r.protobuf && resource == "configmaps" {
		q.Header.Set("Accept", runtime.ContentTypeProtobuf)
	}
	_, why := r.proxy.caches.ready(q, &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1",
		Resource: resource, Path: q.URL.Path})
	return why
}

// cached waits until a resource is answered from memory.
func (r *nonsenseRig) cached(resource string) {
	r.Helper()
	r.until(resource+" are answered from memory", func() bool { return r.why(resource) == "" })
}

func (r *nonsenseRig) until(what string, is func() bool) {
	r.Helper()
	await.True(r.T, what, is)
}

func (r *nonsenseRig) create(name string) {
	r.Helper()
	made, err := r.maps.Create(r.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	r.allow(made)
}

func (r *nonsenseRig) allow(m *corev1.ConfigMap) {
	r.allows[string(m.UID)+"/"+m.ResourceVersion] = true
}

// change changes, deletes and creates an object at the server.
func (r *nonsenseRig) change(round int) {
	r.Helper()
	patched, err := r.maps.Patch(r.Context(), "a-4", "application/merge-patch+json",
		fmt.Appendf(nil, `{"data":{"round":"%d"}}`, round), metav1.PatchOptions{})
	if err != nil {
		r.Fatal(err)
	}
	r.allow(patched)
	name := fmt.Sprint("a-", round)
	gone, err := r.maps.Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	r.allows["DELETED "+string(gone.UID)] = true
	if err := r.maps.Delete(r.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.create(fmt.Sprint("b-", round))
}

// settle waits until the client has the server's state.
func (r *nonsenseRig) settle() {
	r.Helper()
	want := statesOf(r.T, r.maps)
	r.until("the watch has the server's state", func() bool { return r.client.has(want) })
}
