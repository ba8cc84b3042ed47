package socket

import (
	"net"
	"net/http"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A watch over a WebSocket that the proxy ends is over, also if its client reads nothing while something is sent to it.
func TestSocketsOfClientsThatDoNotReadEnd(t *testing.T) {
	t.Parallel()
	client, served := net.Pipe() // which buffers nothing
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	proxy := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		defer close(ended)
		Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
