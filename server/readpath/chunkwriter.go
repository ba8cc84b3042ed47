package readpath

import (
	"io"
	"sync"
)

// chunkSize is about how many bytes of a response are written at a time.
const chunkSize = 256 << 10

// bufferSize is the size of a buffer for chunks.
const bufferSize = chunkSize + chunkSize/4

// maxBuffered is how many bytes are collected in a buffer. Events are compressed into it, too, and what can't be
// compressed grows by the headers of its blocks.
const maxBuffered = bufferSize - 1<<10

var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, bufferSize)) }}

func getBuffer() []byte { return (*buffers.Get().(*[]byte))[:0] }

// putBuffer returns a buffer to the pool, unless a large object has made it larger than it counts.
func putBuffer(b []byte) {
	if cap(b) == bufferSize {
		buffers.Put(&b)
	}
}

// chunkWriter collects small writes into chunks.
type chunkWriter struct {
	w io.Writer
	b []byte
}

// Write copies p, unless it is larger than a chunk: then p is written behind what was collected.
func (c *chunkWriter) Write(p []byte) (int, error) {
	large := len(p) > chunkSize
	if large || len(c.b)+len(p) > maxBuffered {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	if large {
		return c.w.Write(p)
	}
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
