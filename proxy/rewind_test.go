package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/testserver"
)

// rewindRig is a proxy in front of a test server.
type rewindRig struct {
	*testing.T
	server *testserver.Server
	maps   corev1client.ConfigMapInterface
	proxy  *Proxy
	serve  *httptest.Server
}

func newRewindRig(t *testing.T, edit func(*Config)) *rewindRig {
	r := &rewindRig{T: t, server: testserver.New(t)}
	client, err := kubernetes.NewForConfig(r.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	r.maps = client.CoreV1().ConfigMaps("default")
	config := Config{Server: r.server.Config(), OwnToken: "own"}
	edit(&config)
	if r.proxy, err = New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.proxy.Run(ctx) }()
	r.serve = httptest.NewServer(r.proxy)
	t.Cleanup(func() {
		cancel()
		r.serve.CloseClientConnections()
		r.serve.Close()
		<-ended
	})
	return r
}

func (r *rewindRig) write(name, text string) {
	r.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": text}}
	if _, err := r.maps.Update(r.Context(), m, metav1.UpdateOptions{}); err != nil {
		if _, err = r.maps.Create(r.Context(), m, metav1.CreateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *rewindRig) cached() bool {
	q := httptest.NewRequestWithContext(r.Context(), http.MethodGet, "/api/v1/configmaps", nil)
	_, why := r.proxy.caches.ready(q, &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "configmaps", Path: q.URL.Path})
	return why == ""
}

func (r *rewindRig) get(ctx context.Context, path string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.serve.URL+path, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer own")
	q.Header.Set("Accept", "application/json")
	return r.serve.Client().Do(q)
}

// The server is restored from a backup while clients watch: each of them receives 410, lists, and has the server's state. Nothing
// of the undone history is answered from memory any more, and no undone revision is waited for. It takes half a minute: for so long a server
// below the proxy's revision counts as one that is behind.
func TestRewind(t *testing.T) {
	const crowd = 20
	r := newRewindRig(t, func(c *Config) { c.SmallCollection = -1 })
	for i := range 10 {
		r.write(fmt.Sprint("map-", i), "before")
	}
	waitUntil(t, "config maps are answered from memory", r.cached)
	var all []*witness
	for range crowd {
		w := newWitness(r.get, "/api/v1/configmaps", "default")
		defer w.follow(t.Context())()
		all = append(all, w)
	}
	backup, err := r.maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	to, err := keepwatch.ParseRevision(backup.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.write(fmt.Sprint("undone-", i), "")
		r.write(fmt.Sprint("map-", i), "undone")
	}
	if err := r.maps.Delete(t.Context(), "map-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.arrive(all)
	undone := r.newest()
	r.server.Rewind(to)
	for i := range 5 { // fewer than were undone
		r.write(fmt.Sprint("map-", i), "after")
	}
	r.arrive(all)
	response, err := r.get(t.Context(), "/api/v1/configmaps?resourceVersion="+undone)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("a list at an undone revision: %s", response.Status)
	}
	for _, w := range all {
		if w.listed < 2 || w.listed > 3 {
			t.Errorf("a client has listed %d times", w.listed)
		}
	}
}

func (r *rewindRig) newest() string {
	r.Helper()
	list, err := r.maps.List(r.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		r.Fatal(err)
	}
	return list.ResourceVersion
}

// arrive waits until all clients have the server's state.
func (r *rewindRig) arrive(all []*witness) {
	r.Helper()
	want := statesOf(r.T, r.maps)
	for _, w := range all {
		waitUntil(r.T, "a client has the server's state", func() bool { return w.has(want) })
	}
}
