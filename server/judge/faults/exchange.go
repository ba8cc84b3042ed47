package faults

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// exchange is one request and its answer.
type exchange struct {
	proxy  *Proxy
	ctx    context.Context // ends when the client has closed the request, or by cancel
	cancel context.CancelFunc
	w      http.ResponseWriter
	r      *http.Request
	out    io.Writer // of the answer's body: w, or a WebSocket's connection
	entry  *Entry

	planned bool // its fault is of the plan, and so ends with it

	sent int64 // bytes of the body
	rate int64 // bytes a second, or 0

	// Of a watch. An answer without frames has no framing.
	framing  *framing
	editor   editor
	commands chan Fault // the latest of Now that has not happened
	last     []byte     // frame, whole
}

func (x *exchange) serve(fault Fault) {
	if refusal := x.proxy.upstream.refusal(x.r); refusal != nil {
		x.status(newStatus(answer, refusal).status)
		return
	}
	if x.proxy.history != nil && slices.Contains(revisions, x.entry.Class) {
		x.proxy.history.observe(x.ctx, x.r)
	}
	fault, more := x.before(fault)
	if !more {
		return
	}
	if isUpgrade(x.r) {
		x.upgrade(fault)
		return
	}
	response, err := x.forward()
	if err != nil {
		x.fail(err)
	}
	defer response.Body.Close()
	x.record(func(e *Entry, _ time.Duration) { e.Code = response.StatusCode })
	maps.Copy(x.w.Header(), response.Header)
	if fault.kind != none {
		x.w.Header().Del("Content-Length") // there may be less
	}
	x.w.WriteHeader(response.StatusCode)
	if x.isWatch() {
		x.framing = framingOf(response)
	}
	if x.framing != nil {
		x.watch(response.Body, fault)
	} else {
		x.copy(response.Body, fault)
	}
}

func (x *exchange) isWatch() bool {
	return x.entry.Class == Watch || x.entry.Class == StreamList
}

// before applies a fault that occurs before the request is forwarded, and returns the one for the answer, and
// whether the exchange continues.
func (x *exchange) before(fault Fault) (rest Fault, more bool) {
	switch fault.kind {
	case event:
		if x.isWatch() {
			return fault, true
		}
		x.answer(fault)
		return None, false
	case answer:
		x.answer(fault)
		return None, false
	case refuse:
		x.injected(fault)
		connectionOf(x.r).reset()
		return None, false
	case outage, expired:
		if fault.after != (position{}) {
			return fault, true
		}
		x.injected(fault)
		x.disconnectAll(fault)
		return None, false
	case delay:
		x.injected(fault)
		return None, x.sleep(fault.length)
	case stale, rewind:
		return None, x.past(fault)
	case same:
		x.firstPage(fault)
		return None, true
	case scratch:
		x.fromScratch(fault)
		return None, true
	}
	return fault, true
}

// disconnectAll resets all connections, and for a time refuses new ones or serves an expired certificate on
// them.
func (x *exchange) disconnectAll(fault Fault) {
	p := x.proxy
	if fault.kind == expired {
		p.certificate.expire(fault.length)
	} else {
		if err := p.listener.beginOutage(); err != nil {
			x.fail(err)
		}
		p.endOutageAfter(fault.length)
	}
	p.listener.resetAll()
}

// past applies a state of the past, and returns whether the request is still to be forwarded.
func (x *exchange) past(fault Fault) (more bool) {
	h, path, requested := x.proxy.history, x.r.URL.Path, x.entry.Revision
	revision := h.past(path, fault.lag, fault.kind == rewind)
	query := x.r.URL.Query()
	switch {
	case revision == "" || x.entry.match == string(metav1.ResourceVersionMatchExact):
		return true
	case requested != "" && requested != "0" && isNewer(requested, revision):
		fault.status = newStatus(fault.kind, tooLarge(requested, revision)).status
		x.answer(fault)
		return false
	case x.entry.Class == StreamList && fault.kind == rewind: // its state cannot be requested; clients fall back to a list
		fault.status = newStatus(fault.kind, statuses["Invalid"]()).status
		x.answer(fault)
		return false
	case x.isWatch(), fault.kind == stale && requested == "":
		return true
	}
	x.injected(fault)
	x.r = x.r.Clone(x.ctx)
	x.r.URL.RawQuery = pastQuery(query, revision)
	return true
}

// firstPage makes the request one for the first page of the list that it continues. The answer of a server that has
// that revision has the continue token of the first page. A token that cannot be read is forwarded.
func (x *exchange) firstPage(fault Fault) {
	query := x.r.URL.Query()
	revision := revisionOf(query.Get("continue"))
	if revision == "" {
		return
	}
	x.injected(fault)
	query.Del("continue")
	x.r = x.r.Clone(x.ctx)
	x.r.URL.RawQuery = pastQuery(query, revision)
}

