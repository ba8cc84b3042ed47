package faults

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// accepts reports whether a listener accepts connections.
func accepts(l *listener) bool {
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Connections are refused as long as Down or any outage wants it, whichever ends first.
func TestOutageEndsWhileDown(t *testing.T) {
	for _, test := range []struct {
		name  string
		first func(*Proxy, *listener) error
		last  func(*Proxy, *listener) error
	}{
		{"the outage ends first", func(_ *Proxy, l *listener) error { return l.endOutage() },
			func(p *Proxy, _ *listener) error { return p.Up() }},
		{"Down ends first", func(p *Proxy, _ *listener) error { return p.Up() },
			func(_ *Proxy, l *listener) error { return l.endOutage() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, upstream := newCluster(t, 0)
			p := New(t, upstream, Plan{})
			for _, begin := range []func() error{p.listener.beginOutage, p.Down} {
				if err := begin(); err != nil {
					t.Fatal(err)
				}
			}
			if err := test.first(p, p.listener); err != nil {
				t.Fatal(err)
			}
			if accepts(p.listener) {
				t.Error("it accepts connections too early")
			}
			if err := test.last(p, p.listener); err != nil {
				t.Fatal(err)
			}
			if !accepts(p.listener) {
				t.Error("it refuses connections for ever")
			}
		})
	}
}

// An outage whose address is taken by somebody else ends when the address is free again.
func TestAddressIsTakenDuringOutage(t *testing.T) {
	_, upstream := newCluster(t, 0)
	p := New(t, upstream, Plan{})
	if err := p.listener.beginOutage(); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("tcp", p.listener.Addr().String())
	if err != nil {
		t.Skip(err)
	}
	p.endOutageAfter(time.Millisecond)
	await.State(t, "the outage is over", func() (bool, string) {
		p.listener.mu.Lock()
		defer p.listener.mu.Unlock()
		return p.listener.outages == 0, "it goes on"
	})
	other.Close()
	await.State(t, "connections are accepted", func() (bool, string) { return accepts(p.listener), "they are refused" })
}

// A half-open connection ends when its client closes it, and with it the watch at the server.
func TestClientOfHalfOpenConnectionGoes(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http1 bool) {
		var open atomic.Int64
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			open.Add(1)
			defer open.Add(-1)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		t.Cleanup(server.Close)
		p := New(t, &rest.Config{Host: server.URL,
			TLSClientConfig: rest.TLSClientConfig{CAData: certificatePEM(server.Certificate())}},
			parsePlan(t, http1, "- {fault: half-open, after: {time: 1ms}}"))
		c := newClient(t, p, http1)
		var conn net.Conn
		transport := c.Transport.(*http.Transport)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (_ net.Conn, err error) {
			conn, err = dial(ctx, network, address)
			return conn, err
		}
		response, err := c.get(t.Context(), watchPods)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		await.True(t, "the connection is half-open", func() bool { return len(p.Transcript()[0].Faults) == 1 })
		if _, err := conn.Write([]byte("of TLS, before the end")); err != nil {
			t.Error(err)
		}
		conn.Close()
		await.True(t, "the watch at the server ends", func() bool { return open.Load() == 0 })
	})
}
