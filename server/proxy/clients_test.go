package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
)

// A client without any right can send headers of a megabyte. What is counted by user agent does not keep them.
func TestClientsKeepNoHeaders(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	c := &clients{all: map[string]*clientUse{}}
	before := heap()
	for i := range 100 {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		q.Header.Set("User-Agent", string(rune('a'+i%26))+strings.Repeat(string(rune('a'+i/26)), 900_000))
		c.of(q, true)
	}
	if after := heap(); len(c.all) != 100 || after > before+45<<20 { // half of what the headers have
		t.Errorf("%d clients, %d bytes more", len(c.all), after-before)
	}
	runtime.KeepAlive(c)
}

// Clients that are not authenticated cannot use up the user agents that are counted each by itself.
func TestClientsAreAuthenticated(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/tokenreviews") {
			review(t, w, q)
		}
	}))
	defer server.Close()
	p, err := New(Config{Server: &rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}})
	if err != nil {
		t.Fatal(err)
	}
	send := func(agent, method, token string) {
		q := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/pods", nil)
		q.Header.Set("User-Agent", agent)
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		p.ServeHTTP(httptest.NewRecorder(), q)
	}
	const others = 20 // of each kind, none of which is counted by itself
	for i := range others {
		send(fmt.Sprint("made-up-", i), http.MethodGet, "")
		send(fmt.Sprint("another-", i), http.MethodPost, "wrong")
	}
	send("kubelet/v1", http.MethodGet, "token")
	send("kubelet/v1", http.MethodPost, "token")
	known := map[string]ClientStatus{}
	for _, c := range p.clients.heaviest() {
		known[c.UserAgent] = c
	}
	if len(known) != 2 || known["kubelet/v1"].Requests != 2 || known["kubelet/v1"].Forwarded != 2 ||
		known[unknownClients].Requests != 2*others || known[unknownClients].Forwarded != 2*others {
		t.Errorf("%+v", known)
	}
}

// review answers a TokenReview: the token is ada's.
func review(t *testing.T, w http.ResponseWriter, q *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
		t.Error(err)
	}
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
		User: authenticationv1.UserInfo{Username: "ada"}}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(&review)
}
