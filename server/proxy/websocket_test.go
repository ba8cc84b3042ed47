package proxy

import (
	"encoding/json"
	"net"
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

// A watch over a WebSocket that the proxy ends is over, also if its client reads nothing while something is sent to it.
func TestSocketsOfClientsThatDoNotReadEnd(t *testing.T) {
	t.Parallel()
	client, served := net.Pipe() // which buffers nothing
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	proxy := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		defer close(ended)
		serveSocket(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			close(begun)
			<-end
		}), w, q)
	})}
	listener := pipeListener{make(chan net.Conn, 1), make(chan struct{})}
	listener.connections <- served
	go func() { _ = proxy.Serve(listener) }()
	defer proxy.Close()
	ws, err := websocket.NewConfig("ws://proxy/", "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	connection, err := websocket.NewClient(ws, client)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	ping := websocket.Codec{Marshal: func(any) ([]byte, byte, error) { return nil, websocket.PingFrame, nil }}
	if err := ping.Send(connection, nil); err != nil { // its answer is not read
		t.Fatal(err)
	}
	close(end)
	await.Receive(t, "the watch ends", ended)
}

// pipeListener accepts connections until it is closed.
type pipeListener struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error   { close(l.closed); return nil }
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{} }
