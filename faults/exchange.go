package faults

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// exchange is one request and its answer.
type exchange struct {
	proxy  *Proxy
	ctx    context.Context // ends when the client has closed the request, or by cancel
	cancel context.CancelFunc
	w      http.ResponseWriter
	r      *http.Request
	entry  *Entry

	sent int64 // bytes of the body

	// Of a watch. An answer without frames has no framing.
	framing  framing
	commands chan Fault // the latest of Now that has not happened
	last     []byte     // frame, whole
}

func (x *exchange) serve(fault Fault) {
	watches := x.entry.Class == Watch || x.entry.Class == StreamList
	if fault.kind == answer || fault.kind == event && !watches {
		x.answer(fault)
		return
	}
	if isUpgrade(x.r) {
		x.upgrade()
		return
	}
	response, err := x.proxy.forward(x.ctx, x.r, watches)
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
	if watches {
		x.framing = framingOf(response)
	}
	if x.framing != nil {
		x.watch(response.Body, fault)
	} else {
		x.copy(response.Body, fault)
	}
}

// answer answers the request with the fault's status.
func (x *exchange) answer(fault Fault) {
	x.injected(fault)
	header, status := x.w.Header(), fault.status
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

// copy forwards a body that has no frames, up to the fault.
func (x *exchange) copy(body io.Reader, fault Fault) {
	buffer := make([]byte, 32<<10)
	for {
		room := buffer
		if fault.kind != none {
			room = room[:min(int64(len(room)), fault.after-x.sent)]
			if len(room) == 0 {
				x.act(fault)
				return
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

// write sends part of the body. An error means that the client has closed the request.
func (x *exchange) write(part []byte) error {
	n, err := x.w.Write(part)
	x.sent += int64(n)
	x.record(func(e *Entry, _ time.Duration) { e.Bytes = x.sent })
	return err
}

// flush gets all that was written to the client's connection.
func (x *exchange) flush() error { return http.NewResponseController(x.w).Flush() }

// abort breaks the answer off where it is.
func (x *exchange) abort() {
	_ = x.flush()
	panic(http.ErrAbortHandler)
}

// fail breaks the answer off because upstream's answer broke off.
func (x *exchange) fail(err error) {
	if x.ctx.Err() == nil { // or else the client went first
		x.record(func(e *Entry, _ time.Duration) { e.Err = err.Error() })
	}
	x.abort()
}

func (x *exchange) record(change func(e *Entry, now time.Duration)) {
	x.proxy.transcript.update(x.entry, change)
}

func (x *exchange) injected(fault Fault) {
	x.record(func(e *Entry, now time.Duration) {
		e.Faults = append(e.Faults, Injected{fault, now})
	})
}
