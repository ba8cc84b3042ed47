package past

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// large is a history of objects that are together more than sockets hold.
type large struct{ lagging }

const largeObjects, largeSize = 40, 900_000

func (l large) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(l) }

func (large) States(_ context.Context, _ sink.StateQuery, yield func(sink.State) error) error {
	for i := range largeObjects {
		name := fmt.Sprint("large-", i)
		object := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":"shop"},"data":{"a":%q}}`,
			name, strings.Repeat("a", largeSize))
		s := sink.State{
			ID: int64(i), Resource: "secrets", Key: keepwatch.Key{Namespace: "shop", Name: name}, UID: keepwatch.UID(name),
			From: sink.Point{Revision: 5}, SeenFrom: clock("10:00"), Object: []byte(object),
		}
		if err := yield(s); err != nil {
			return err
		}
	}
	return nil
}

// run runs a server until the returned function is called.
func run(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() { defer close(running); s.Run(ctx) }()
	await.True(t, "the server runs", func() bool {
		s.caches.mu.Lock()
		defer s.caches.mu.Unlock()
		return s.caches.running != nil
	})
	return func() { cancel(); <-running }
}

// A list whose client does not read ends with its request's deadline, and no longer keeps the cache of its moment.
func TestStalledListsEnd(t *testing.T) {
	t.Parallel()
	s, err := New(Config{History: history.New(large{}, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	s.requestTimeout = 300 * time.Millisecond
	defer run(t, s)()
	ended := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		defer func() { ended <- struct{}{} }()
		s.ServeHTTP(w, q)
	}))
	defer server.Close()
	await.True(t, "a list begins before its deadline", func() bool { // at once, unless the machine is busy
		client, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		fmt.Fprint(client, "GET /at/now/api/v1/secrets HTTP/1.1\r\nHost: history\r\n"+
			"Authorization: Bearer x\r\nAccept: application/json\r\n\r\n")
		await.Receive(t, "the list of a client that does not read ends", ended)
		n, err := io.Copy(io.Discard, client)
		if n >= largeObjects*largeSize {
			t.Errorf("the client has %d bytes of a list of %d, %v", n, largeObjects*largeSize, err)
		}
		return n > 0
	})
	s.caches.mu.Lock()
	defer s.caches.mu.Unlock()
	for key, e := range s.caches.all {
		if e.inUse != 0 {
			t.Errorf("%v is in use %d times", key, e.inUse)
		}
	}
}

// Moments with one state share the encodings of its cache, whatever times their Tables are relative to.
func TestMomentsOfOneStateShareEncodings(t *testing.T) {
	t.Parallel()
	s, err := New(Config{History: history.New(large{}, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	var bytes int64
	for i := range 3 {
		path := fmt.Sprintf("/at/2026-11-28T10:0%d:00Z/api/v1/secrets", 1+i)
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		q.Header.Set("Authorization", "Bearer x")
		q.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, q); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		if now := s.caches.budget.Bytes(); i == 0 {
			bytes = now
		} else if now != bytes || bytes == 0 {
			t.Errorf("after %d moments %d bytes are cached, after one %d", 1+i, now, bytes)
		}
	}
}
