package faults

import (
	"bufio"
	"io"
	"time"
)

// frame is a frame of a watch, or the beginning of one and why there is no
// more.
type frame struct {
	bytes []byte
	err   error
}

// watch forwards frames, and does the fault and commands between them.
func (x *exchange) watch(body io.Reader, fault Fault) {
	frames, wait := x.read(body)
	defer wait()
	x.proxy.open(x)
	defer x.proxy.close(x)
	_ = x.flush() // the client may wait long for the first event
	for {
		if fault.kind != none && x.sent >= fault.after {
			if !x.act(fault) {
				return
			}
			fault = None
		}
		select {
		case f := <-frames:
			if fault.kind == tear && x.sent+int64(len(f.bytes)) > fault.after {
				x.tear(f.bytes, fault)
			}
			if !x.forwardFrame(f) {
				return
			}
		case command := <-x.commands:
			if !x.act(command) {
				return
			}
		case <-x.ctx.Done():
			return
		}
	}
}

// read reads frames in a goroutine, which wait ends together with the exchange.
func (x *exchange) read(body io.Reader) (frames chan frame, wait func()) {
	frames, done := make(chan frame), make(chan struct{})
	go func() {
		defer close(done)
		for reader, more := bufio.NewReader(body), true; more; {
			var f frame
			f.bytes, f.err = x.framing.read(reader)
			more = f.err == nil
			select {
			case frames <- f:
			case <-x.ctx.Done():
				return
			}
		}
	}()
	return frames, func() {
		x.cancel()
		<-done
	}
}

// forwardFrame forwards a frame, and returns whether more follow.
func (x *exchange) forwardFrame(f frame) (more bool) {
	if len(f.bytes) > 0 && !x.send(f.bytes) || f.err == io.EOF {
		return false
	}
	if f.err != nil {
		x.fail(f.err)
	}
	x.last = f.bytes
	return true
}

// send sends a frame, and returns whether the client is still connected.
func (x *exchange) send(frame []byte) bool {
	if x.write(frame) != nil || x.flush() != nil {
		return false
	}
	x.record(func(e *Entry, _ time.Duration) { e.Frames++ })
	return true
}

// act applies a fault, and returns whether the exchange continues.
func (x *exchange) act(fault Fault) (more bool) {
	x.injected(fault)
	switch fault.kind {
	case none:
		return true
	case event, answer:
		return x.errorEvent(fault)
	case garbage:
		return x.garbage()
	case repeat:
		return x.last == nil || x.send(x.last)
	case stall:
		return x.stall()
	case freeze:
		return x.freeze()
	case reset:
		connectionOf(x.r).reset()
	case tear:
		if x.framing != nil {
			_ = x.write(x.framing.torn())
		}
	case end:
		if x.framing != nil {
			return false
		}
	case truncate:
	}
	x.abort()
	return false
}

// errorEvent sends an ERROR event, after which a server ends a watch.
func (x *exchange) errorEvent(fault Fault) (more bool) {
	frame, err := x.framing.errorEvent(fault.status)
	if err != nil {
		x.fail(err)
	}
	x.send(frame)
	return false
}

func (x *exchange) garbage() (more bool) {
	if x.framing == nil {
		_ = x.write([]byte("garbage"))
		return false
	}
	return x.send(x.framing.garbage())
}

// tear sends as much of a frame as the fault wants, but neither none nor all.
func (x *exchange) tear(whole []byte, fault Fault) {
	x.injected(fault)
	n := min(max(fault.after-x.sent, 1), int64(len(whole))-1)
	_ = x.write(whole[:n])
	x.abort()
}

// stall waits for a command, and does it.
func (x *exchange) stall() (more bool) {
	_ = x.flush()
	select {
	case command := <-x.commands:
		return x.act(command)
	case <-x.ctx.Done():
		return false
	}
}

// freeze is stall with a frozen connection. The proxy does not notice a client that
// disconnects.
func (x *exchange) freeze() (more bool) {
	_ = x.flush()
	c := connectionOf(x.r)
	c.freeze()
	defer c.thaw()
	select {
	case command := <-x.commands:
		c.thaw()
		return x.act(command)
	case <-x.ctx.Done():
		return false
	}
}
