package forward

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
)

const (
	// unreadAfter is how long a write of a forwarded response may block until the response counts as unread. A write has
	// at most 32 KiB.
	unreadAfter = time.Second
	// unreadTimeout is how long a client may read nothing of a response that is not a stream, as long as kube-apiserver's
	// --request-timeout.
	unreadTimeout = time.Minute
	// maxUnread bounds the unread responses of one flow, and maxAllUnread those of all.
	maxUnread, maxAllUnread = 100, 1000
)

// unreadResponses bounds the forwarded responses whose clients do not read: each occupies buffers. Of too many those
// are cut off that have been unread longest, in the flow that has most. It is safe for concurrent use.
type unreadResponses struct {
	after, timeout time.Duration
	most, mostAll  int
	cutOff         *metrics.CounterVec

	mu    sync.Mutex
	flows map[string][]*forwardedResponse // longest first
	all   int
	last  int // the number of the one that was counted last
}

func newUnreadResponses(registry metrics.KubeRegistry) *unreadResponses {
	u := &unreadResponses{
		after: unreadAfter, timeout: unreadTimeout, most: maxUnread, mostAll: maxAllUnread,
		flows: map[string][]*forwardedResponse{},
		cutOff: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "keepwatch_proxy_unread_responses_total", StabilityLevel: metrics.ALPHA,
			Help: "Forwarded responses that were cut off because their clients did not read them, by reason: timeout, or share if their user had too many.",
		}, []string{"reason"}),
	}
	registry.MustRegister(u.cutOff)
	return u
}

// writer returns the writer of a forwarded response. flow returns its flow when it has begun.
func (u *unreadResponses) writer(w http.ResponseWriter, q *http.Request, flow func() string) http.ResponseWriter {
	return &forwardedResponse{ResponseWriter: w, control: http.NewResponseController(w), flow: flow, unread: u,
		stream: isStream(q.Context())}
}

// isStream reports whether a response may last for long, as in kube-apiserver: a watch or a log, for example.
func isStream(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.IsResourceRequest && (info.Verb == "watch" ||
		slices.Contains([]string{"attach", "exec", "log", "portforward", "proxy"}, info.Subresource))
}

// add counts a response as unread.
func (u *unreadResponses) add(flow string, r *forwardedResponse) {
	u.flows[flow] = append(u.flows[flow], r)
	u.last++
	r.countedIn, r.number = &flow, u.last
	if u.all++; len(u.flows[flow]) > u.most {
		u.cut(u.flows[flow][0], "share")
	} else if u.all > u.mostAll {
		u.cut(u.flows[u.longest()][0], "share")
	}
}

// longest returns the flow with most unread responses; of several such flows that with the oldest.
func (u *unreadResponses) longest() (found string) {
	for flow, responses := range u.flows {
		most := u.flows[found]
		if n := len(responses) - len(most); n > 0 || n == 0 && responses[0].number < most[0].number {
			found = flow
		}
	}
	return found
}

// cut cuts off a response that counts as unread: its write fails.
func (u *unreadResponses) cut(r *forwardedResponse, why string) {
	u.remove(r)
	u.cutOff.WithLabelValues(why).Inc()
	_ = r.control.SetWriteDeadline(time.Unix(1, 0))
}

// remove counts a response no longer.
func (u *unreadResponses) remove(r *forwardedResponse) {
	flow := *r.countedIn
	r.countedIn = nil
	u.all--
	if u.flows[flow] = slices.DeleteFunc(u.flows[flow], func(other *forwardedResponse) bool {
		return other == r
	}); len(u.flows[flow]) == 0 {
		delete(u.flows, flow)
	}
}

// forwardedResponse notices writes that block. Write and FlushError are called by one goroutine at a time.
type forwardedResponse struct {
	http.ResponseWriter
	control *http.ResponseController
	flow    func() string
	unread  *unreadResponses
	stream  bool // it may last for long

	// Guarded by unread.mu.
	writing   int         // the number of the write that goes on, or 0
	writes    int         // so far
	countedIn *string     // the flow in which the response counts as unread
	number    int         // among all that were ever counted
	timeout   *time.Timer // while it does
}

// Unwrap lets net/http find the methods of the writer below.
func (r *forwardedResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *forwardedResponse) Write(b []byte) (n int, err error) {
	r.observe(func() { n, err = r.ResponseWriter.Write(b) })
	return n, err
}

// FlushError flushes as http.ResponseController does.
func (r *forwardedResponse) FlushError() (err error) {
	r.observe(func() { err = r.control.Flush() })
	return err
}

// observe calls write, which may panic, and counts the response as unread while that blocks for long.
func (r *forwardedResponse) observe(write func()) {
	number := r.begin()
	timer := time.AfterFunc(r.unread.after, func() { r.blocked(number) })
	defer func() {
		timer.Stop()
		r.end()
	}()
	write()
}

func (r *forwardedResponse) begin() int {
	r.unread.mu.Lock()
	defer r.unread.mu.Unlock()
	r.writes++
	r.writing = r.writes
	return r.writes
}

// blocked counts the response as unread, if the write still goes on. The response cannot end meanwhile: end waits for
// the lock.
func (r *forwardedResponse) blocked(number int) {
	flow := r.flow()
	r.unread.mu.Lock()
	defer r.unread.mu.Unlock()
	if r.writing != number {
		return
	}
	r.unread.add(flow, r)
	if !r.stream && r.countedIn != nil {
		r.timeout = time.AfterFunc(r.unread.timeout-r.unread.after, func() { r.late(number) })
	}
}

// late cuts the response off, if the write still goes on.
func (r *forwardedResponse) late(number int) {
	r.unread.mu.Lock()
	defer r.unread.mu.Unlock()
	if r.writing == number && r.countedIn != nil {
		r.unread.cut(r, "timeout")
	}
}

func (r *forwardedResponse) end() {
	r.unread.mu.Lock()
	defer r.unread.mu.Unlock()
	r.writing = 0
	if r.countedIn != nil {
		r.unread.remove(r)
	}
	if r.timeout != nil {
		r.timeout.Stop()
		r.timeout = nil
	}
}
