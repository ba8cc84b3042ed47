package readpath

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// EndWrites lets a [Handler] behind next end the writes of an answer that nobody reads with its
// request. It is the outermost handler of an API server's chain. The filter in between that ends
// requests at their deadline, or when the client has gone, leaves the handlers behind it in a
// goroutine of their own, for which the connection, or the stream of HTTP/2, may have ended already.
func EndWrites(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		d := &writeDeadline{out: http.NewResponseController(w), reused: q.ProtoMajor == 1}
		defer d.end()
		next.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), writeDeadlineKey{}, d)))
	})
}

type writeDeadlineKey struct{}

// writeDeadline is that of one answer. It is safe for concurrent use.
type writeDeadline struct {
	mu     sync.Mutex
	out    *http.ResponseController // nil once the answer has ended
	set    bool
	reused bool // the connection is
}

// boundWrites ends writes shortly before a request's deadline. The API server would wait for a client
// that has stopped reading: to end a request it needs the lock that the write holds. Watches have
// no such deadline.
func boundWrites(ctx context.Context) {
	d, known := ctx.Value(writeDeadlineKey{}).(*writeDeadline)
	end, ok := ctx.Deadline()
	left := time.Until(end)
	if !known || !ok || left <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.out != nil {
		d.set = d.out.SetWriteDeadline(end.Add(-left/60)) == nil // HTTP/1 and 2 have one
	}
}

// end forgets the answer.
func (d *writeDeadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.set && d.reused {
		_ = d.out.SetWriteDeadline(time.Time{})
	}
	d.out = nil
}
