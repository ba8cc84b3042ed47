package served

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/bench/wire"
)

// The watcher reads the revisions wherever the answer is split.
func TestRawWatcherReadsRevisions(t *testing.T) {
	text := []byte(
		`{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"17","annotations":{"x":"\"resourceVersion\":\"99\""}}}}
{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"23"}}}
`)
	expired := []byte(
		`{"type":"ERROR","object":{"kind":"Status","metadata":{"resourceVersion":"9"},"reason":"Expired","code":410}}
`)
	for n := 1; n <= len(text); n++ {
		w := &rawWatcher{}
		var seen []int64
		for piece := range slices.Chunk(text, n) {
			w.read(piece)
			if now := w.seen(); now != 0 && !slices.Contains(seen, now) {
				seen = append(seen, now)
			}
		}
		if w.seen() != 23 || n < 50 && !slices.Equal(seen, []int64{17, 23}) {
			t.Fatalf("in pieces of %d: %v", n, seen)
		}
		for piece := range slices.Chunk(expired, n) {
			w.read(piece)
		}
		if !w.expired || w.seen() != 23 || w.cursor != "23" {
			t.Fatalf("in pieces of %d: expired %v at %d", n, w.expired, w.seen())
		}
	}
}

// A watcher whose revision expired resumes at the newest one, and is live only when it
// receives an event.
func TestRawWatcherBeginsAnew(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("watch") == "":
			_, _ = io.WriteString(w, `{"kind":"PodList","metadata":{"resourceVersion":"40"},"items":[]}`)
		case r.URL.Query().Get("resourceVersion") == "40":
			_ = http.NewResponseController(w).Flush()
			<-release
			_, _ = io.WriteString(w, `{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"41"}}}`+"\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, `{"type":"ERROR","object":{"reason":"Expired","code":410}}`+"\n")
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	line := &sharedLink{subject: &subject{endpoint: wire.Endpoint{Address: server.Listener.Addr().String(),
		TLS: &tls.Config{RootCAs: roots}}}}
	defer line.close()
	w := &rawWatcher{shared: line, counts: &counts{}, path: allPods, cursor: "17"}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	defer running.Wait()
	defer cancel()
	for w.counts.lists.Load() == 0 {
		if err := pause(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if w.seen() != 0 {
		t.Errorf("its revision is %d before it received an event", w.seen())
	}
	close(release)
	within, giveUp := context.WithTimeout(ctx, time.Minute)
	defer giveUp()
	if live, _, _ := summary(waitAll(within, []follower{w}, 40, time.Now())); live != 1 {
		t.Errorf("%d are live", live)
	}
	if n := w.counts.lists.Load(); n != 1 {
		t.Errorf("%d lists", n)
	}
}
