package forward

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// A server that ends a connection of HTTP/2 gracefully has not processed the last requests on it. They are sent once
// more, with their bodies.
func TestWritesAreRepeatedOnAnotherConnection(t *testing.T) {
	const clients, each, length = 10, 60, 2000
	var served atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if len(body) != length {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if served.Add(1)%50 == 0 { // as kube-apiserver with --goaway-chance
			w.Header().Set("Connection", "close")
		}
		w.WriteHeader(http.StatusCreated)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	s, err := newSender(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	before := keptBytes.Load()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost,
					"/api/v1/namespaces/default/configmaps", bytes.NewReader(make([]byte, length))))
				if w.Code != http.StatusCreated {
					t.Errorf("%d %s", w.Code, w.Body)
					return
				}
			}
		})
	}
	all.Wait()
	if got := served.Load(); got != clients*each {
		t.Errorf("%d requests were served, want %d", got, clients*each)
	}
	if after := keptBytes.Load(); after != before {
		t.Errorf("%d bytes are kept at the end, %d before", after, before)
	}
}

// Bodies that are too long, or too many at a time, are forwarded as they arrive. A body that ends early is the client's
// fault.
func TestKeptBodiesAreBounded(t *testing.T) {
	for length, want := range map[int64]bool{0: false, 1: true, maxKept: true, maxKept + 1: false, -1: false} {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", bytes.NewReader(make([]byte, max(length, 0))))
		q.ContentLength = length
		kept, err := keepBody(q)
		if err != nil || (q.GetBody != nil) != want || (kept > 0) != want {
			t.Errorf("%d bytes: kept %d, %v", length, kept, err)
		}
		keptBytes.Add(-kept)
	}
	keptBytes.Add(maxAllKept)
	q := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", bytes.NewReader([]byte("body")))
	kept, err := keepBody(q)
	if err != nil || q.GetBody != nil {
		t.Errorf("too many: %v", err)
	}
	if rest, err := io.ReadAll(q.Body); string(rest) != "body" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	keptBytes.Add(-kept - maxAllKept)
}
