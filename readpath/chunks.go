package readpath

import (
	"io"
	"sync"
)

// buffers are what answers are put together in.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, chunk+chunk/4)) }}

func takeBuffer() []byte { return (*buffers.Get().(*[]byte))[:0] }

// giveBuffer takes a buffer back, unless one huge object has made it huge.
func giveBuffer(b []byte) {
	if cap(b) <= 2*chunk {
		buffers.Put(&b)
	}
}

// chunks gathers small writes.
type chunks struct {
	w io.Writer
	b []byte
}

func (c *chunks) Write(p []byte) (int, error) {
	c.b = append(c.b, p...)
	if len(c.b) < chunk {
		return len(p), nil
	}
	return len(p), c.flush()
}

func (c *chunks) flush() error {
	_, err := c.w.Write(c.b)
	c.b = c.b[:0]
	return err
}

// gather puts frames together that are written at the same time. A frame that is
// alone is not copied: most of the time a watch has one to send.
type gather struct {
	w      io.Writer
	single []byte
	b      []byte
}

// add adds a frame, which must not change until it is written.
func (g *gather) add(frame []byte) {
	if g.single == nil && len(g.b) == 0 {
		g.single = frame
		return
	}
	g.b = append(g.buffer(), frame...)
}

// buffer is what frames are appended to.
func (g *gather) buffer() []byte {
	if g.b == nil {
		g.b = takeBuffer()
	}
	g.b = append(g.b, g.single...)
	g.single = nil
	return g.b
}

// spill writes what has been gathered if it is much.
func (g *gather) spill() error {
	if len(g.b) < chunk {
		return nil
	}
	return g.flush()
}

func (g *gather) flush() error {
	out := g.b
	if g.single != nil {
		out = g.single
	}
	g.b, g.single = g.b[:0], nil
	if len(out) == 0 {
		return nil
	}
	_, err := g.w.Write(out)
	return err
}

// done gives the buffer back.
func (g *gather) done() {
	if g.b != nil {
		giveBuffer(g.b)
	}
}
