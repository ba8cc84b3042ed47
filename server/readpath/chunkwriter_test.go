package readpath

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// A chunkWriter writes the bytes in their order, whatever the sizes of the writes, and its buffer never grows.
func TestChunkWriterKeepsTheOrder(t *testing.T) {
	sizes := rapid.OneOf(rapid.IntRange(0, 1000), rapid.IntRange(1, 200_000), rapid.IntRange(chunkSize-1000, bufferSize+
		1000),
		rapid.SampledFrom([]int{chunkSize, chunkSize + 1, maxBuffered, maxBuffered + 1, 2 * bufferSize}))
	rapid.Check(t, func(t *rapid.T) {
		var sent, want bytes.Buffer
		c := &chunkWriter{w: &sent, b: getBuffer()}
		defer func() { putBuffer(c.b) }()
		for i := range rapid.IntRange(0, 10).Draw(t, "writes") {
			p := bytes.Repeat([]byte{byte('a' + i)}, sizes.Draw(t, "size"))
			want.Write(p)
			if n, err := c.Write(p); n != len(p) || err != nil {
				t.Fatalf("%d of %d bytes, %v", n, len(p), err)
			}
			if cap(c.b) != bufferSize {
				t.Fatalf("the buffer has room for %d, want %d", cap(c.b), bufferSize)
			}
		}
		if err := c.flush(); err != nil || !bytes.Equal(sent.Bytes(), want.Bytes()) {
			t.Fatalf("%d bytes are sent, want %d, or they differ: %v", sent.Len(), want.Len(), err)
		}
	})
}
