package pings_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/pings"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// TestFrozenConnection sends requests to a server that the system trusts, whose first connection freezes: it accepts
// bytes, and answers nothing. A later request must be sent on another one.
func TestFrozenConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("client-go's shortest time without a frame is a second, and so is that without an answer to a ping")
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(roots, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", roots)
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	frozen := make(chan struct{})
	go func() {
		for first := true; ; first = false {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				client.Close()
				return
			}
			t.Cleanup(func() { client.Close(); server.Close() })
			go func() { _, _ = io.Copy(server, client) }()
			go func() {
				buffer := make([]byte, 32<<10)
				for {
					n, err := server.Read(buffer)
					if err != nil {
						return
					}
					select {
					case <-frozen:
						if first {
							continue
						}
					default:
					}
					if _, err := client.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()

	client, err := rest.HTTPClientFor(pings.Config(&rest.Config{Host: "https://" + l.Addr().String()}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	get := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.Addr().String(), nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "HTTP/2.0" {
			return fmt.Errorf("%s, %w", body, err)
		}
		return nil
	}
	if err := get(time.Minute); err != nil {
		t.Fatal(err)
	}
	close(frozen)
	await.NoError(t, "a request after the connection froze", func() error { return get(500 * time.Millisecond) })
}
