package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// A request of a user who has too many reviews in flight is refused: the client tries it again.
func TestBusyUsersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := func(c net.Conn) { // it does not answer SubjectAccessReviews
			defer c.Close()
			q, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			if strings.HasSuffix(q.URL.Path, "/subjectaccessreviews") {
				_, _ = io.Copy(io.Discard, c)
				return
			}
			w := httptest.NewRecorder()
			if q.Method == http.MethodPost {
				review(t, w, q)
			}
			_ = w.Result().Write(c)
		}
		p, err := New(Config{Server: &rest.Config{
			Host: "http://server", ContentConfig: rest.ContentConfig{ContentType: "application/json"},
			// not a Transport, which forwarded requests do not have: they would ask the resolver, outside of the bubble
			Dial: func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go serve(server)
				return client, nil
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		send := func(path string) *httptest.ResponseRecorder {
			q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			q.Header.Set("Authorization", "Bearer token")
			w := httptest.NewRecorder()
			p.ServeHTTP(w, q)
			return w
		}
		const inFlight = 8 // reviews of one user
		var others sync.WaitGroup
		for i := range 2 * inFlight { // the second half waits for the first, and goes on waiting for the server
			if i == inFlight {
				time.Sleep(time.Second)
			}
			others.Go(func() { send(fmt.Sprintf("/api/v1/namespaces/n%d/pods", i)) })
		}
		time.Sleep(time.Second)
		for _, path := range []string{"/api/v1/pods", "/metrics"} {
			others.Go(func() {
				w := send(path)
				if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
					t.Errorf("%s: %d, retry after %q: %s", path, w.Code, w.Header().Get("Retry-After"), w.Body)
				}
			})
		}
		others.Wait()
	})
}
