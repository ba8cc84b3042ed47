package controlplane_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/controlplane"
)

// A watch from a revision that a restored etcd has not reached ends with 410 in its stream,
// whoever answers: every client lists then.
func TestWatchOfARevisionThatARestoreUndid(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	server := start(t, controlplane.Options{DataDir: dir})
	newNamespace(t, connect(t, server.RESTConfig()))
	server.stop()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	server = start(t, controlplane.Options{DataDir: dir})
	c := connect(t, server.RESTConfig())
	for range 20 {
		newNamespace(t, c)
	}
	undone := must(c.typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}))(t).ResourceVersion
	server.stop()

	server = start(t, controlplane.Options{DataDir: copied})
	for _, accept := range []string{asJSON, "application/json;pretty=1"} { // of which the second is the library's
		for _, more := range []string{"", "&labelSelector=a%3Db", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
			path := "/api/v1/pods?watch=1&timeoutSeconds=60&resourceVersion=" + url.QueryEscape(undone) + more
			if got := firstEvent(t, server.RESTConfig(), path, accept); got.Type != "ERROR" || got.Object.Code != http.StatusGone || got.Object.Reason != metav1.StatusReasonExpired {
				t.Errorf("GET %s as %s: %s %d %s: %s", path, accept, got.Type, got.Object.Code, got.Object.Reason, got.Object.Message)
			}
		}
	}
}

// event is a watch's event as JSON; the object is read as the Status of an error.
type event struct {
	Type   string
	Object struct {
		metav1.Status
		Metadata metav1.ObjectMeta
	}
}

// firstEvent is the first event of a watch, which is answered 200.
func firstEvent(t *testing.T, config *rest.Config, path, accept string) (e event) {
	t.Helper()
	client := must(rest.HTTPClientFor(config))(t)
	q := must(http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil))(t)
	q.Header.Set("Accept", accept)
	answer := must(client.Do(q))(t)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", path, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(&e); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return e
}
