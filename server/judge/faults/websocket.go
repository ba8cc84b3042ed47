package faults

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// isUpgrade reports whether a request wants another protocol on its connection, as
// WebSockets do.
func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// upgrade forwards such a request. Faults occur between the messages of a watch; other connections are
// forwarded in both directions until either end closes.
func (x *exchange) upgrade(fault Fault) {
	if x.isWatch() && strings.EqualFold(x.r.Header.Get("Upgrade"), "websocket") {
		x.webSocket(fault)
		return
	}
	proxy := httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { x.proxy.upstream.address(r.Out) },
		Transport: x.proxy.upstream.rounds,
		ModifyResponse: func(response *http.Response) error {
			x.record(func(e *Entry, _ time.Duration) { e.Code = response.StatusCode })
			if both, ok := response.Body.(io.ReadWriteCloser); ok {
				response.Body = tunnel{both, connectionOf(x.r)}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { x.fail(err) },
	}
	proxy.ServeHTTP(x.w, x.r.WithContext(x.ctx))
}

// tunnel is the upstream's end of an upgraded connection. The client's ends with it.
type tunnel struct {
	io.ReadWriteCloser
	client io.Closer
}

func (t tunnel) Read(p []byte) (int, error) {
	n, err := t.ReadWriteCloser.Read(p)
	if err != nil && n == 0 {
		_ = t.client.Close()
	}
	return n, err
}

// webSocket forwards a watch over a WebSocket.
func (x *exchange) webSocket(fault Fault) {
	out := x.proxy.upstream.request(x.ctx, x.r)
	out.Header.Set("Connection", "Upgrade")
	out.Header.Set("Upgrade", "websocket")
	out.Header.Del("Sec-WebSocket-Extensions") // no compression
	response, err := x.proxy.upstream.rounds.RoundTrip(out)
	if err != nil {
		x.fail(err)
	}
	defer response.Body.Close()
	x.record(func(e *Entry, _ time.Duration) { e.Code = response.StatusCode })
	upstream, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || !ok {
		for name, values := range response.Header {
			x.w.Header()[name] = values
		}
		x.w.WriteHeader(response.StatusCode)
		x.copy(response.Body, None)
		return
	}
	conn, client, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		x.fail(err)
	}
	defer conn.Close()
	if err := writeHead(conn, response); err != nil {
		return
	}
	x.out = conn
	// an upgraded connection ignores the request's context
	stop := context.AfterFunc(x.ctx, func() { _ = upstream.Close() })
	defer stop()
	wait := x.forwardClient(conn, client.Reader, upstream)
	defer wait()
	x.framing = &framing{messages{}, jsonEvents{}}
	x.watch(upstream, fault)
}

// writeHead writes the head of the answer to an upgrade.
func writeHead(conn net.Conn, response *http.Response) error {
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 %s\r\n", response.Status); err != nil {
		return err
	}
	if err := response.Header.Write(conn); err != nil {
		return err
	}
	_, err := io.WriteString(conn, "\r\n")
	return err
}

// forwardClient forwards what a client sends upstream, in a goroutine, which wait ends. The exchange ends when the
// client disconnects.
func (x *exchange) forwardClient(conn net.Conn, client io.Reader, upstream io.Writer) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer x.cancel()
		_, _ = io.Copy(upstream, client)
	}()
	return func() {
		_ = conn.Close()
		<-done
	}
}

// messages are WebSocket messages from a server, one for each event.
type messages struct{}

// The parts of a WebSocket frame's head, from RFC 6455, section 5.2.
const (
	finalText   = 0x81
	finalBinary = 0x82
	closeFrame  = 0x88
	length16    = 126
	length64    = 127
)

// read returns the next frame. Events are whole text frames; a server sends no others in a watch with JSON,
// except control frames.
func (messages) read(r *bufio.Reader) (whole, message []byte, err error) {
	head := make([]byte, 2, 10)
	if n, err := io.ReadFull(r, head); err != nil {
		return head[:n], nil, err
	}
	if head[1]&0x80 != 0 {
		return head, nil, errors.New("a server's frame is masked")
	}
	length := uint64(head[1])
	if extra := map[uint64]int{length16: 2, length64: 8}[length]; extra > 0 {
		head = head[:2+extra]
		if n, err := io.ReadFull(r, head[2:]); err != nil {
			return head[:2+n], nil, err
		}
		if length = uint64(binary.BigEndian.Uint16(head[2:4])); extra == 8 {
			length = binary.BigEndian.Uint64(head[2:10])
		}
	}
	if length > maxFrame {
		return head, nil, errTooLarge()
	}
	whole, message, err = readPayload(r, head, int(length))
	if head[0] != finalText && head[0] != finalBinary {
		message = nil
	}
	return whole, message, err
}

func (messages) wrap(message []byte) []byte {
	head := []byte{finalText}
	switch n := len(message); {
	case n < length16:
		head = append(head, byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, length16), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, length64), uint64(n))
	}
	return append(head, message...)
}

func (messages) torn() []byte { return messages{}.wrap(make([]byte, 64))[:16] }

// end is a close frame with the status 1000, a normal closure.
func (messages) end() []byte { return []byte{closeFrame, 2, 0x03, 0xe8} }
