package differential

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

// The library answers some wrong requests of clients with 500. kube-apiserver does so too,
// with the same message: a client cannot distinguish the servers by them.
func TestErrorsOfTheLibrary(t *testing.T) {
	const apply = http.MethodPatch
	unknown := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"unknown":{"x":1}}`
	typed := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":1}}`
	const one, all = "/api/v1/namespaces/default/configmaps/a", "/api/v1/namespaces/default/configmaps"
	requests := map[string]struct {
		method, path, body string
		code               int32
	}{
		"apply of an unknown field": {apply, one + "?fieldManager=m", unknown, http.StatusInternalServerError},
		"apply of an unknown field, strict": {apply, one + "?fieldManager=m&fieldValidation=Strict", unknown,
			http.StatusInternalServerError},
		"apply of an unknown field, ignoring": {apply, one + "?fieldManager=m&fieldValidation=Ignore", unknown,
			http.StatusInternalServerError},
		"apply of another type": {apply, one + "?fieldManager=m", typed, http.StatusInternalServerError},
		"watch at a revision that is none": {http.MethodGet, all + "?watch=1&resourceVersion=a", "",
			http.StatusInternalServerError},
		"list at a revision that is none": {http.MethodGet, all + "?resourceVersion=a", "", http.StatusBadRequest},
		"get at a revision that is none": {http.MethodGet, one + "?resourceVersion=a", "",
			http.StatusInternalServerError},
	}
	ask := func(config *rest.Config, method, path, body string) (status metav1.Status) {
		t.Helper()
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		defer client.CloseIdleConnections()
		q, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", "application/json")
		if body != "" {
			q.Header.Set("Content-Type", "application/apply-patch+yaml")
		}
		answer, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
			t.Fatal(err)
		}
		if status.Kind != "Status" || int(status.Code) != answer.StatusCode {
			t.Errorf("%s %s: %s with %+v", method, path, answer.Status, status)
		}
		return status
	}
	theirs := peer.Kubernetes(t)
	for name, ours := range map[string]*peer.Server{"readpath": peer.Serve(t), "upstream": peer.Serve(t,
		"--storage=upstream")} {
		for what, q := range requests {
			want, got := ask(theirs.Config(), q.method, q.path, q.body), ask(ours.Config(), q.method, q.path, q.body)
			if want.Code != q.code {
				t.Errorf("%s: kube-apiserver answers %d %s %q, want %d", what, want.Code, want.Reason, want.Message, q.code)
			}
			if got.Code != want.Code || got.Reason != want.Reason || got.Message != want.Message {
				t.Errorf("%s, by %s: %d %s %q, kube-apiserver: %d %s %q", what, name, got.Code, got.Reason, got.Message, want.Code,
					want.Reason, want.Message)
			}
		}
	}
}
