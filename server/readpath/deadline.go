package readpath

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// WithWriteDeadline returns a handler that lets a [Handler] behind next set the deadline for writing a
// response. It must be the outermost handler of an API server's chain. The library's timeout filter
// returns at the deadline of a request, or when its client is gone, and leaves the handlers behind it
// running in another goroutine: by then the connection, or the stream of HTTP/2, may have ended.
func WithWriteDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		d := &writeDeadline{out: http.NewResponseController(w), reused: q.ProtoMajor == 1}
		defer d.end()
		next.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), writeDeadlineKey{}, d)))
	})
}

type writeDeadlineKey struct{}

// writeDeadline sets the deadline of one response. It is safe for concurrent use.
type writeDeadline struct {
	mu     sync.Mutex
	out    *http.ResponseController // nil once the response has ended
	set    bool
	reused bool // the connection can serve another request
}

// setWriteDeadline makes writes fail shortly before a request's deadline. Otherwise the API server would
// wait for a client that has stopped reading: to end a request it needs a lock that the write has
// locked. Watches have no such deadline.
func setWriteDeadline(ctx context.Context) {
	d, found := ctx.Value(writeDeadlineKey{}).(*writeDeadline)
	end, ok := ctx.Deadline()
	left := time.Until(end)
	if !found || !ok || left <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.out != nil {
		d.set = d.out.SetWriteDeadline(end.Add(-left/60)) == nil // HTTP/1 and HTTP/2 support it
	}
}

// endWrites makes the writes of a response fail.
func endWrites(ctx context.Context) {
	d, found := ctx.Value(writeDeadlineKey{}).(*writeDeadline)
	if !found {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.out != nil {
		_ = d.out.SetWriteDeadline(time.Unix(1, 0))
	}
}

// end removes the deadline from the connection. Later calls of setWriteDeadline do nothing.
func (d *writeDeadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.set && d.reused {
		_ = d.out.SetWriteDeadline(time.Time{})
	}
	d.out = nil
}
