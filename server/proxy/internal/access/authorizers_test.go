package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// A server that does not know all rules of a user decides by more than roles. Until it has answered, it may.
func TestAuthorizers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code       int
		incomplete bool
		answered   bool
		beyond     bool
	}{
		{http.StatusCreated, false, true, false}, {http.StatusCreated, true, true, true},
		{http.StatusForbidden, false, true, false}, {http.StatusNotFound, false, true, false},
		{http.StatusInternalServerError, false, false, true}, {http.StatusTooManyRequests, false, false, true},
		{http.StatusServiceUnavailable, false, false, true},
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
			a.found = func() { found++ }
			views := Reviews{p, a}
			if !views.BeyondRoles() {
				t.Error("it is known before the server has answered")
			}
			for range 2 {
				if answered := a.ask(t.Context()); answered != c.answered {
					t.Errorf("answered: %v", answered)
				}
			}
			if views.BeyondRoles() != c.beyond {
				t.Errorf("beyond roles: %v", views.BeyondRoles())
			}
			if want := map[bool]int{true: 1}[c.incomplete]; found != want {
				t.Errorf("personal views are decided again %d times", found)
			}
		})
	}
}
