package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// hasty is a listener whose connections' read deadlines can be made to pass.
type hasty struct {
	net.Listener
	accepted chan *hastyConn
}

func (l hasty) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &hastyConn{Conn: conn, deadlines: make(chan time.Time, 10)}
	l.accepted <- c
	return c, nil
}

type hastyConn struct {
	net.Conn
	deadlines chan time.Time
}

func (c *hastyConn) SetReadDeadline(at time.Time) error {
	if err := c.Conn.SetReadDeadline(at); err != nil || at.Before(time.Now()) { // none, or one that interrupts a read
		return err
	}
	select {
	case c.deadlines <- at:
	default: // nobody looks any more
	}
	return nil
}

// A connection whose client falls silent is closed, at whichever step: before it says anything, in the handshake,
// in the header of a request, and between two requests. The test makes the deadlines pass that are set.
func TestSilentConnectionsAreClosed(t *testing.T) {
	data := must(openDataDir(t.TempDir()))(t)
	defer data.close()
	listener := hasty{must(net.Listen("tcp", "127.0.0.1:0"))(t), make(chan *hastyConn, 1)}
	access := must(newAccess(listener.Addr(), data, ""))(t)
	tracking := track(listener, 10)
	stop := make(chan struct{})
	stopped, _, err := secureServing(tracking, access).Serve(http.NotFoundHandler(), 0, stop)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { close(stop); <-stopped }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(access.authority.pem)
	handshake := func(client net.Conn) net.Conn {
		secured := tls.Client(client, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"http/1.1"}})
		must(0, secured.HandshakeContext(t.Context()))(t)
		return secured
	}
	for name, step := range map[string]struct {
		say      func(net.Conn) net.Conn
		deadline int // which one has to pass
		within   time.Duration
	}{
		"silent":       {func(c net.Conn) net.Conn { return c }, 1, 32 * time.Second},
		"in handshake": {func(c net.Conn) net.Conn { must(io.WriteString(c, "\x16\x03\x01\x02"))(t); return c }, 1, 32 * time.Second},
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
			secured := step.say(client)
			var deadline time.Time
			for range step.deadline {
				deadline = <-server.deadlines
			}
			if most := time.Since(begin) + step.within; deadline.Sub(begin) > most {
				t.Errorf("it is closed after %v, want %v at most", deadline.Sub(begin), most)
			}
			must(0, server.Conn.SetReadDeadline(time.Now()))(t)
			_, _ = io.Copy(io.Discard, secured) // until it is closed, or reset
		})
	}
	for _, left := range []func() int{func() int { return len(tracking.conns) }, tracking.strangers.Len} {
		for end := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
			tracking.mu.Lock()
			n := left()
			tracking.mu.Unlock()
			if n == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d connections are still known", n)
			}
		}
	}
}
