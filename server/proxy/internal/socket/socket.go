package socket

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Asked reports whether a request is a watch over a WebSocket in JSON, whose messages are the events. The server
// answers those in other encodings.
func Asked(q *http.Request, info *request.RequestInfo) bool {
	if info.Verb != "watch" || !wsstream.IsWebSocketRequest(q) {
		return false
	}
	accept := strings.Join(q.Header.Values("Accept"), ",")
	return accept == "" || strings.Contains(accept, "*/*") || strings.Contains(accept, "application/json") &&
		!strings.Contains(accept, "protobuf") && !strings.Contains(accept, "cbor")
}

// maxMessage bounds a message of a client, which has nothing to say in a watch. The connection ends at a longer one.
const maxMessage = 4 << 10

// socket is the response to a watch over a WebSocket. The read path answers the same watch without one, and each line
// of its answer is a message. An answer that is no stream of events is sent as it is, before the handshake.
type socket struct {
	http.ResponseWriter
	request *http.Request // with the handshake

	connection *websocket.Conn    // nil before the handshake
	over       context.CancelFunc // ends the watch
	closed     chan struct{}      // when the connection is
	part       []byte             // of a line
}

// Unwrap returns the response and the request with the handshake, if w is the response to a watch over a WebSocket.
func Unwrap(w http.ResponseWriter) (http.ResponseWriter, *http.Request, bool) {
	s, ok := w.(*socket)
	if !ok {
		return nil, nil, false
	}
	return s.ResponseWriter, s.request, true
}

// Serve answers a watch over a WebSocket by a handler of watches without one.
func Serve(next http.Handler, w http.ResponseWriter, q *http.Request) {
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	s := &socket{ResponseWriter: w, request: q, over: cancel}
	defer s.close()
	plain := q.Clone(ctx)
	for name := range plain.Header {
		if name == "Connection" || name == "Upgrade" || strings.HasPrefix(name, "Sec-Websocket-") {
			plain.Header.Del(name)
		}
	}
	// which is about responses, and browsers always send it: messages are not compressed
	plain.Header.Del("Accept-Encoding")
	next.ServeHTTP(s, plain)
}

// WriteHeader makes the handshake if the watch begins.
func (s *socket) WriteHeader(code int) {
	if code != http.StatusOK {
		s.ResponseWriter.WriteHeader(code)
		return
	}
	opened := make(chan *websocket.Conn)
	s.closed = make(chan struct{})
	go func() {
		defer close(s.closed)
		defer s.over()
		websocket.Handler(func(c *websocket.Conn) {
			c.MaxPayloadBytes = maxMessage
			opened <- c
			wsstream.IgnoreReceives(c, 0) // until the client or close ends the connection
		}).ServeHTTP(s.ResponseWriter, s.request)
	}()
	select {
	case s.connection = <-opened:
	case <-s.closed: // the handshake was refused, and answered
	}
}

// Write sends the complete lines. Before the handshake it writes to the response without one.
func (s *socket) Write(b []byte) (int, error) {
	if s.closed == nil {
		return s.ResponseWriter.Write(b)
	}
	if s.connection == nil {
		return 0, http.ErrHijacked
	}
	s.part = append(s.part, b...)
	for {
		end := bytes.IndexByte(s.part, '\n')
		if end < 0 {
			return len(b), nil
		}
		if err := websocket.Message.Send(s.connection, string(s.part[:end+1])); err != nil {
			return 0, err
		}
		s.part = s.part[end+1:]
	}
}

// FlushError flushes a response without a handshake: messages are sent when they are written.
func (s *socket) FlushError() error {
	if s.closed == nil {
		return http.NewResponseController(s.ResponseWriter).Flush()
	}
	return nil
}

// SetWriteDeadline bounds the time for which messages may remain unread.
func (s *socket) SetWriteDeadline(t time.Time) error {
	switch {
	case s.closed == nil:
		return http.NewResponseController(s.ResponseWriter).SetWriteDeadline(t)
	case s.connection == nil:
		return http.ErrHijacked
	}
	return s.connection.SetWriteDeadline(t)
}

// closeWait is how long the end of a connection may take to be sent.
const closeWait = time.Second

// close ends the connection, and waits for its goroutine.
func (s *socket) close() {
	if s.connection != nil {
		// the client may not read, nor the answer to its last ping be sent
		_ = s.connection.SetWriteDeadline(time.Now().Add(closeWait))
		_ = s.connection.Close()
	}
	if s.closed != nil {
		<-s.closed
	}
}
