package readpath

import "io"

// perWatch is what a watch holds while it sends many events: a buffer of chunks.go.
const perWatch = chunk + chunk/4

// gather puts frames together that are written at the same time. A frame that is alone is not
// copied: most of the time a watch has one to send. Without room for a buffer, frames are written
// one by one.
type gather struct {
	w       io.Writer
	room    func() (release func()) // reserves room for a buffer; the result is nil if there is none
	single  []byte
	b       []byte // a buffer, once there are two frames
	release func() // gives the room of b back
	err     error  // of a write: nothing is written after it
}

// buffer reports whether there is a buffer that frames can be appended to.
func (g *gather) buffer() bool {
	if g.b != nil {
		return true
	}
	if g.release = g.room(); g.release == nil {
		return false
	}
	g.b = append(takeBuffer(), g.single...)
	g.single = nil
	return true
}

// add adds a frame, which must not change until it is written.
func (g *gather) add(frame []byte) {
	if (g.single != nil || len(g.b) > 0) && !g.buffer() {
		_ = g.flush() // an error is kept
	}
	if g.b == nil {
		g.single = frame
	} else {
		g.b = append(g.b, frame...)
	}
}

// spill writes what has been gathered if it is much.
func (g *gather) spill() error {
	if len(g.b) < chunk {
		return g.err
	}
	return g.flush()
}

func (g *gather) flush() error {
	out := g.b
	if g.single != nil {
		out = g.single
	}
	g.b, g.single = g.b[:0], nil
	if len(out) > 0 && g.err == nil {
		_, g.err = g.w.Write(out)
	}
	return g.err
}

// done gives the buffer back. The next frames get another one.
func (g *gather) done() {
	if g.b != nil {
		giveBuffer(g.b)
		g.release()
		g.b, g.release = nil, nil
	}
}
