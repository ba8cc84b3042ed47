package forward

import (
	"cmp"
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
	// maxUnread bounds the unread responses of one flow, maxOwnedUnread those of all flows of one owner, and maxAllUnread
	// those of all. The agents of many nodes have one owner, and each of them a response or two.
	maxUnread, maxOwnedUnread, maxAllUnread = 100, 500, 1000
)

// share is who a response counts for, as access.Control.Flow has it.
type share struct{ owner, flow string }

// unreadResponses bounds the forwarded responses whose clients do not read: each occupies buffers. Of too many those
// are cut off that have been unread longest, in the flow that has most, of the owner that has most. It is safe for
// concurrent use.
type unreadResponses struct {
	after, timeout           time.Duration
	most, mostOwned, mostAll int
	cutOff                   *metrics.CounterVec

	mu    sync.Mutex
	flows map[share][]*forwardedResponse // longest first
	owned map[string]int                 // by owner
	all   int
	last  int // the number of the one that was counted last
}

func newUnreadResponses(registry metrics.KubeRegistry) *unreadResponses {
	u := &unreadResponses{
		after: unreadAfter, timeout: unreadTimeout, most: maxUnread, mostOwned: maxOwnedUnread, mostAll: maxAllUnread,
		flows: map[share][]*forwardedResponse{}, owned: map[string]int{},
		cutOff: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "keepwatch_proxy_unread_responses_total", StabilityLevel: metrics.ALPHA,
			Help: "Forwarded responses that were cut off because their clients did not read them, by reason: timeout, or share if their user had too many.",
		}, []string{"reason"}),
	}
	registry.MustRegister(u.cutOff)
	return u
}

// writer returns the writer of a forwarded response. of returns who it counts for when it has begun.
func (u *unreadResponses) writer(w http.ResponseWriter, q *http.Request, of func() share) http.ResponseWriter {
	return &forwardedResponse{ResponseWriter: w, control: http.NewResponseController(w), of: of, unread: u,
		stream: isStream(q.Context())}
}

// isStream reports whether a response may last for long, as in kube-apiserver: a watch or a log, for example.
func isStream(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	return ok && info.IsResourceRequest && (info.Verb == "watch" ||
		slices.Contains([]string{"attach", "exec", "log", "portforward", "proxy"}, info.Subresource))
}

// add counts a response as unread.
func (u *unreadResponses) add(of share, r *forwardedResponse) {
	u.flows[of] = append(u.flows[of], r)
	u.owned[of.owner]++
	u.all++
	u.last++
	r.countedIn, r.number = &of, u.last
	switch {
	case len(u.flows[of]) > u.most:
		u.cut(u.flows[of][0], "share")
	case u.owned[of.owner] > u.mostOwned:
		u.cut(u.longest(func(other share) bool { return other.owner == of.owner }), "share")
	case u.all > u.mostAll:
		u.cut(u.longest(func(share) bool { return true }), "share")
	}
}

// longest returns the oldest response of the flow with most, of the owner with most, among some flows; the oldest of
// several such ones.
func (u *unreadResponses) longest(among func(share) bool) (found *forwardedResponse) {
	for of, responses := range u.flows {
		if !among(of) {
			continue
		}
		first := responses[0]
		if found == nil || cmp.Or(u.owned[of.owner]-u.owned[found.countedIn.owner],
			len(responses)-len(u.flows[*found.countedIn]), found.number-first.number) > 0 {
			found = first
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
	of := *r.countedIn
	r.countedIn = nil
	u.all--
	if u.owned[of.owner]--; u.owned[of.owner] == 0 {
		delete(u.owned, of.owner)
	}
	if u.flows[of] = slices.DeleteFunc(u.flows[of], func(other *forwardedResponse) bool {
		return other == r
	}); len(u.flows[of]) == 0 {
		delete(u.flows, of)
	}
}

// forwardedResponse notices writes that block. Write and FlushError are called by one goroutine at a time.
type forwardedResponse struct {
	http.ResponseWriter
	control *http.ResponseController
	of      func() share
	unread  *unreadResponses
	stream  bool // it may last for long

	// Guarded by unread.mu.
	writing   int         // the number of the write that goes on, or 0
	writes    int         // so far
	countedIn *share      // in which the response counts as unread
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
	of := r.of()
	r.unread.mu.Lock()
	defer r.unread.mu.Unlock()
	if r.writing != number {
		return
	}
	r.unread.add(of, r)
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
