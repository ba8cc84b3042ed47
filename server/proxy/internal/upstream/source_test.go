package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
)

// A request that the proxy ends, because it ends itself or drops a cache, does not count as a failure of the server.
func TestEndedRequestsAreNoFailure(t *testing.T) {
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Get("watch") != "" && q.URL.Query().Get("resourceVersion") == "1" { // the headers, and then nothing
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
		}
		begun <- struct{}{}
		<-q.Context().Done()
	}))
	defer server.Close()
	s, err := New(&rest.Config{Host: server.URL}, nil, schema.GroupVersionResource{Version: "v1",
		Resource: "configmaps"}, verbatim.NewFormat(verbatim.Layout{}, verbatim.Representation{Encoding: verbatim.JSON{}}),
		nil, func(error) {}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	requests := map[string]func(context.Context) error{
		"list": func(ctx context.Context) error {
			_, err := s.List(ctx, keepwatch.ListRequest{})
			return err
		},
		"newest": func(ctx context.Context) error {
			_, err := s.Newest(ctx)
			return err
		},
		"watch": func(ctx context.Context) error {
			_, err := s.Watch(ctx, 2)
			return err
		},
		"open watch": func(ctx context.Context) error {
			w, err := s.Watch(ctx, 1)
			if err == nil {
				defer w.Close()
				_, err = w.Next()
			}
			return err
		},
		"streamed list": func(ctx context.Context) error {
			_, _, err := s.StreamList(ctx, 0, func([]keepwatch.Object) error { return nil })
			return err
		},
	}
	for name, request := range requests {
		ctx, end := context.WithCancel(t.Context())
		go func() {
			<-begun
			end()
		}()
		if err := request(ctx); err == nil {
			t.Errorf("%s: no error", name)
		}
		end()
		if since := s.FailingSince(); !since.IsZero() {
			t.Errorf("%s: its end counts as a failure of the server", name)
			s.failing = time.Time{}
		}
	}
	server.CloseClientConnections()
	server.Close()
	if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err == nil || s.FailingSince().IsZero() {
		t.Errorf("the server is gone: %v, failing since %v", err, s.FailingSince())
	}
}

// A list with an object that cannot be read leaves the resource to the server, whose own answers have the object.
func TestUnreadableObjectsAreLeftToTheServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w,
			`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"uid":"u","resourceVersion":"7"}}]}`)
	}))
	defer server.Close()
	var left error
	s, err := New(&rest.Config{Host: server.URL}, nil, schema.GroupVersionResource{Version: "v1",
		Resource: "configmaps"}, verbatim.NewFormat(verbatim.Layout{}, verbatim.Representation{Encoding: verbatim.JSON{}}),
		nil, func(err error) {
			left = err
		}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if page, err := s.List(t.Context(), keepwatch.ListRequest{}); err == nil || left == nil || page.Revision != 0 {
		t.Errorf("the list: %+v, %v; the resource is left for %v", page, err, left)
	}
}

// A server that was restored from a backup is not asked for revisions that it had before: each watch would be a short
// one, that asks for a bookmark.
func TestRestoredServerIsWatchedAsAnyOther(t *testing.T) {
	var newest atomic.Int64
	timeouts := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if q.URL.Query().Get("watch") != "" {
			timeouts <- q.URL.Query().Get("timeoutSeconds")
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done()
			return
		}
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`,
			newest.Load())
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	s, err := New(&rest.Config{Host: server.URL}, nil, schema.GroupVersionResource{Version: "v1",
		Resource: "configmaps"}, verbatim.NewFormat(verbatim.Layout{}, verbatim.Representation{Encoding: verbatim.JSON{}}),
		nil, func(error) {}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	open := func(from keepwatch.Revision) string {
		w, err := s.Watch(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		return <-timeouts
	}
	newest.Store(100)
	if _, err := s.Newest(t.Context()); err != nil {
		t.Fatal(err)
	}
	short := open(90)
	usual := open(100)
	if short == usual {
		t.Fatalf("a watch that must reach a newer revision has the timeout %s of another one", short)
	}
	newest.Store(50)
	if _, err := s.Newest(t.Context()); err == nil {
		t.Fatal("the server has a newer revision than before")
	}
	if got := open(50); got == short {
		t.Errorf("after the restore a watch has the timeout %s: it asks for a revision of before", got)
	}
}

// A server that was restored from a backup, or is a replica that is behind, is not asked to confirm states that it does
// not have.
func TestNewestBelowDelivered(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9000"},"items":[]}`))
	}))
	defer server.Close()
	s, err := New(&rest.Config{Host: server.URL}, nil, schema.GroupVersionResource{Version: "v1",
		Resource: "configmaps"}, verbatim.NewFormat(verbatim.Layout{}, verbatim.Representation{Encoding: verbatim.JSON{}}),
		nil, func(error) {}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	for delivered, want := range map[keepwatch.Revision]bool{0: true, 8999: true, 9000: true, 9001: false} {
		s.open = nil
		if delivered > 0 {
			s.open = &openWatch{source: s, at: delivered, closed: true}
		}
		newest, err := s.Newest(t.Context())
		if (err == nil) != want || want && newest != 9000 {
			t.Errorf("a watch at %d: %d, %v", delivered, newest, err)
		}
	}
}
