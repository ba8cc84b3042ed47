package serving

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
)

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// deadlineListener passes on the read deadlines that a server sets on its connections, so that a test
// can expire them.
type deadlineListener struct {
	net.Listener
	accepted chan *deadlineConn
}

func (l deadlineListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &deadlineConn{Conn: conn, deadlines: make(chan time.Time, 10)}
	l.accepted <- c
	return c, nil
}

type deadlineConn struct {
	net.Conn
	deadlines chan time.Time
}

func (c *deadlineConn) SetReadDeadline(at time.Time) error {
	if err := c.Conn.SetReadDeadline(at); err != nil || at.Before(time.Now()) { // none, or one that interrupts a read
		return err
	}
	select {
	case c.deadlines <- at:
	default: // the test has read the deadline that it expires
	}
	return nil
}

// The server closes a connection whose client is silent, at each step: before the first byte, in the handshake,
// in the header of a request, and between two requests. The test expires the deadlines that the server sets.
func TestSilentConnectionsAreClosed(t *testing.T) {
	data := must(datadir.Open(t.TempDir()))(t)
	defer data.Close()
	listener := deadlineListener{must(net.Listen("tcp", "127.0.0.1:0"))(t), make(chan *deadlineConn, 1)}
	credentials := must(LoadCredentials(listener.Addr(), data, Given{}))(t)
	tracking := newListener(listener, 10)
	stop := make(chan struct{})
	stopped, _, err := credentials.SecureServing(tracking).Serve(http.NotFoundHandler(), 0, stop)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { close(stop); <-stopped }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(credentials.authority.pem)
	handshake := func(client net.Conn) net.Conn {
		secured := tls.Client(client, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"http/1.1"}})
		must(0, secured.HandshakeContext(t.Context()))(t)
		return secured
	}
	for name, step := range map[string]struct {
		send     func(net.Conn) net.Conn
		deadline int // the number of the deadline that closes the connection
		within   time.Duration
	}{
		"silent": {func(c net.Conn) net.Conn { return c }, 1, 32 * time.Second},
		"in handshake": {func(c net.Conn) net.Conn { must(io.WriteString(c, "\x16\x03\x01\x02"))(t); return c }, 1,
			32 * time.Second},
		"in header": {func(c net.Conn) net.Conn {
			c = handshake(c)
			must(io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: h\r\nX: "))(t)
			return c
		}, 2, 32 * time.Second},
		"idle": {func(c net.Conn) net.Conn {
			c = handshake(c)
			must(io.WriteString(c, "GET /none HTTP/1.1\r\nHost: h\r\n\r\n"))(t)
			must(io.ReadFull(c, make([]byte, len("HTTP/1.1 404"))))(t)
			return c
		}, 3, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			client := must(net.Dial("tcp", listener.Addr().String()))(t)
			defer client.Close()
			server := <-listener.accepted
			secured := step.send(client)
			var deadline time.Time
			for range step.deadline {
				deadline = <-server.deadlines
			}
			if limit := time.Since(begin) + step.within; deadline.Sub(begin) > limit {
				t.Errorf("the connection is closed after %v, want %v at most", deadline.Sub(begin), limit)
			}
			must(0, server.Conn.SetReadDeadline(time.Now()))(t)
			_, _ = io.Copy(io.Discard, secured) // until it is closed, or reset
		})
	}
	for _, remaining := range []func() int{func() int { return len(tracking.conns) }, tracking.unauthenticated.Len} {
		await.State(t, "no connection is tracked", func() (bool, string) {
			tracking.mu.Lock()
			defer tracking.mu.Unlock()
			return remaining() == 0, fmt.Sprint(remaining())
		})
	}
}
