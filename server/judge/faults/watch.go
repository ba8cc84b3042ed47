package faults

import (
	"bufio"
	"io"
	"time"
)

// frame is a frame of a watch, or the beginning of one and why there is no
// more.
type frame struct {
	bytes   []byte
	message []byte // in bytes; nil if the frame is not an event
	err     error
}

// watch forwards frames, and does the fault and commands between them.
func (x *exchange) watch(body io.Reader, fault Fault) {
	frames, wait := x.read(body)
	defer wait()
	x.proxy.open(x)
	defer x.proxy.close(x)
	_ = x.flush() // the client may wait long for the first event
	alarm := newAlarm(fault.after)
	defer alarm.Stop()
	due := false
	for {
		if fault = x.unlessCalm(fault); fault.kind != none && (due || x.reached(fault.after)) {
			if !x.act(fault) {
				return
			}
			fault = None
		}
		select {
		case f := <-frames:
			fault = x.unlessCalm(fault)
			if at := fault.after.bytes; fault.kind == tear && at > 0 && x.sent+int64(len(f.bytes)) > at {
				x.tear(f.bytes, fault)
			}
			if !x.forwardFrame(f) {
				return
			}
			if fault.after.idle > 0 {
				alarm.Reset(fault.after.idle)
			}
		case <-alarm.C:
			due = true
		case command := <-x.commands:
			if !x.act(command) {
				return
			}
		case <-x.ctx.Done():
			return
		}
	}
}

// unlessCalm returns a fault that has not begun, or None if it is of a plan that is over.
func (x *exchange) unlessCalm(fault Fault) Fault {
	if x.planned && x.proxy.calm.Load() {
		return None
	}
	return fault
}

// newAlarm returns the timer of a position in time. For another one it is stopped.
func newAlarm(p position) *time.Timer {
	timer := time.NewTimer(max(p.idle, p.elapsed))
	if p.idle == 0 && p.elapsed == 0 {
		timer.Stop()
	}
	return timer
}

// reached reports whether the position of a fault is reached, unless that is a time.
func (x *exchange) reached(p position) bool {
	return p.idle == 0 && p.elapsed == 0 && x.sent >= p.bytes && x.entry.Frames >= p.events
}

// read reads frames in a goroutine, which wait ends together with the exchange.
func (x *exchange) read(body io.Reader) (frames chan frame, wait func()) {
	frames, done := make(chan frame), make(chan struct{})
	go func() {
		defer close(done)
		for reader, more := bufio.NewReader(body), true; more; {
			var f frame
			f.bytes, f.message, f.err = x.framing.read(reader)
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

// forwardFrame forwards a frame, or what the editor makes of it, and returns whether more follow.
func (x *exchange) forwardFrame(f frame) (more bool) {
	if f.err != nil {
		x.end(f)
		return false
	}
	fault := x.editor.fault
	edited, injected := x.editor.frame(x.framing, f.bytes, f.message)
	if injected {
		x.injected(fault)
	}
	for _, whole := range edited {
		if !x.send(whole, f.message != nil) {
			return false
		}
		x.last = whole
	}
	return true
}

// end forwards the end of upstream's watch.
func (x *exchange) end(f frame) {
	for _, whole := range x.editor.rest() {
		x.send(whole, true)
	}
	if len(f.bytes) > 0 && !x.send(f.bytes, true) {
		return
	}
	if f.err != io.EOF {
		x.fail(f.err)
	}
}

// send sends a frame, and returns whether the client is still connected.
func (x *exchange) send(whole []byte, isEvent bool) bool {
	if x.write(whole) != nil || x.flush() != nil {
		return false
	}
	if isEvent {
		x.record(func(e *Entry, _ time.Duration) { e.Frames++ })
	}
	return true
}

// act applies a fault, and returns whether the exchange continues.
func (x *exchange) act(fault Fault) (more bool) {
	if fault.kind.edits() { // recorded when it has an effect
		x.editor.fault = fault
		return true
	}
	x.injected(fault)
	switch fault.kind {
	case none:
		return true
	case event, answer:
		return x.errorEvent(fault)
	case garbage:
		return x.garbage()
	case repeat:
		return x.last == nil || x.send(x.last, true)
	case stall:
		return x.stall(fault)
	case halfOpen:
		return x.freeze(fault)
	case slow:
		x.rate = fault.bytes
		return true
	case outage, expired:
		x.disconnectAll(fault)
	case reset:
		connectionOf(x.r).reset()
	case tear:
		if x.framing != nil {
			_ = x.write(x.framing.torn())
		}
	case end:
		if x.framing != nil {
			_ = x.write(x.framing.envelope.end())
			return false
		}
	case cut:
	}
	x.abort()
	return false
}

// errorEvent sends an ERROR event, after which a server ends a watch.
func (x *exchange) errorEvent(fault Fault) (more bool) {
	message, err := x.framing.errorEvent(fault.status)
	if err != nil {
		x.fail(err)
	}
	if x.send(x.framing.wrap(message), true) {
		_ = x.write(x.framing.envelope.end())
	}
	return false
}

func (x *exchange) garbage() (more bool) {
	if x.framing == nil {
		_ = x.write([]byte("garbage"))
		return false
	}
	return x.send(x.framing.wrap(x.framing.encoding.garbage()), true)
}

// tear sends as much of a frame as the fault wants, but neither none nor all.
func (x *exchange) tear(whole []byte, fault Fault) {
	x.injected(fault)
	n := min(max(fault.after.bytes-x.sent, 1), int64(len(whole))-1)
	_ = x.write(whole[:n])
	x.abort()
}

// stall waits until the fault is over, or for a command, which it does.
func (x *exchange) stall(fault Fault) (more bool) {
	_ = x.flush()
	command, more := x.waitForCommand(fault, nil)
	return more && (command == None || x.act(command))
}

// freeze is stall with a frozen connection. The proxy notices a client that closes the connection, and not one that
// closes a request of several.
func (x *exchange) freeze(fault Fault) (more bool) {
	_ = x.flush()
	c := connectionOf(x.r)
	c.freeze()
	defer c.thaw()
	command, more := x.waitForCommand(fault, c.gone)
	c.thaw()
	return more && (command == None || x.act(command))
}

// waitForCommand returns the command that ends a fault, or None when its time is over. No more follows when the client
// is gone.
func (x *exchange) waitForCommand(fault Fault, gone <-chan struct{}) (command Fault, more bool) {
	over := newAlarm(position{elapsed: fault.length})
	defer over.Stop()
	select {
	case <-over.C:
		return None, true
	case command := <-x.commands:
		return command, true
	case <-gone:
		return None, false
	case <-x.ctx.Done():
		return None, false
	}
}
