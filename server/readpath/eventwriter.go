package readpath

import "io"

// watchBufferSize is the size of the buffer of a watch: one of getBuffer. A client that reads nothing occupies it for
// ever, so that it never grows: a larger event is not copied into it.
const watchBufferSize = bufferSize

// eventWriter writes encoded events, several with one Write. It does not copy a single event, since
// most of the time a watch has one to send, nor one that is larger than a buffer. If there is no room for a buffer, it
// writes events one by one. A compressed watch is a sequence of gzip members.
type eventWriter struct {
	compression compression
	w           io.Writer
	acquire     func() (release func()) // reserves room for a buffer; returns nil if there is none
	single      []byte                  // an event that is not in b; if there is one, b is empty
	b           []byte                  // a buffer, once there are two events; at most maxBuffered
	release     func()                  // of b's room
	err         error                   // of a write: nothing is written after it
}

// compression is how an eventWriter compresses. The values are closed.
type compression uint8

const (
	uncompressed compression = iota
	// compressBuffers makes a member of the events in the buffer: the initial state belongs to one watch,
	// and compresses best in large parts. Without a buffer, a single event is a member, and is written
	// at once.
	compressBuffers
	// compressEvents makes a member of each event, so that watches share it.
	compressEvents
)

// takesMembers reports whether the next event is to be added as a gzip member.
func (e *eventWriter) takesMembers() bool {
	return e.compression == compressEvents || e.compression == compressBuffers && !e.ensureBuffer()
}

// takesPlain reports whether an event of n bytes is to be added as it is. In a compressed watch it is compressed with
// the buffer then, so that one that is larger than that must be a member.
func (e *eventWriter) takesPlain(n int) bool {
	return !e.takesMembers() && (e.compression == uncompressed || n <= maxBuffered)
}

// ensureBuffer reports whether there is a buffer for further events.
func (e *eventWriter) ensureBuffer() bool {
	if e.b == nil {
		if e.release = e.acquire(); e.release == nil {
			return false
		}
		e.b = getBuffer()
	}
	if len(e.single) > maxBuffered {
		_ = e.flush()
	}
	e.b, e.single = append(e.b, e.single...), nil
	return true
}

// makeRoom reports whether n bytes of a further event fit into the buffer. It writes what the buffer has if that is in
// the way.
func (e *eventWriter) makeRoom(n int) bool {
	if n > maxBuffered || !e.ensureBuffer() {
		return false
	}
	if len(e.b)+n > maxBuffered {
		_ = e.flush()
	}
	return true
}

// addUnshared adds an encoded event that only this watch sends.
func (e *eventWriter) addUnshared(event []byte) {
	if e.takesPlain(len(event)) {
		e.add(event)
		return
	}
	e.addMember(appendMember(nil, compress(event)))
}

// addMember adds an event as a gzip member, which must not change until it is written. The writer has e.err.
func (e *eventWriter) addMember(member []byte) {
	if e.compression == compressEvents {
		e.add(member)
		return
	}
	_ = e.flush() // what the buffer has is a member of its own
	e.single = member
	_ = e.flush()
}

// add adds an encoded event, which must not change until it is written. The writer has e.err.
func (e *eventWriter) add(event []byte) {
	if e.single == nil && e.b == nil { // the first one
		e.single = event
		return
	}
	if e.makeRoom(len(event)) {
		e.b = append(e.b, event...)
		return
	}
	_ = e.flush()
	e.single = event
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
	switch {
	case e.single != nil:
		out = e.single
	case e.compression == compressBuffers && len(e.b) > 0:
		out = appendMember(e.b[:0], compress(e.b)) // into the buffer, since the client may never read it
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
