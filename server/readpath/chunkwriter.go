package readpath

import (
	"io"
	"sync"
)

// chunkSize is about how many bytes of a response are written at a time.
const chunkSize = 256 << 10

// buffers are for chunks.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, chunkSize+chunkSize/4)) }}

func getBuffer() []byte { return (*buffers.Get().(*[]byte))[:0] }

// putBuffer returns a buffer to the pool, unless a huge object has made it huge.
func putBuffer(b []byte) {
	if cap(b) <= 2*chunkSize {
		buffers.Put(&b)
	}
}

// chunkWriter collects small writes into chunks.
type chunkWriter struct {
	w io.Writer
	b []byte
}

func (c *chunkWriter) Write(p []byte) (int, error) {
	c.b = append(c.b, p...)
	if len(c.b) < chunkSize {
		return len(p), nil
	}
	return len(p), c.flush()
}

func (c *chunkWriter) flush() error {
	_, err := c.w.Write(c.b)
	c.b = c.b[:0]
	return err
}
