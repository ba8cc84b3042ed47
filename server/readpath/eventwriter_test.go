package readpath

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// An eventWriter writes each event once and in order, whatever their sizes, and its buffer never grows: a client that
// reads nothing would occupy more than is counted.
func TestEventWriterKeepsItsBuffer(t *testing.T) {
	sizes := rapid.OneOf(rapid.IntRange(1, 1000), rapid.IntRange(1, 200_000), rapid.IntRange(maxBuffered-1000, bufferSize+
		1000),
		rapid.Just(maxBuffered), rapid.Just(2*bufferSize))
	random := make([]byte, 20+2*bufferSize)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(random); i++ {
		random[i] = byte(r.Uint32()) // it can't be compressed
	}
	rapid.Check(t, func(t *rapid.T) {
		how := rapid.SampledFrom([]compression{uncompressed, compressBuffers, compressEvents}).Draw(t, "compression")
		room := rapid.Bool().Draw(t, "room for a buffer")
		var sent, want []byte
		e := &eventWriter{compression: how, acquire: func() func() {
			if room = room != (rapid.IntRange(0, 9).Draw(t, "room changes") == 0); !room {
				return nil
			}
			return func() {}
		}}
		e.w = writerFunc(func(b []byte) (int, error) {
			if how != uncompressed {
				members, err := gzip.NewReader(bytes.NewReader(b))
				if err == nil {
					b, err = io.ReadAll(members)
				}
				if err != nil {
					t.Fatal("what is written at a time is not complete:", err)
				}
			}
			sent = append(sent, b...)
			return 0, nil
		})
		for i := range rapid.IntRange(0, 10).Draw(t, "events") {
			size := sizes.Draw(t, "size")
			event := append(fmt.Appendf(nil, "%d:", i), random[i:i+size]...)
			want = append(want, event...)
			e.addUnshared(event)
			if rapid.Bool().Draw(t, "flush") {
				_ = e.flushIfLarge()
			}
			if e.b != nil && (cap(e.b) != bufferSize || len(e.b) > maxBuffered) {
				t.Fatalf("the buffer has %d bytes, and room for %d, want %d", len(e.b), cap(e.b), bufferSize)
			}
			if rapid.IntRange(0, 5).Draw(t, "flush and release") == 0 {
				_ = e.flush()
				e.releaseBuffer()
				if !bytes.Equal(sent, want) {
					t.Fatalf("%d bytes are sent, want %d, or they differ", len(sent), len(want))
				}
			}
		}
		_ = e.flush()
		if !bytes.Equal(sent, want) {
			t.Fatalf("%d bytes are sent, want %d, or they differ", len(sent), len(want))
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