// fromScratch removes the revision that a watch resumes at: the server sends all that exists, and then what changes.
func (x *exchange) fromScratch(fault Fault) {
	if x.entry.Revision == "" || x.entry.Revision == "0" {
		return // the client asks for it
	}
	x.injected(fault)
	query := x.r.URL.Query()
	query.Del("resourceVersion")
	x.r = x.r.Clone(x.ctx)
	x.r.URL.RawQuery = query.Encode()
}

// forward sends the request upstream. Its context ends with the answer. A watch is requested without
// compression, since faults occur between its frames.
func (x *exchange) forward() (*http.Response, error) {
	out := x.proxy.upstream.request(x.ctx, x.r)
	if x.isWatch() {
		out.Header.Del("Accept-Encoding")
	}
	return x.proxy.upstream.rounds.RoundTrip(out)
}

// answer answers the request with the fault's status.
func (x *exchange) answer(fault Fault) {
	x.injected(fault)
	status := *fault.status
	if x.entry.Class == ListPage && status.Reason == metav1.StatusReasonExpired {
		status = withContinue(status, x.r.URL.Query().Get("continue"))
	}
	x.status(&status)
}

func (x *exchange) status(status *metav1.Status) {
	header := x.w.Header()
	header.Set("Content-Type", "application/json")
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	x.record(func(e *Entry, _ time.Duration) { e.Code = int(status.Code) })
	x.w.WriteHeader(int(status.Code))
	body, err := json.Marshal(status)
	if err != nil {
		x.fail(err)
	}
	_ = x.write(body)
}

// copy forwards a body that has no frames, with the fault if it has a place in such a body. A watch has none if
// upstream refuses it or encodes it in another way: then it does not meet the faults of watches.
func (x *exchange) copy(body io.Reader, fault Fault) {
	ofWatches := x.isWatch() && kinds[fault.kind].classes != nil
	if ofWatches || fault.after.events > 0 || fault.after.idle > 0 || fault.after.elapsed > 0 {
		fault = None
	}
	buffer := make([]byte, 32<<10)
	for {
		room := buffer
		if fault.kind != none {
			room = room[:min(int64(len(room)), fault.after.bytes-x.sent)]
			if len(room) == 0 {
				if !x.act(fault) {
					return
				}
				fault = None
				continue
			}
		}
		n, err := body.Read(room)
		if x.write(room[:n]) != nil || err == io.EOF {
			return
		}
		if err != nil {
			x.fail(err)
		}
	}
}

// write sends part of the body, at the rate of a slow answer. An error means that the client has closed the
// request.
func (x *exchange) write(part []byte) error {
	for x.rate > 0 && len(part) > 0 {
		const tick = 50 * time.Millisecond
		n := min(len(part), max(1, int(x.rate*int64(tick)/int64(time.Second))))
		if err := x.writeNow(part[:n]); err != nil {
			return err
		}
		if err := x.flush(); err != nil {
			return err
		}
		if !x.sleep(time.Duration(n) * time.Second / time.Duration(x.rate)) {
			return x.ctx.Err()
		}
		part = part[n:]
	}
	return x.writeNow(part)
}

func (x *exchange) writeNow(part []byte) error {
	n, err := x.out.Write(part)
	x.sent += int64(n)
	x.record(func(e *Entry, _ time.Duration) { e.Bytes = x.sent })
	return err
}

// sleep waits, and returns whether the client is still connected.
func (x *exchange) sleep(length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.ctx.Done():
		return false
	}
}

// flush gets all that was written to the client's connection.
func (x *exchange) flush() error {
	if w, ok := x.out.(http.ResponseWriter); ok {
		return http.NewResponseController(w).Flush()
	}
	return nil
}

// abort breaks the answer off where it is.
func (x *exchange) abort() {
	_ = x.flush()
	panic(http.ErrAbortHandler)
}

// fail breaks the answer off because upstream's answer broke off.
func (x *exchange) fail(err error) {
	if x.ctx.Err() == nil { // or else the client went first
		x.record(func(e *Entry, _ time.Duration) { e.Err = clip(err.Error()) })
	}
	x.abort()
}

func (x *exchange) record(change func(e *Entry, now time.Duration)) {
	x.proxy.transcript.update(x.entry, change)
}

// maxInjected bounds the faults that a transcript has of one request.
const maxInjected = 100

func (x *exchange) injected(fault Fault) {
	x.record(func(e *Entry, now time.Duration) {
		if len(e.Faults) < maxInjected {
			e.Faults = append(e.Faults, Injected{fault.Name(), fault.after.String(), now})
		}
	})
}
