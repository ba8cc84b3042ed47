package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
)

// The proxy's own paths are these, in exactly this form. Any other path is the server's, which decides about it.
func TestOwnPaths(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	p, err := New(Config{Server: &rest.Config{Host: server.URL}, Registry: metrics.NewKubeRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	for path, own := range map[string]bool{
		"/livez": true, "/readyz": true, "/readyz/ping": true, "/metrics": true, "/debug/pprof": true,
		"/debug/pprof/heap": true,
		"/keepwatch":        true, "/keepwatch/": true, "/keepwatch/status": true, "/keepwatch/events": true,
		"/keepwatch/page.js": true, "/keepwatch/page.css": true,
		"/keepwatch/simulation/advance": false, "/keepwatch/status/": false, "/keepwatch//status": false,
		"//keepwatch/status":    false,
		"/keepwatch/../metrics": false, "/healthz": false, "/api": false, "/apis/keepwatch": false,
		"/debug/api_priority_and_fairness": false,
	} {
		if got := p.endpoints.has(path); got != own {
			t.Errorf("%s is the proxy's: %t", path, got)
		}
	}
	// None but the health is shown to a caller without a token.
	for path := range p.endpoints.paths {
		answer := httptest.NewRecorder()
		p.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if want := http.StatusUnauthorized; p.endpoints.has(path) && !open(path) && answer.Code != want {
			t.Errorf("%s without a token: %d, want %d", path, answer.Code, want)
		}
	}
}

// The proxy's own token shows the page without a permission, and while the server does not answer. It shows nothing
// else.
func TestOwnersPage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	p, err := New(Config{Server: &rest.Config{Host: server.URL}, OwnToken: "own", Registry: metrics.NewKubeRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, token, as string
		shown           bool
	}{
		{"/keepwatch/status", "own", "", true},
		{"/keepwatch/", "own", "", true},
		{"/keepwatch/status", "own", "ada", false},
		{"/keepwatch/status", "other", "", false},
		{"/metrics", "own", "", false},
		{"/debug/pprof/heap", "own", "", false},
	} {
		q := httptest.NewRequest(http.MethodGet, c.path, nil)
		q.Header.Set("Authorization", "Bearer "+c.token)
		if c.as != "" {
			q.Header.Set("Impersonate-User", c.as)
		}
		answer := httptest.NewRecorder()
		p.ServeHTTP(answer, q)
		if got := answer.Code == http.StatusOK; got != c.shown {
			t.Errorf("%+v: status %d", c, answer.Code)
		}
	}
}
