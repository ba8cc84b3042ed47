package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

// A list whose client does not read ends with its request's deadline; a watch has none.
func TestStalledListsEnd(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	client, err := kubernetes.NewForConfig(srv.Config())
	if err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("default")
	create := func(name, data string) {
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
			Data: map[string]string{"a": data}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const objects, size = 40, 900_000 // more than sockets hold
	for i := range objects {
		create(fmt.Sprint("large-", i), strings.Repeat("a", size))
	}
	p, err := New(Config{Server: srv.Config(), OwnToken: "own"})
	if err != nil {
		t.Fatal(err)
	}
	p.requestTimeout = 300 * time.Millisecond
	go p.Run(t.Context())
	ended := make(chan struct{}, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		p.ServeHTTP(w, q)
		if q.URL.Query().Has("stalled") {
			ended <- struct{}{}
		}
	}))
	defer proxy.Close()
	list := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps", nil)
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "configmaps",
		Path: "/api/v1/configmaps"}
	await.State(t, "the cache is ready", func() (bool, string) {
		_, why := p.caches.ready(list, info)
		return why == "", string(why)
	})
	get := func(query string) net.Conn {
		c, err := net.Dial("tcp", proxy.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c,
			"GET /api/v1/configmaps?%s HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer own\r\nAccept: application/json\r\n\r\n",
			query)
		return c
	}
	watch := get("watch=1&resourceVersion=0&fieldSelector=metadata.name%3Devent")
	defer watch.Close()
	events := bufio.NewReader(watch)
	if status, err := events.ReadString('\n'); err != nil || !strings.Contains(status, " 200 ") {
		t.Fatal(status, err)
	}

	await.True(t, "a list begins before its deadline", func() bool { // at once, unless the machine is busy
		stalled := get("resourceVersion=0&stalled")
		defer stalled.Close()
		await.Receive(t, "the list of a client that does not read ends", ended)
		n, err := io.Copy(io.Discard, stalled)
		if n >= objects*size {
			t.Errorf("the client has %d bytes of a list of %d, %v", n, objects*size, err)
		}
		return n > 0
	})

	create("event", "after the lists' timeout")
	for line := ""; !strings.Contains(line, `"type":"ADDED"`); {
		if line, err = events.ReadString('\n'); err != nil {
			t.Fatalf("the watch has ended with the list: %v", err)
		}
	}
}
