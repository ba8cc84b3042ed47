package readpath

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// stalledAfter is how long an admitted response may make no progress while other requests wait to be admitted. It is
	// shorter than queueTimeout, so that clients that do not read cannot make others wait in vain.
	stalledAfter = 5 * time.Second
	// progressSize is what a client must read for a response to make progress.
	progressSize = 64 << 10
)

// admittedResponse is a response that has been admitted. It writes in pieces, and knows since when it has written the
// present one.
type admittedResponse struct {
	http.ResponseWriter
	ctx   context.Context // of its request
	flow  string
	since atomic.Int64 // when the write of the piece began, in nanoseconds; zero between pieces
	ended bool         // by endStalled. Guarded by admission.mu
}

// Unwrap lets net/http find the methods of the writer below.
func (r *admittedResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *admittedResponse) Write(b []byte) (written int, err error) {
	for first := true; err == nil && (first || written < len(b)); first = false {
		r.since.Store(time.Now().UnixNano())
		var n int
		n, err = r.ResponseWriter.Write(b[written:min(written+progressSize, len(b))])
		written += n
	}
	r.since.Store(0)
	return written, err
}

// stalled reports whether the response has made no progress for a duration.
func (r *admittedResponse) stalled(d time.Duration) bool {
	since := r.since.Load()
	return since != 0 && time.Now().UnixNano()-since >= int64(d)
}

// track adds a response to those that may end when they make no progress, until done is called. Its flow has reserved
// what it needs.
func (a *admission) track(w http.ResponseWriter, q *http.Request, flow string) (r *admittedResponse, done func()) {
	r = &admittedResponse{ResponseWriter: w, ctx: q.Context(), flow: flow}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.responses[r] = struct{}{}
	return r, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.responses, r)
	}
}

// endStalled ends a response that makes no progress, of the flow that has reserved most. A waiting request calls it
// from time to time.
func (a *admission) endStalled() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found *admittedResponse
	for r := range a.responses {
		if !r.ended && r.stalled(a.stalledAfter) &&
			(found == nil || a.users[r.flow].reserved > a.users[found.flow].reserved) {
			found = r
		}
	}
	if found != nil {
		found.ended = true
		endWrites(found.ctx)
	}
}
