package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/testserver"
)

// Browsers accept compressed responses to every request. The messages of a WebSocket are not compressed, as in
// kube-apiserver.
func TestMessagesAreNotCompressed(t *testing.T) {
	t.Parallel()
	srv := testserver.New(t)
	p, err := New(Config{Server: srv.Config(), OwnToken: "own"})
	if err != nil {
		t.Fatal(err)
	}
	go p.Run(t.Context())
	proxy := httptest.NewServer(p)
	defer proxy.Close()
	list := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces", nil)
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "namespaces",
		Path: "/api/v1/namespaces"}
	await.State(t, "the cache is ready", func() (bool, string) {
		_, why := p.caches.ready(list, info)
		return why == "", string(why)
	})
	query := url.Values{"watch": {"1"}, "sendInitialEvents": {"true"}, "allowWatchBookmarks": {"true"},
		"resourceVersionMatch": {"NotOlderThan"}}
	ws, err := websocket.NewConfig(strings.Replace(proxy.URL, "http://", "ws://", 1)+"/api/v1/namespaces?"+query.Encode(),
		"http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	ws.Header.Set("Authorization", "Bearer own")
	ws.Header.Set("Accept-Encoding", "gzip, deflate, br")
	connection, err := websocket.DialConfig(ws)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	for added := 0; ; added++ {
		var message []byte
		if err := websocket.Message.Receive(connection, &message); err != nil {
			t.Fatal(err)
		}
		var event struct{ Type string }
		if err := json.Unmarshal(message, &event); err != nil {
			t.Fatalf("%q: %v", message, err)
		}
		if event.Type == "BOOKMARK" {
			if added < 4 {
				t.Errorf("%d namespaces", added)
			}
			return
		}
	}
}
