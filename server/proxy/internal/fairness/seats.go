package fairness

import (
	"context"
	"net/http"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// leaveAfter is how long a request may wait for somebody else, such as its client in a write, until it gives its seats
// back: others shall not wait for that.
const leaveAfter = 100 * time.Millisecond

// occupation is the time in which a request occupies its seats. It is a flowcontrol.InitializationSignal, which ends
// it: readers signal the end of the initial events of a watch.
type occupation struct {
	begun, ended chan struct{}
	end          sync.Once
}

type occupationKey struct{}

// occupy occupies the seats of a request that the filter has admitted.
func occupy(_ http.ResponseWriter, q *http.Request) {
	o := q.Context().Value(occupationKey{}).(*occupation)
	close(o.begun)
	o.Wait()
}

// Signal gives the seats back.
func (o *occupation) Signal() { o.end.Do(func() { close(o.ended) }) }

// Wait waits until the seats are given back.
func (o *occupation) Wait() { <-o.ended }

// Leave gives the seats of a request back, which goes on without: it waits for somebody.
func Leave(ctx context.Context) { flowcontrol.WatchInitialized(ctx) }

// LeaveIfLong gives the seats of a request back if done is not called soon: it waits for somebody.
func LeaveIfLong(ctx context.Context) (done func()) {
	timer := time.AfterFunc(leaveAfter, func() { Leave(ctx) })
	return func() { timer.Stop() }
}

// Forget removes what the gate has written into the header of a response that the server shall send.
func Forget(h http.Header) {
	h.Del(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	h.Del(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
}

// response returns a writer that gives the seats back when a write blocks.
func (o *occupation) response(w http.ResponseWriter) http.ResponseWriter {
	return &response{w, http.NewResponseController(w), o}
}

// Below returns the writer below that of a gate, for a request that has left its seats and hijacks its connection.
func Below(w http.ResponseWriter) http.ResponseWriter {
	if r, ok := w.(*response); ok {
		return r.ResponseWriter
	}
	return w
}

type response struct {
	http.ResponseWriter
	control    *http.ResponseController
	occupation *occupation
}

// Unwrap lets net/http find the methods of the writer below.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *response) Write(b []byte) (int, error) {
	defer r.observe()()
	return r.ResponseWriter.Write(b)
}

// FlushError flushes as http.ResponseController does.
func (r *response) FlushError() error {
	defer r.observe()()
	return r.control.Flush()
}

// observe gives the seats back if its result is not called soon.
func (r *response) observe() (written func()) {
	select {
	case <-r.occupation.ended:
		return func() {}
	default:
	}
	timer := time.AfterFunc(leaveAfter, r.occupation.Signal)
	return func() { timer.Stop() }
}
