package proxy

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// fairRig is a proxy with few seats, whose users ada and bob may read everything. The requests of ada are blocked where
// memory answers them, or on the way to the server.
type fairRig struct {
	*personalRig
	proxy    *Proxy
	ada, bob string // tokens
	blocked  atomic.Int64
	silent   atomic.Bool // the server confirms no revision
	released atomic.Pointer[chan struct{}]
	server   *httptest.Server // in front of the server
}

// fewSeats are shared by the priority levels; each gets one more at most, since the shares are rounded up.
const fewSeats, mostSeats = 24, 24 + 8

func newFairRig(t *testing.T) *fairRig {
	f := &fairRig{}
	released := make(chan struct{})
	f.released.Store(&released)
	t.Cleanup(func() { f.server.Close() })
	f.personalRig = newPersonalRig(t, 1, func(c *Config) {
		c.MaxRequestsInFlight, c.requestTimeout = fewSeats, time.Hour // nobody waits for too long
		c.SmallCollection = 1                                         // memory answers consistent reads
		c.Server = &rest.Config{Host: f.between(c.Server), BearerToken: c.Server.BearerToken}
	})
	f.proxy = f.replicas[0].proxy
	f.ada, f.bob = f.user("ada"), f.user("bob")
	f.grant("ada", "")
	f.grant("bob", "")
	for _, token := range []string{f.ada, f.bob} {
		f.until("memory answers", func() bool {
			return f.send(token, configMaps+"?resourceVersion=0").Code == http.StatusOK &&
				f.metric("keepwatch_readpath_answered_total") > 0
		})
	}
	f.until("the proxy has the server's priority levels", func() bool {
		return f.send(f.bob, one).Header().Get("X-Kubernetes-Pf-Prioritylevel-Uid") != ""
	})
	return f
}

// one is a GET, which occupies one seat.
const one = "/api/v1/namespaces/a/configmaps/m0?resourceVersion=0"

// between returns the address of a reverse proxy of the server, which blocks the requests that say so.
func (f *fairRig) between(server *rest.Config) string {
	direct, err := rest.TransportFor(rest.AnonymousClientConfig(server))
	if err != nil {
		panic(err)
	}
	to, err := url.Parse(server.Host)
	if err != nil {
		panic(err)
	}
	reverse := &httputil.ReverseProxy{Transport: direct, Rewrite: func(q *httputil.ProxyRequest) { q.SetURL(to) },
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Has("blocked") || f.silent.Load() && q.URL.Query().Get("limit") == "1" {
			f.wait()
		}
		reverse.ServeHTTP(w, q)
	}))
	f.server = s
	return s.URL
}

// wait blocks a request until it is released.
func (f *fairRig) wait() {
	f.blocked.Add(1)
	defer f.blocked.Add(-1)
	<-*f.released.Load()
}

// block lets memory block the requests of ada until they are released, and counts them.
func (f *fairRig) block() (begun *atomic.Int64) {
	begun = &atomic.Int64{}
	next := f.proxy.reads
	f.proxy.reads = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, _ := request.UserFrom(q.Context()); strings.HasSuffix(user.GetName(), ":ada") {
			begun.Add(1)
			f.wait()
		}
		next.ServeHTTP(w, q)
	})
	return begun
}

func (f *fairRig) query(ctx context.Context, token, path string) *http.Request {
	q := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set("Accept", "application/json")
	return q
}

func (f *fairRig) send(token, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.proxy.ServeHTTP(w, f.query(f.Context(), token, path))
	return w
}

