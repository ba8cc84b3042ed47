package forward

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
)

// Of one token, or of one address without any, a part of what is free is forwarded at a time, of requests and of
// streams, and of all tokens of one address that are not known half.
func TestForwardedInFlight(t *testing.T) {
	t.Parallel()
	var pending atomic.Int64
	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		pending.Add(1)
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
	f.inFlight.mostRequests, f.inFlight.mostStreams = 20, 6
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
		{"list", "ada", "192.0.2.1", 7}, {"watch", "ada", "192.0.2.1", 2}, {"list", "bob", "192.0.2.1", 2},
		{"list", "", "192.0.2.1", 1}, {"list", "eve", "192.0.2.1", 0}, {"list", "", "192.0.2.2", 3},
	} {
		for range c.most {
			sending.Go(func() {
				if w := send(c.verb, c.token, c.address); w.Code != http.StatusOK {
					t.Errorf("%v: %d", c, w.Code)
				}
			})
		}
		want += int64(c.most)
		await.True(t, "all are forwarded", func() bool { return pending.Load() == want })
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

// A gateway with a certificate has bounds of its own for each user whom it impersonates, and may.
func TestForwardedInFlightOfAGateway(t *testing.T) {
	t.Parallel()
	var pending atomic.Int64
	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost { // a review
			text, _ := io.ReadAll(q.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%v}}`,
				!strings.Contains(string(text), `"name":"admin"`))
			return
		}
		pending.Add(1)
		<-released
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	options := access.Options{Certificates: true}
	control, err := access.New(config, client, options)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(config, control, options, metrics.NewKubeRegistry())
	if err != nil {
		t.Fatal(err)
	}
	f.inFlight.mostRequests = 20
	send := func(as string) int {
		ctx := access.WithCertified(t.Context(), &user.DefaultInfo{Name: "gateway"})
		q := httptest.NewRequestWithContext(request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true,
			Verb: "list"}), http.MethodGet, "/", nil)
		if as != "" {
			q.Header.Set("Impersonate-User", as)
		}
		w := httptest.NewRecorder()
		f.ServeHTTP(w, q)
		return w.Code
	}
	if code := send("admin"); code != http.StatusForbidden {
		t.Errorf("whom it may not impersonate: %d", code)
	}
	var sending sync.WaitGroup
	want := int64(0)
	for _, c := range []struct {
		as   string
		most int
	}{{"ada", 7}, {"bob", 2}, {"", 1}} {
		for range c.most {
			sending.Go(func() {
				if code := send(c.as); code != http.StatusOK {
					t.Errorf("as %q: %d", c.as, code)
				}
			})
			want++
			await.True(t, "it is forwarded", func() bool { return pending.Load() == want })
		}
		if code := send(c.as); code != http.StatusTooManyRequests {
			t.Errorf("as %q: one more is answered %d", c.as, code)
		}
	}
	close(released)
	sending.Wait()
	if n := len(f.inFlight.flows); n != 0 {
		t.Errorf("%d flows are left", n)
	}
}

// A client that is alone may have very many streams, and leaves room for many others with few each.
func TestForwardedOfALargeClient(t *testing.T) {
	t.Parallel()
	f := newInFlight(metrics.NewKubeRegistry())
	of := func(name string) flowOf { return flowOf{share{name, name}, true} }
	count := func(name string) (n int) {
		for f.begin(of(name)) {
			n++
		}
		return n
	}
	first := count("agents")
	if first != mostStreams/3 {
		t.Errorf("%d streams of a client that is alone", first)
	}
	second := count("large")
	if second != (mostStreams-first)/3 {
		t.Errorf("%d streams of a second one", second)
	}
	const others, each = 1000, 10
	for i := range others {
		for range each {
			if o := of(fmt.Sprint("other-", i)); !f.begin(o) {
				t.Fatalf("%v is refused", o)
			}
		}
	}
	if f.begin(of("agents")) {
		t.Error("one more is not refused")
	}
	if !f.begin(flowOf{of("agents").share, false}) {
		t.Error("a request is refused")
	}
	for range second {
		f.end(of("large"))
	}
	for i := range others {
		for range each {
			f.end(of(fmt.Sprint("other-", i)))
		}
	}
	f.end(of("agents"))
	if !f.begin(of("agents")) {
		t.Error("a client that is alone again is refused")
	}
}

// Who makes up flows has half of all, and leaves as much to others. One of the flows leaves a part to the others.
func TestForwardedOfManyFlows(t *testing.T) {
	t.Parallel()
	f := newInFlight(metrics.NewKubeRegistry())
	of := func(owner string, i int) flowOf { return flowOf{share{owner, fmt.Sprint(owner, i)}, false} }
	greedy := 0
	for f.begin(of("owner", 0)) {
		greedy++
	}
	if two := []bool{f.begin(of("owner", 1)), f.begin(of("owner", 1))}; !two[0] || !two[1] {
		t.Error("another flow of the owner is refused beside one that has as many as it may")
	}
	made := 0
	for i := 2; f.begin(of("owner", i)); i++ {
		made++
	}
	if sum := greedy + 2 + made; sum != mostRequests/2 || greedy != mostRequests/3 {
		t.Errorf("%d of the owner, %d of its first flow", sum, greedy)
	}
	for i := range mostRequests / 4 {
		if !f.begin(of("others", i)) {
			t.Fatalf("flow %d of somebody else is refused", i)
		}
	}
	if !f.begin(of("last", 0)) {
		t.Error("a third owner is refused")
	}
}
