package testserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/server/routine"
)

// faults stand before the handlers of a server, and outlive its restarts.
type faults struct {
	log requestLog

	mu       sync.Mutex
	failures []*failure
	delays   []delay
	watches  map[*openWatch]struct{}
	released chan struct{} // closed when the server stops: delays end
}

// failure answers the next requests that match.
type failure struct {
	match  Match
	left   int
	status func(Request) metav1.Status
}

type delay struct {
	match Match
	time  time.Duration
}

// openWatch is the response of one watch.
type openWatch struct {
	cancel context.CancelFunc
	isCut  atomic.Bool
}

func newFaults() *faults {
	return &faults{watches: map[*openWatch]struct{}{}, released: make(chan struct{})}
}

// release ends the delays of requests in progress, since a server waits for their answers when it stops.
func (f *faults) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.released)
	f.released = make(chan struct{})
}

// around returns a handler that logs requests and puts faults before them.
func (f *faults) around(handlers http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r, foreign := requestOf(q)
		if !foreign {
			handlers.ServeHTTP(w, q)
			return
		}
		answered := f.log.add(r)
		status, fails := f.failed(r) // before a delay: a request that waits, or whose client has gone, is none of the next
		f.wait(q.Context(), r)
		if fails {
			answered(int(status.Code))
			answer(w, status)
			return
		}
		observed := &statusWriter{ResponseWriter: w, answered: answered}
		if r.Verb == "watch" {
			f.serveWatch(handlers, observed, q)
			return
		}
		handlers.ServeHTTP(responsewriter.WrapForHTTP1Or2(observed), q)
		observed.ended()
	})
}

// refused logs a request that authentication or authorization has refused.
func (f *faults) refused(q *http.Request, status int) {
	if r, foreign := requestOf(q); foreign && (status == http.StatusUnauthorized || status == http.StatusForbidden) {
		f.log.add(r)(status)
	}
}

// wait waits for the delays that match a request.
func (f *faults) wait(ctx context.Context, r Request) {
	f.mu.Lock()
	delays, released := slices.Clone(f.delays), f.released
	f.mu.Unlock()
	var whole time.Duration
	for _, d := range delays {
		if d.match.selects(r) {
			whole += d.time
		}
	}
	if whole == 0 {
		return
	}
	timer := time.NewTimer(whole)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-released:
	case <-ctx.Done():
	}
}

// failed returns the answer of the first failure that matches.
func (f *faults) failed(r Request) (metav1.Status, bool) {
	f.mu.Lock()
	failures := slices.Clone(f.failures)
	f.mu.Unlock()
	for _, failing := range failures {
		if failing.match.selects(r) && f.take(failing) {
			return failing.status(r), true
		}
	}
	return metav1.Status{}, false
}

// take counts a request that a failure matches. It reports false if the failure has ended meanwhile.
func (f *faults) take(failing *failure) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.failures, failing) {
		return false
	}
	if failing.left--; failing.left == 0 {
		f.failures = slices.DeleteFunc(f.failures, func(other *failure) bool { return other == failing })
	}
	return true
}

// answer writes a status as the API does.
func answer(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // a client that is gone needs no answer
}

// serveWatch serves a watch that CutWatches can cut. A handler may return with a task that serves the watch.
func (f *faults) serveWatch(handlers http.Handler, w *statusWriter, q *http.Request) {
	ctx, cancel := context.WithCancel(q.Context())
	open := &openWatch{cancel: cancel}
	f.mu.Lock()
	f.watches[open] = struct{}{}
	f.mu.Unlock()
	context.AfterFunc(ctx, func() { // also after a panic
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watches, open)
	})
	handlers.ServeHTTP(responsewriter.WrapForHTTP1Or2(w), q.WithContext(ctx))
	end := func() {
		defer cancel()
		w.ended()
		if open.isCut.Load() {
			panic(http.ErrAbortHandler) // the response breaks, without an end
		}
	}
	if !routine.AppendTask(q.Context(), &routine.Task{Func: end}) {
		end()
	}
}

// statusWriter records the status of a response.
type statusWriter struct {
	http.ResponseWriter
	answered func(int)
	once     sync.Once
}

func (w *statusWriter) WriteHeader(status int) {
	w.once.Do(func() { w.answered(status) })
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { w.answered(http.StatusOK) })
	return w.ResponseWriter.Write(b)
}

// ended records the status of a response without a body.
func (w *statusWriter) ended() { w.once.Do(func() { w.answered(http.StatusOK) }) }

// Unwrap returns the response; see responsewriter.UserProvidedDecorator.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// CutWatches breaks the responses of all watches that are open, in the middle: no error event, no end. Clients can
// watch again at once.
func (s *Server) CutWatches() {
	f := s.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	for open := range f.watches {
		open.isCut.Store(true)
		open.cancel()
	}
}

// Fail answers the next n requests that match with an HTTP status, of 400 or above, and an API error of that status.
// They are not executed. The answer has no Retry-After, for which client-go would repeat the request by itself. Zero
// ends earlier calls of Fail and Conflict for all requests.
func (s *Server) Fail(m Match, status, n int) {
	s.t.Helper()
	if status < http.StatusBadRequest || status > 599 {
		s.t.Fatalf("testserver: the status %d is not an error: give one from 400 to 599", status)
	}
	s.faults.add(&failure{match: m, left: n, status: func(r Request) metav1.Status {
		resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		return apierrors.NewGenericServerResponse(status, r.Verb, resource, r.Name, "a fault of the test server", 0,
			false).ErrStatus
	}})
}

// Conflict answers the next n updates and patches of any object with 409 Conflict, as if the object had changed in
// between. They are not executed.
func (s *Server) Conflict(n int) {
	s.faults.add(&failure{
		left:  n,
		match: func(r Request) bool { return r.Resource != "" && (r.Verb == "update" || r.Verb == "patch") },
		status: func(r Request) metav1.Status {
			resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
			return apierrors.NewConflict(resource, r.Name,
				errors.New("the object has been modified; please apply your changes to the latest version and try again")).ErrStatus
		},
	})
}

// add adds a failure; one of no requests ends all others.
func (f *faults) add(failing *failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if failing.left <= 0 {
		f.failures = nil
		return
	}
	f.failures = append(f.failures, failing)
}

// Delay makes the server wait for d before it executes a request that matches, from now on. The delays of several calls
// add up; zero ends all of them. A server that stops does not wait.
func (s *Server) Delay(m Match, d time.Duration) {
	f := s.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	if d <= 0 {
		f.delays = nil
		return
	}
	f.delays = append(f.delays, delay{m, d})
}
