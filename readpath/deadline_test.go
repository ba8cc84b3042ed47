package readpath

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A handler that an API server has given up on, since its client has gone, may only begin then: the
// stream of HTTP/2 that it would bound is gone.
func TestWritesAreBoundedBehindTheEnd(t *testing.T) {
	late := make(chan context.Context, 1)
	server := httptest.NewUnstartedServer(WithWriteDeadline(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { late <- q.Context() })))
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
	eventually(t, "the answer has ended", func() bool {
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
