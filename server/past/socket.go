package past

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// socket is the response to a WATCH by a WebSocket: each event is a message. A watch that is refused is answered by
// HTTP.
type socket struct {
	http.ResponseWriter
	asked *http.Request
	end   context.CancelFunc // of the watch

	conn atomic.Pointer[websocket.Conn] // nil until the watch begins
	err  error                          // why there is none
	read chan struct{}                  // closed when the client has left
	rest []byte                         // the beginning of an event
}

// withSocket returns the response and the request of a watch by a WebSocket, and how it ends. Other requests are as
// they were.
func withSocket(w http.ResponseWriter, q *http.Request) (http.ResponseWriter, *http.Request, func()) {
	if !websocket.IsWebSocketUpgrade(q) {
		return w, q, func() {}
	}
	ctx, cancel := context.WithCancel(q.Context())
	s := &socket{ResponseWriter: w, asked: q, end: cancel, read: make(chan struct{})}
	q = q.Clone(ctx)
	q.Header.Del("Upgrade") // the read path answers by HTTP
	return s, q, s.close
}

var upgrader websocket.Upgrader

// WriteHeader begins the WebSocket.
func (s *socket) WriteHeader(code int) {
	if code != http.StatusOK {
		s.ResponseWriter.WriteHeader(code)
		return
	}
	header := http.Header{momentHeader: s.Header()[momentHeader]}
	conn, err := upgrader.Upgrade(s.ResponseWriter, s.asked, header)
	if err != nil {
		s.err = err
		s.end() // the client has the reason
		return
	}
	s.conn.Store(conn)
	go func() {
		defer close(s.read)
		defer s.end()
		for { // answers what the client sends to see whether the connection lives
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
}

func (s *socket) Write(p []byte) (int, error) {
	conn := s.conn.Load()
	switch {
	case s.err != nil:
		return 0, s.err
	case conn == nil:
		return s.ResponseWriter.Write(p)
	}
	s.rest = append(s.rest, p...)
	for {
		event, rest, complete := bytes.Cut(s.rest, []byte("\n"))
		if !complete {
			s.rest = append(s.rest[:0], event...)
			return len(p), nil
		}
		if err := conn.WriteMessage(websocket.TextMessage, event); err != nil {
			return 0, err
		}
		s.rest = rest
	}
}

// FlushError is for http.ResponseController. A message waits for nothing.
func (s *socket) FlushError() error {
	if s.conn.Load() == nil {
		return errors.Join(s.err, http.NewResponseController(s.ResponseWriter).Flush())
	}
	return nil
}

// closeTimeout bounds how long a client may take to receive that a watch has ended.
const closeTimeout = 5 * time.Second

// SetWriteDeadline is for http.ResponseController. It is safe for concurrent use: the read path calls it when a watch
// ends whose client may have stopped reading. The connection then ends, after the time for a message that says so.
func (s *socket) SetWriteDeadline(at time.Time) error {
	conn := s.conn.Load()
	if conn == nil {
		return http.NewResponseController(s.ResponseWriter).SetWriteDeadline(at)
	}
	if !at.IsZero() {
		time.AfterFunc(max(0, time.Until(at))+closeTimeout, func() { conn.Close() })
	}
	return nil
}

// close ends the WebSocket.
func (s *socket) close() {
	s.end()
	conn := s.conn.Load()
	if conn == nil {
		return
	}
	// The client may be gone.
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Now().Add(closeTimeout))
	conn.Close()
	<-s.read
}