// metric returns the sum of a metric of the proxy or of the libraries.
func (f *fairRig) metric(name string) (sum float64) {
	f.Helper()
	for _, g := range []metrics.Gatherer{f.proxy.registry, legacyregistry.DefaultGatherer} {
		families, err := g.Gather()
		f.must(err)
		for _, of := range families {
			for _, m := range of.GetMetric() {
				if of.GetName() == name {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// A user's many requests occupy few seats at a time, wait in few queues, and are refused beyond that. Another user's
// request is not refused, and overtakes many of those that wait.
func TestFairness(t *testing.T) {
	f := newFairRig(t)
	begun := f.block()
	const flood = 500
	var refused atomic.Int64
	var asking sync.WaitGroup
	defer asking.Wait()
	release := sync.OnceFunc(func() { close(*f.released.Load()) })
	defer release()
	for range flood {
		asking.Go(func() {
			switch w := f.send(f.ada, one); {
			case w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "":
				refused.Add(1)
			case w.Code != http.StatusOK:
				t.Errorf("%d: %s", w.Code, w.Body)
			}
		})
	}
	waiting := func() int64 { return int64(f.metric("apiserver_flowcontrol_current_inqueue_requests")) }
	f.until("all requests are blocked, wait, or are refused", func() bool {
		return begun.Load()+waiting()+refused.Load() >= flood
	})
	if n := f.blocked.Load(); n == 0 || n > mostSeats {
		t.Errorf("memory answers %d requests of a user at a time", n)
	}
	if refused.Load() == 0 || f.metric("apiserver_flowcontrol_rejected_requests_total") == 0 {
		t.Error("no request is refused, or it is not counted")
	}
	answered, queued := make(chan struct{}), waiting()
	admitted := flood - refused.Load()
	asking.Go(func() {
		defer close(answered)
		f.until("the other user is answered", func() bool { return f.send(f.bob, one).Code == http.StatusOK })
	})
	f.until("the other user waits, or is answered", func() bool {
		select {
		case <-answered:
			return true
		default:
			return waiting() > queued
		}
	})
	before := int64(0)
	for done := false; !done; {
		select {
		case <-answered:
			done = true
		case *f.released.Load() <- struct{}{}:
			before++
		}
	}
	t.Logf("%d of %d requests were answered before", before, admitted)
	if before >= admitted {
		t.Error("the other user is answered last")
	}
	release()
}

// A list that has waited for its seats is refused if it was allowed before that alone, as by the server.
func TestRevokedWhileWaiting(t *testing.T) {
	f := newFairRig(t)
	begun := f.block()
	var asking sync.WaitGroup
	defer asking.Wait()
	release := sync.OnceFunc(func() { close(*f.released.Load()) })
	defer release()
	waiting := func() int64 { return int64(f.metric("apiserver_flowcontrol_current_inqueue_requests")) }
	const crowd = 2 * mostSeats
	var ended atomic.Int64
	for range crowd {
		asking.Go(func() { f.send(f.ada, one); ended.Add(1) })
	}
	f.until("all seats are occupied", func() bool { return waiting() > 0 && begun.Load()+waiting()+ended.Load() >= crowd })
	queued, answered := waiting(), make(chan *httptest.ResponseRecorder, 1)
	asking.Go(func() { answered <- f.send(f.bob, configMaps+"?resourceVersion=0") })
	f.until("the other user waits", func() bool { return waiting() > queued })
	f.revoke("bob", "")
	q := f.query(t.Context(), f.bob, configMaps)
	caller, err := f.proxy.access.Caller(q)
	f.must(err)
	f.until("the proxy follows that", func() bool {
		decision, err := f.proxy.access.Decide(t.Context(), caller, authorizer.AttributesRecord{User: caller, Verb: "list",
			APIVersion: "v1", Resource: "configmaps", ResourceRequest: true, Path: configMaps})
		return err == nil && !decision.Allowed
	})
	time.Sleep(decidedBefore) // the list has waited for longer
	release()
	if w := await.Receive(t, "the other user is answered", answered); w.Code != http.StatusForbidden {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// Requests that wait for the server or for their clients occupy no seats.
func TestSeatsAreLeft(t *testing.T) {
	t.Parallel()
	const crowd = mostSeats + 8
	f := newFairRig(t)
	var reading atomic.Int64 // requests of ada that memory answers
	next := f.proxy.reads
	f.proxy.reads = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, _ := request.UserFrom(q.Context()); strings.HasSuffix(user.GetName(), ":ada") {
			reading.Add(1)
			defer reading.Add(-1)
		}
		next.ServeHTTP(w, q)
	})
	for _, misbehave := range []struct {
		what, path string
		arrived    func() bool
	}{
		{"forwarded lists that the server does not answer", configMaps + "?fieldSelector=data.x%3D1&blocked",
			func() bool { return f.blocked.Load() == crowd }},
		{"forwarded watches", configMaps + "?watch=1&resourceVersion=0&fieldSelector=data.x%3D1&blocked",
			func() bool { return f.blocked.Load() == crowd }},
		{"consistent reads that the server does not confirm", configMaps,
			func() bool { return reading.Load() == crowd && f.blocked.Load() > 0 }},
		{"lists that nobody reads", configMaps + "?resourceVersion=0", nil},
		{"watches that nobody reads", configMaps + "?watch=1&resourceVersion=0", nil},
	} {
		t.Run(misbehave.what, func(t *testing.T) {
			status, closed := make(chan int, crowd), make(chan struct{})
			released := make(chan struct{})
			f.released.Store(&released)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var asking sync.WaitGroup
			f.silent.Store(misbehave.path == configMaps)
			for range crowd {
				asking.Go(func() {
					f.proxy.ServeHTTP(&unread{http.Header{}, status, closed}, f.query(ctx, f.ada, misbehave.path))
				})
			}
			if misbehave.arrived != nil {
				await.True(t, "all requests are on their way to the server", misbehave.arrived)
			} else {
				for range crowd {
					if code := await.Receive(t, "an answer begins", status); code != http.StatusOK {
						t.Errorf("%d", code)
					}
				}
			}
			if w := f.send(f.bob, one); w.Code != http.StatusOK {
				t.Errorf("the other user: %d %s", w.Code, w.Body)
			}
			f.silent.Store(false)
			close(closed)
			close(released)
			cancel()
			asking.Wait()
		})
	}
}

// A watch over a WebSocket that memory leaves to the server hijacks its connection.
func TestUpgradeThatIsForwarded(t *testing.T) {
	t.Parallel()
	f := newFairRig(t)
	config, err := websocket.NewConfig(strings.Replace(f.replicas[0].serve.URL, "http://", "ws://", 1)+
		configMaps+"?watch=1&resourceVersion=0", "http://localhost")
	f.must(err)
	config.Header.Set("Authorization", "Bearer "+f.ada)
	config.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
	connection, err := websocket.DialConfig(config)
	f.must(err)
	defer connection.Close()
	var message []byte
	f.must(websocket.Message.Receive(connection, &message))
	if len(message) == 0 {
		t.Error("the first event is empty")
	}
}

// written waits until each namespace has what the server itself writes there, and returns how many config maps there
// are.
func (f *fairRig) written() (n int64) {
	f.Helper()
	f.until("each namespace has its authority", func() bool {
		namespaces, err := f.admin.CoreV1().Namespaces().List(f.Context(), metav1.ListOptions{})
		f.must(err)
		maps, err := f.admin.CoreV1().ConfigMaps("").List(f.Context(), metav1.ListOptions{})
		f.must(err)
		n = int64(len(maps.Items))
		authorities := slices.DeleteFunc(maps.Items, func(m corev1.ConfigMap) bool { return m.Name != authority })
		return len(authorities) == len(namespaces.Items)
	})
	return n
}

// The objects that memory looks at for a list are those of its namespace, of the view of its user, and of its page.
func TestCostOfLists(t *testing.T) {
	t.Parallel()
	f := newFairRig(t)
	eve := f.user("eve")
	f.grant("eve", "a")
	f.sees(eve, 1)
	looks := make(chan int64, 1)
	next := f.proxy.reads
	f.proxy.reads = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		of, err := cost(q)
		f.must(err)
		looks <- of.ObjectCount
		next.ServeHTTP(w, q)
	})
	of := func(token, path string) int64 {
		t.Helper()
		var n int64
		await.State(t, path+" is answered from memory", func() (bool, string) { // reviews fail on a machine that is busy
			w := f.send(token, path)
			select {
			case n = <-looks:
				return true, ""
			default:
			}
			return false, fmt.Sprint(w.Code, w.Body)
		})
		return n
	}
	written := f.written()
	f.until("memory has what is written", func() bool { return of(f.bob, configMaps+"?resourceVersion=0") == written })
	all, one := of(f.bob, configMaps+"?resourceVersion=0"), of(f.bob, "/api/v1/namespaces/a/configmaps?resourceVersion=0")
	if all < 12 || one < 3 || one > 4 {
		t.Errorf("lists of everything and of a namespace look at %d and %d objects", all, one)
	}
	aHalf := url.QueryEscape("shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')")
	for path, want := range map[string]int64{
		"?fieldSelector=metadata.name%3Dm0":                                            all,
		"?fieldSelector=metadata.namespace%3Da":                                        one,
		"?fieldSelector=metadata.name%3Dm0,metadata.namespace%3Da":                     1,
		"?resourceVersion=0&fieldSelector=metadata.name%3Dm0&limit=17":                 all,
		"?resourceVersion=0&fieldSelector=metadata.name%3Dm0,metadata.namespace%3DA_B": 0,
	} {
		if got := of(f.bob, configMaps+path); got != want {
			t.Errorf("%q looks at %d objects, want %d", path, got, want)
		}
	}
	if got := of(f.bob, "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3D"); got != 0 {
		t.Errorf("a list by no name looks at %d objects", got)
	}
	if got := of(f.bob, "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dm0"); got != 1 {
		t.Errorf("a list of one object looks at %d objects", got)
	}
	for path, want := range map[string]int64{
		"?resourceVersion=0": one, "": one, "?limit=2": 2, "?limit=2&labelSelector=l%3D0": one,
		"?watch=1&timeoutSeconds=1&resourceVersion=0":         one,
		"?watch=1&timeoutSeconds=1&resourceVersion=0&limit=1": one, "?resourceVersion=0&limit=1": one,
		"?resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1": one, "?limit=1&shardSelector=" + aHalf: one,
		"?fieldSelector=metadata.name%3Dm0": one, "?fieldSelector=metadata.name%3Dm0,metadata.namespace%3Da": 1,
		"?watch=1&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name%3Dm0": one,
	} {
		if got := of(eve, configMaps+path); got != want {
			t.Errorf("%q of a personal view looks at %d objects, want %d", path, got, want)
		}
	}
}
