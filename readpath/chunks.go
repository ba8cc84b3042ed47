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
