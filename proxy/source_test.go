package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
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
	s, err := newSource(&rest.Config{Host: server.URL}, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, &format{representation: representation{encoding: jsonEncoding{}}}, nil, func(error) {})
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
		if since := s.failingSince(); !since.IsZero() {
			t.Errorf("%s: its end counts as a failure of the server", name)
			s.failing = time.Time{}
		}
	}
	server.CloseClientConnections()
	server.Close()
	if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err == nil || s.failingSince().IsZero() {
		t.Errorf("the server is gone: %v, failing since %v", err, s.failingSince())
	}
}

// A list with an object that cannot be read leaves the resource to the server, whose own answers have the object.
func TestUnreadableObjectsAreLeftToTheServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"uid":"u","resourceVersion":"7"}}]}`)
	}))
	defer server.Close()
	var left error
	s, err := newSource(&rest.Config{Host: server.URL}, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, &format{representation: representation{encoding: jsonEncoding{}}}, nil, func(err error) { left = err })
	if err != nil {
		t.Fatal(err)
	}
	if page, err := s.List(t.Context(), keepwatch.ListRequest{}); err == nil || left == nil || page.Revision != 0 {
		t.Errorf("the list: %+v, %v; the resource is left for %v", page, err, left)
	}
}
