package controlplane_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A watch from a revision that etcd lost by a restore ends with an event 410, from the read path and
// from k8s.io/apiserver: every client lists then.
func TestWatchFromARevisionLostByRestore(t *testing.T) {
	t.Parallel()
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
	lost := must(c.typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}))(t).ResourceVersion
	server.stop()

	server = start(t, controlplane.Options{DataDir: copied})
	for _, accept := range []string{asJSON, "application/json;pretty=1"} { // k8s.io/apiserver answers the second one
		for _, more := range []string{"", "&labelSelector=a%3Db",
			"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
			path := "/api/v1/pods?watch=1&timeoutSeconds=60&resourceVersion=" + url.QueryEscape(lost) + more
			if got := firstEvent(t, server.RESTConfig(), path, accept); got.Type != "ERROR" ||
				got.Object.Code != http.StatusGone || got.Object.Reason != metav1.StatusReasonExpired {
				t.Errorf("GET %s as %s: %s %d %s: %s", path, accept, got.Type, got.Object.Code, got.Object.Reason,
					got.Object.Message)
			}
		}
	}
}

// event is an event of a watch as JSON; its object is decoded as the Status of an error.
type event struct {
	Type   string
	Object struct {
		metav1.Status
		Metadata metav1.ObjectMeta
	}
}

// firstEvent returns the first event of a watch, whose response must be 200.
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
