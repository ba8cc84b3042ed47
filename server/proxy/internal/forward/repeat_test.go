package forward

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
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

// A server of HTTP/1.1 that ends a connection may have processed the last request on it. A write is sent to it once,
// also if it has a header for which net/http would repeat it.
func TestWritesAreSentOnceToHTTP1(t *testing.T) {
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key", "X-None"} {
		var processed atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			if processed.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
		}))
		s, err := newSender(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			q := httptest.NewRequestWithContext(t.Context(), http.MethodPost,
				"/api/v1/namespaces/default/services/shop/proxy/orders", strings.NewReader("order"))
			q.Header.Set(header, "1")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, q)
			if got := processed.Load(); w.Code != want || got != int64(i+1) {
				t.Errorf("%s: %d, %d writes are processed, want %d and %d", header, w.Code, got, want, i+1)
			}
		}
		server.Close()
	}
}

// An upgrade may last for hours, and is sent once: its body is not kept.
func TestBodiesOfUpgradesAreNotKept(t *testing.T) {
	q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("body"))
	q.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	kept, err := keepBody(q)
	if err != nil || kept != 0 || q.GetBody != nil {
		t.Errorf("kept %d, %v", kept, err)
	}
	keptBytes.Add(-kept)
}

// The bytes that are kept of bodies are a metric while the server has not answered.
func TestKeptBodiesAreCounted(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	counted := func(bytes int) error {
		return testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`# HELP %[1]s [ALPHA] %[2]s
# TYPE %[1]s gauge
%[1]s %[3]d
`, "keepwatch_proxy_kept_body_bytes", keptHelp, bytes)), "keepwatch_proxy_kept_body_bytes")
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if err := counted(4); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	f, err := New(&rest.Config{Host: server.URL}, nil, access.Options{}, registry)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	f.callers.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("body")))
	if err := counted(0); err != nil || w.Code != http.StatusOK {
		t.Error(w.Code, err)
	}
}

// reading is a function that reads.
type reading func([]byte) (int, error)

func (f reading) Read(p []byte) (int, error) { return f(p) }

// What clients announce and do not send takes no room from the bodies of others.
func TestAnnouncedBodiesAreNotCounted(t *testing.T) {
	before := keptBytes.Load()
	q := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", io.MultiReader(strings.NewReader("b"),
		reading(func([]byte) (int, error) {
			if got := keptBytes.Load() - before; got > 1 {
				t.Errorf("%d bytes are counted when 1 has arrived", got)
			}
			return 0, io.ErrUnexpectedEOF // the client leaves
		})))
	q.ContentLength = maxKept
	kept, err := keepBody(q)
	if !errors.Is(err, io.ErrUnexpectedEOF) || kept != 1 {
		t.Errorf("kept %d, %v", kept, err)
	}
	keptBytes.Add(-kept)
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

	// Too many while it arrives: what has been read is sent, and then what follows.
	body := bytes.Repeat([]byte("body "), maxKept/5)
	others := int64(0)
	q = httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", io.MultiReader(bytes.NewReader(body[:maxKept/3]),
		reading(func([]byte) (int, error) {
			others = maxAllKept
			keptBytes.Add(others)
			return 0, io.EOF
		}), bytes.NewReader(body[maxKept/3:])))
	q.ContentLength = int64(len(body))
	kept, err = keepBody(q)
	if err != nil || q.GetBody != nil || kept < maxKept/3 || kept > maxKept/2 {
		t.Errorf("too many while it arrives: kept %d, %v", kept, err)
	}
	if sent, err := io.ReadAll(q.Body); !bytes.Equal(sent, body) || err != nil {
		t.Errorf("%d bytes are sent, want %d, %v", len(sent), len(body), err)
	}
	keptBytes.Add(-kept - others)
}
