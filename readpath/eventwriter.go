package readpath

import "io"

// watchBufferSize is the size of the buffer of a watch: one of getBuffer.
const watchBufferSize = chunkSize + chunkSize/4

// eventWriter writes encoded events, several with one Write. It does not copy a single event, since
// most of the time a watch has one to send. If there is no room for a buffer, it writes events one by
// one.
type eventWriter struct {
	w       io.Writer
	acquire func() (release func()) // reserves room for a buffer; returns nil if there is none
	single  []byte
	b       []byte // a buffer, once there are two events
	release func() // of b's room
	err     error  // of a write: nothing is written after it
}

// ensureBuffer reports whether there is a buffer for further events.
func (e *eventWriter) ensureBuffer() bool {
	if e.b != nil {
		return true
	}
	if e.release = e.acquire(); e.release == nil {
		return false
	}
	e.b = append(getBuffer(), e.single...)
	e.single = nil
	return true
}

// add adds an encoded event, which must not change until it is written.
func (e *eventWriter) add(event []byte) {
	if (e.single != nil || len(e.b) > 0) && !e.ensureBuffer() {
		_ = e.flush() // e.err has the error
	}
	if e.b == nil {
		e.single = event
	} else {
		e.b = append(e.b, event...)
	}
}

// flushIfLarge writes the events if they are a chunk or more.
func (e *eventWriter) flushIfLarge() error {
	if len(e.b) < chunkSize {
		return e.err
	}
	return e.flush()
}

func (e *eventWriter) flush() error {
	out := e.b
	if e.single != nil {
		out = e.single
	}
	e.b, e.single = e.b[:0], nil
	if len(out) > 0 && e.err == nil {
		_, e.err = e.w.Write(out)
	}
	return e.err
}

// releaseBuffer releases the buffer, which is empty. Further events get another one.
func (e *eventWriter) releaseBuffer() {
	if e.b != nil {
		putBuffer(e.b)
		e.release()
		e.b, e.release = nil, nil
	}
}
