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
	r, over := newRig(t, pods, options{}), make(chan struct{})
	server := httptest.NewUnstartedServer(WithWriteDeadline(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.handler.ServeHTTP(w, r.withInfo(q.WithContext(deadline{q.Context(), over})))
	})))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	answer := must(server.Client().Get(server.URL + r.path("") + "?watch=1&timeoutSeconds=1000"))(t)
	defer answer.Body.Close()
	close(over)
	if _, err := io.ReadAll(answer.Body); err != nil || answer.ProtoMajor != 2 || answer.StatusCode != http.StatusOK {
		t.Errorf("%s %s ends with %v", answer.Proto, answer.Status, err)
	}
}

// deadline is a context whose deadline is over once a channel is closed.
type deadline struct {
	context.Context
	over chan struct{}
}

func (deadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (d deadline) Done() <-chan struct{}     { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
