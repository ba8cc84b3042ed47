package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// A server that does not know all rules of a user decides by more than roles. One that does not answer, or refuses to
// say it, may.
func TestAuthorizers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code       int
		incomplete bool
		counts     time.Duration
		beyond     bool
	}{
		{http.StatusCreated, false, knownFor, false}, {http.StatusCreated, true, knownFor, true},
		{http.StatusForbidden, false, unobservedFor, true}, {http.StatusNotFound, false, unobservedFor, true},
		{http.StatusInternalServerError, false, 0, true}, {http.StatusTooManyRequests, false, 0, true},
		{http.StatusServiceUnavailable, false, 0, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				_, _ = fmt.Fprintf(w, `{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","status":{"incomplete":%v}}`,
					c.incomplete)
			}))
			defer server.Close()
			client, err := authorizationclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
				ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
			if err != nil {
				t.Fatal(err)
			}
			p, err := newPermissions(client, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			a := newAuthorizers(client, p)
			found := 0
			p.found = func() { found++ }
			views := Reviews{p, a}
			if !views.BeyondRoles() {
				t.Error("it is known before the server has answered")
			}
			for range 2 {
				if counts := a.ask(t.Context()); counts != c.counts {
					t.Errorf("the answer counts for %v, want %v", counts, c.counts)
				}
			}
			if views.BeyondRoles() != c.beyond {
				t.Errorf("beyond roles: %v", views.BeyondRoles())
			}
			if want := map[bool]int{false: 1}[c.beyond]; found != want {
				t.Errorf("personal views are decided again %d times", found)
			}
		})
	}
}

// authorizersOf returns what is known of the authorizers of a server that was ready.
func authorizersOf(t *testing.T, server *httptest.Server) (*authorizers, *permissions) {
	t.Helper()
	client, err := authorizationclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	probe := newProbe(client.RESTClient())
	if err := probe.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := newPermissions(client, probe)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return newAuthorizers(client, p), p
}

// What a server has said counts until it refuses to say it, and is ready: one that starts refuses what it will answer.
func TestAuthorizersOfAServerThatStarts(t *testing.T) {
	t.Parallel()
	var refuses, starts atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.URL.Path != probePath && refuses.Load():
			w.WriteHeader(http.StatusForbidden)
		case q.URL.Path == probePath && starts.Load():
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(server.Close)
	a, _ := authorizersOf(t, server)
	if counts := a.ask(t.Context()); counts != knownFor || a.beyondRoles() {
		t.Fatalf("the answer counts for %v", counts)
	}
	refuses.Store(true)
	starts.Store(true)
	if counts := a.ask(t.Context()); counts != 0 || a.beyondRoles() {
		t.Errorf("a refusal of a server that starts counts for %v", counts)
	}
	starts.Store(false)
	if counts := a.ask(t.Context()); counts != unobservedFor || !a.beyondRoles() {
		t.Errorf("a refusal of a server that is ready counts for %v", counts)
	}
}

// That rules are incomplete counts until the server has said twice that they are complete, while it is ready. Personal
// views are decided again whenever that changes.
func TestRulesThatAreCompleteAgain(t *testing.T) {
	t.Parallel()
	var incomplete, starts atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if q.URL.Path == probePath && starts.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = fmt.Fprintf(w, `{"status":{"incomplete":%v}}`, incomplete.Load())
	}))
	t.Cleanup(server.Close)
	a, p := authorizersOf(t, server)
	found := 0
	p.found = func() { found++ }
	for i, c := range []struct {
		incomplete, starts bool
		counts             time.Duration
		beyond             bool
		found              int
	}{
		{counts: knownFor, found: 1}, {incomplete: true, starts: true, found: 1},
		{incomplete: true, counts: knownFor, beyond: true, found: 2}, {counts: unobservedFor, beyond: true, found: 2},
		{incomplete: true, counts: knownFor, beyond: true, found: 2}, {counts: unobservedFor, beyond: true, found: 2},
		{starts: true, beyond: true, found: 2}, {counts: knownFor, found: 3}, {counts: knownFor, found: 3},
	} {
		incomplete.Store(c.incomplete)
		starts.Store(c.starts)
		if counts := a.ask(t.Context()); counts != c.counts || a.beyondRoles() != c.beyond || found != c.found {
			t.Errorf("answer %d counts for %v, beyond roles: %v, decided again %d times", i, counts, a.beyondRoles(), found)
		}
	}
}

// Personal views are decided again as soon as the server has allowed anything for another reason than a role.
func TestFoundByADecision(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true,"reason":"a webhook"}}`)
	}))
	defer server.Close()
	client, err := authorizationclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPermissions(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	found := 0
	p.found = func() { found++ }
	for _, namespace := range []string{"a", "b"} {
		if _, _, err := p.allowed(t.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ada"}, Verb: "list",
			Namespace: namespace, APIVersion: "v1", Resource: "pods", ResourceRequest: true}); err != nil {
			t.Fatal(err)
		}
	}
	if found != 1 {
		t.Errorf("personal views are decided again %d times", found)
	}
}
