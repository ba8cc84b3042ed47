package readpath

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A handler that an API server has given up on, since its client has gone, may only begin then: the
// stream of HTTP/2 that it would bound is gone.
func TestWritesAreBoundedBehindTheEnd(t *testing.T) {
	late := make(chan context.Context, 1)
	server := httptest.NewUnstartedServer(WithWriteDeadline(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		late <- q.Context()
	})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	answer := must(server.Client().Get(server.URL))(t)
	defer answer.Body.Close()
	must(io.ReadAll(answer.Body))(t)
	ctx, cancel := context.WithTimeout(<-late, time.Hour)
	defer cancel()
	if answer.ProtoMajor != 2 {
		t.Fatalf("the answer came over %s", answer.Proto)
	}
	await.True(t, "the answer has ended", func() bool {
		d := ctx.Value(writeDeadlineKey{}).(*writeDeadline)
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.out == nil
	})
	setWriteDeadline(ctx)
	if ctx.Value(writeDeadlineKey{}).(*writeDeadline).set {
		t.Error("a deadline was set")
	}
}

// A watch whose context has a deadline ends at it, as one that has reached its timeout.
func TestWatchesEndAtTheirDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, pods, options{})
	server := httptest.NewUnstartedServer(WithWriteDeadline(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		ctx, cancel := context.WithTimeout(q.Context(), time.Second)
		defer cancel()
		r.handler.ServeHTTP(w, r.withInfo(q.WithContext(ctx)))
	})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	answer := must(server.Client().Get(server.URL + r.path("") + "?watch=1&timeoutSeconds=1000"))(t)
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err != nil || answer.ProtoMajor != 2 || answer.StatusCode != http.StatusOK {
		t.Errorf("%s %s ends with %v", answer.Proto, answer.Status, err)
	}
}
