package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/index"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// A resource that the server refuses to describe is left to it for longer than one of a server that is down or starts:
// the watches that are forwarded meanwhile end with the server's history. What the index on disk has of it is kept for
// that.
func TestUnansweredResourcesAreTriedAgainSoon(t *testing.T) {
	answer := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, test := range map[string]struct {
		server   http.HandlerFunc
		soon     bool
		wasReady bool
	}{
		"cut": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true, false},
		"cut later": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(200)
		}, true, false},
		"starting": {answer(http.StatusServiceUnavailable), true, false},
		"failing":  {answer(http.StatusInternalServerError), true, false},
		"busy":     {answer(http.StatusTooManyRequests), true, false},
		"not there yet": {func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/readyz" {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusNotFound)
		}, true, true},
		"not there":   {answer(http.StatusNotFound), false, false},
		"not allowed": {answer(http.StatusForbidden), false, false},
		"nonsense":    {answer(http.StatusOK), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var begun atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if begun.Load() {
					test.server(w, q)
				} else if !test.wasReady {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			c, err := newCaches(&rest.Config{Host: server.URL}, cachesOptions{budget: readpath.NewBudget(1 << 20),
				metrics: watchcache.NewMetrics(metrics.NewKubeRegistry())})
			if err != nil {
				t.Fatal(err)
			}
			control, err := access.New(&rest.Config{Host: server.URL}, client, access.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c.probe = control.Probe
			if err := c.probe.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			begun.Store(true)
			file, err := index.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
			name := index.Name(configMaps, verbatim.Representation{Encoding: verbatim.JSON{}})
			if _, err := file.Restore("cluster"); err != nil {
				t.Fatal(err)
			}
			if err := file.Write(name, store.RecordsDelta{Reset: true, Revision: 7}); err != nil {
				t.Fatal(err)
			}
			c.index, c.running = index.New(file), t.Context()
			asked := time.Now()
			q := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil)
			c.ready(q, &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "configmaps"})
			c.active.Wait()
			until := c.all[configMaps].until
			if test.soon && time.Until(until) > unansweredFor || !test.soon && until.Sub(asked) < failedFor {
				t.Errorf("it is tried again after %v", until.Sub(asked))
			}
			if kept, err := file.Restore("cluster"); err != nil || (kept[name] != nil) != test.soon {
				t.Errorf("the index has %v, %v", kept, err)
			}
		})
	}
}

// A resource that is followed is left to the server when another server begins to answer for it: that one may show its
// callers less than the permissions of the cluster say. An answer that does not say so leaves it.
func TestFollowedResourceBecomesAggregated(t *testing.T) {
	var registered atomic.Value
	registered.Store(`{"kind":"APIService","spec":{}}`)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch {
		case q.URL.Path == "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com":
			asked.Add(1)
			_, _ = io.WriteString(w, registered.Load().(string))
		case q.URL.Path == "/apis/example.com/v1":
			_, _ = io.WriteString(w,
				`{"kind":"APIResourceList","resources":[{"name":"widgets","kind":"Widget","verbs":["get","list","watch"]}]}`)
		case q.URL.Query().Has("sendInitialEvents"):
			w.WriteHeader(http.StatusBadRequest) // it has no streaming lists
		case q.URL.Query().Has("watch"):
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done()
		default:
			_, _ = io.WriteString(w,
				`{"apiVersion":"example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"7"},"items":[]}`)
		}
	}))
	defer server.Close()
	c, err := newCaches(&rest.Config{Host: server.URL}, cachesOptions{budget: readpath.NewBudget(1 << 20),
		metrics: watchcache.NewMetrics(metrics.NewKubeRegistry())})
	if err != nil {
		t.Fatal(err)
	}
	c.belongsEvery = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer c.active.Wait()
	defer cancel()
	c.running = ctx
	q := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil)
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "example.com", APIVersion: "v1",
		Resource: "widgets"}
	c.ready(q, info)
	for _, answer := range []string{`{"kind":"APIService","spec":{}}`, "default backend"} {
		registered.Store(answer)
		before := asked.Load()
		await.True(t, "the server is asked again", func() bool { return asked.Load() > before+1 })
		if !c.follows(info) {
			t.Fatalf("it is no longer followed after %s", answer)
		}
	}
	registered.Store(`{"kind":"APIService","spec":{"service":{"name":"another","namespace":"server"}}}`)
	await.True(t, "it is left to the server", func() bool { return !c.follows(info) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.all[resourceOf(info)].until); left < failedFor/2 {
		t.Errorf("it is followed again in %v", left)
	}
}

