package webhook_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/webhook"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestFrozenConnection delivers to a server behind a balancer, whose first connection freezes: it accepts bytes, and
// answers nothing. The next attempt must not use it, in HTTP/1.1 and HTTP/2.
func TestFrozenConnection(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if (r.ProtoMajor == 2) != http2 {
					t.Error(r.Proto)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusNoContent)
			}))
			s.EnableHTTP2 = http2
			s.StartTLS()
			t.Cleanup(s.Close)
			address, freeze := balance(t, s.Listener.Addr().String())
			transport := webhook.NewTransport(time.Second)
			transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // the certificate is of another test's
			r, err := webhook.New("https://"+address+"/", webhook.Options{
				DeadLetters: filepath.Join(t.TempDir(), "dead"), Timeout: time.Second, Transport: transport,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			if err := r.Open(t.Context(), pods, sink.Delivered{}); err != nil {
				t.Fatal(err)
			}
			if err := r.Write(t.Context(), batch("a")); err != nil {
				t.Fatal(err)
			}
			freeze()
			delivered := make(chan error, 1)
			go func() { delivered <- r.Write(t.Context(), batch("b")) }()
			if err := await.Receive(t, "the batch after the first connection froze", delivered); err != nil {
				t.Error(err)
			}
		})
	}
}

// balance forwards connections to a server, until the test ends. After freeze, the first one forwards nothing.
func balance(t *testing.T, server string) (address string, freeze func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	frozen := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { l.Close() })
	running.Go(func() {
		for first := true; ; first = false {
			client, err := l.Accept()
			if err != nil {
				return
			}
			backend, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				client.Close()
				return
			}
			t.Cleanup(func() { client.Close(); backend.Close() })
			forward := func(to, from net.Conn) {
				_, _ = io.Copy(writer(func(b []byte) (int, error) {
					if first {
						select {
						case <-frozen:
							return len(b), nil
						default:
						}
					}
					return to.Write(b)
				}), from)
				to.Close()
			}
			running.Go(func() { forward(backend, client) })
			running.Go(func() { forward(client, backend) })
		}
	})
	return l.Addr().String(), func() { close(frozen) }
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
