package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// A resource that the server refuses to describe is left to it for longer than one of a server that is down or starts: the
// watches that are forwarded meanwhile end with the server's history. What the index on disk has of it is kept for that.
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
			if q.URL.Path == probePath {
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
			server := httptest.NewServer(test.server)
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			c, err := newCaches(&rest.Config{Host: server.URL}, readpath.NewBudget(1<<20), watchcache.NewMetrics(metrics.NewKubeRegistry()), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c.probe = newProbe(client.Discovery().RESTClient())
			c.probe.wasReady.Store(test.wasReady)
			state, err := OpenState(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer state.Close()
			configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
			name := followedName(configMaps, representation{encoding: jsonEncoding{}})
			if _, err := state.restore("cluster"); err != nil {
				t.Fatal(err)
			}
			if err := state.write(name, store.RecordsDelta{Reset: true, Revision: 7}); err != nil {
				t.Fatal(err)
			}
			c.index, c.running = newIndex(state), t.Context()
			begun := time.Now()
			q := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil)
			c.ready(q, &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "configmaps"})
			c.active.Wait()
			until := c.all[configMaps].until
			if test.soon && time.Until(until) > unansweredFor || !test.soon && until.Sub(begun) < failedFor {
				t.Errorf("it is tried again after %v", until.Sub(begun))
			}
			if kept, err := state.restore("cluster"); err != nil || (kept[name] != nil) != test.soon {
				t.Errorf("the index has %v, %v", kept, err)
			}
		})
	}
}