// What the server has said of a resource is asked again after each list but the first, since its definition may have
// changed. If it is another, the resource is followed anew, and memory warns and names kinds as the server does now.
func TestFollowedResourceIsDescribedAgain(t *testing.T) {
	var kind atomic.Value
	kind.Store("WidgetSet")
	redefined := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch {
		case q.URL.Path == "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com":
			_, _ = io.WriteString(w, `{"kind":"APIService","spec":{}}`)
		case q.URL.Path == "/apis/example.com/v1":
			_, _ = io.WriteString(w,
				`{"kind":"APIResourceList","resources":[{"name":"widgets","kind":"Widget","verbs":["get","list","watch"]}]}`)
		case q.URL.Query().Has("sendInitialEvents"):
			w.WriteHeader(http.StatusBadRequest) // it has no streaming lists
		case q.URL.Query().Has("watch"):
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			if q.URL.Query().Get("resourceVersion") == "7" {
				select {
				case <-redefined:
					_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",`+
						`"reason":"Expired","code":410}}`)
					return
				case <-q.Context().Done():
				}
			}
			<-q.Context().Done()
		default:
			revision := "7"
			if kind.Load() == "WidgetList" {
				w.Header().Set("Warning", `299 - "widgets are deprecated"`)
				revision = "8"
			}
			fmt.Fprintf(w, `{"apiVersion":"example.com/v1","kind":%q,"metadata":{"resourceVersion":%q},"items":[]}`,
				kind.Load(), revision)
		}
	}))
	defer server.Close()
	c, err := newCaches(&rest.Config{Host: server.URL}, cachesOptions{budget: readpath.NewBudget(1 << 20),
		metrics: watchcache.NewMetrics(metrics.NewKubeRegistry())})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer c.active.Wait()
	defer cancel()
	c.running = ctx
	q := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil)
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: "example.com", APIVersion: "v1",
		Resource: "widgets"}
	described := func() discovery.Resource {
		if f, _ := c.ready(q, info); f == nil {
			return discovery.Resource{}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if about := c.all[resourceOf(info)].about; about != nil {
			return *about
		}
		return discovery.Resource{}
	}
	await.True(t, "it is followed", func() bool { return described().ListKind == "WidgetSet" })
	kind.Store("WidgetList")
	close(redefined)
	await.State(t, "it is followed as it is now", func() (bool, string) {
		if !c.returns(info) {
			t.Error("it does not return")
		}
		now := described()
		return now.ListKind == "WidgetList" && now.Warning == "widgets are deprecated", now.ListKind
	})
}

// What was given up for want of memory, and what the server has described and does not describe now, will be followed
// again. What the server has no longer, or refuses to the proxy, will not: it words its answer itself.
func TestWhatReturns(t *testing.T) {
	unanswered := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for name, c := range map[string]struct {
		about, described bool
		cause            error
		want             bool
	}{
		"no memory":      {true, true, outOfMemory{1}, true},
		"deleted":        {true, true, &keepwatch.Failure{Kind: keepwatch.Absent}, false},
		"redescribed":    {true, true, discovery.ErrRedescribed, true},
		"refused":        {true, true, &keepwatch.Failure{Kind: keepwatch.Forbidden}, false},
		"server is down": {false, true, unanswered, true},
		"never known":    {false, false, unanswered, false},
		"gone meanwhile": {false, true, discovery.Refusal{Code: http.StatusNotFound}, false},
	} {
		info := &request.RequestInfo{APIVersion: "v1", Resource: "pods"}
		e := &entry{described: c.described}
		if c.about {
			e.about = &discovery.Resource{}
		}
		all := &caches{all: map[schema.GroupVersionResource]*entry{resourceOf(info): e}}
		if !all.returns(info) {
			t.Errorf("%s: not while it is followed", name)
		}
		all.fail(e, c.cause)
		if got := all.returns(info); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
