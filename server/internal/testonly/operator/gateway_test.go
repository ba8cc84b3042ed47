package operator_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// gateway is a proxy in front of the tests' server. It records patches and their answers, and
// drops those that a test selects.
type gateway struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string][]responseBody // by the object's name
	// drop is called for each patch before it is forwarded, and again before its answer is.
	// If it returns true, the request or the answer is dropped.
	drop func(answered bool) bool
}

type responseBody struct {
	at   time.Time
	code int
}

var errDropped = errors.New("dropped by the test")

func newGateway(tb testing.TB) *gateway {
	tb.Helper()
	to, err := url.Parse(api.Host)
	if err != nil {
		tb.Fatal(err)
	}
	transport, err := rest.TransportFor(api)
	if err != nil {
		tb.Fatal(err)
	}
	g := &gateway{answers: map[string][]responseBody{}, drop: func(bool) bool { return false }}
	g.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:      droppingTransport{g, transport},
		ModifyResponse: g.answered,
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) },
		FlushInterval:  -1,
	})
	tb.Cleanup(g.Close)
	return g
}

// config returns a client configuration for the gateway.
func (g *gateway) config() *rest.Config { return &rest.Config{Host: g.URL} }

// droppingTransport forwards the requests that drop does not select.
type droppingTransport struct {
	*gateway
	http.RoundTripper
}

func (p droppingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && p.drops(false) {
		return nil, errDropped
	}
	return p.RoundTripper.RoundTrip(r)
}

func (g *gateway) drops(answered bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drop(answered)
}

func (g *gateway) answered(r *http.Response) error {
	if r.Request.Method != http.MethodPatch {
		return nil
	}
	path := strings.Split(strings.TrimSuffix(r.Request.URL.Path, "/status"), "/")
	name := path[len(path)-1]
	g.mu.Lock()
	g.answers[name] = append(g.answers[name], responseBody{time.Now(), r.StatusCode})
	g.mu.Unlock()
	if g.drops(true) {
		r.Body.Close()
		return errDropped
	}
	return nil
}

// answersTo returns the times at which patches of an object were answered with a code.
func (g *gateway) answersTo(name string, code int) (at []time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.answers[name] {
		if a.code == code {
			at = append(at, a.at)
		}
	}
	return at
}

// setDrop replaces drop.
func (g *gateway) setDrop(f func(answered bool) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop = f
}
