package forward

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
)

// Of one token, or of one address without any, few requests are forwarded at a time, and few streams; others have
// bounds of their own.
func TestForwardedInFlight(t *testing.T) {
	t.Parallel()
	var held atomic.Int64
	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		held.Add(1)
		<-released
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	control, err := access.New(config, client, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(config, control, access.Options{}, metrics.NewKubeRegistry())
	if err != nil {
		t.Fatal(err)
	}
	f.inFlight.mostRequests, f.inFlight.mostStreams = 2, 3
	send := func(verb, token, address string) *httptest.ResponseRecorder {
		q := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(),
			&request.RequestInfo{IsResourceRequest: true, Verb: verb}), http.MethodGet, "/", nil)
		q.RemoteAddr = address + ":1"
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		f.ServeHTTP(w, q)
		return w
	}
	var sending sync.WaitGroup
	want := int64(0)
	for _, c := range []struct {
		verb, token, address string
		most                 int
	}{
		{"list", "ada", "192.0.2.1", 2}, {"watch", "ada", "192.0.2.1", 3}, {"list", "bob", "192.0.2.1", 2},
		{"list", "", "192.0.2.1", 2}, {"list", "", "192.0.2.2", 2},
	} {
		for range c.most {
			sending.Go(func() {
				if w := send(c.verb, c.token, c.address); w.Code != http.StatusOK {
					t.Errorf("%v: %d", c, w.Code)
				}
			})
		}
		want += int64(c.most)
		await.True(t, "all are forwarded", func() bool { return held.Load() == want })
		if w := send(c.verb, c.token, c.address); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("%v: one more is answered %d", c, w.Code)
		}
	}
	close(released)
	sending.Wait()
	if n := len(f.inFlight.flows); n != 0 {
		t.Errorf("%d flows are left", n)
	}
}
