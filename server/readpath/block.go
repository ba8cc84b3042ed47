package readpath

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

// block is a part of a gzip member that is compressed independently: it ends at a byte boundary and
// refers to nothing before it, so that blocks in any order are a valid stream. The checksum of the
// member is combined from those of its blocks.
type block struct {
	deflated []byte
	length   int64 // uncompressed
	sum      uint32
}

// level is the fastest, as in kube-apiserver.
const level = flate.BestSpeed

var compressors = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, level)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// compress returns a compressed block.
func compress(raw []byte) *block {
	w := compressors.Get().(*flate.Writer)
	defer compressors.Put(w)
	var b bytes.Buffer
	b.Grow(len(raw)/10 + 64)
	w.Reset(&b)
	// Writes to a Buffer never fail.
	_, _ = w.Write(raw)
	_ = w.Flush()
	return &block{deflated: bytes.Clone(b.Bytes()), length: int64(len(raw)), sum: crc32.ChecksumIEEE(raw)}
}

// storedBlockSize is the largest size of a stored block of deflate, whose length has 16 bits.
const storedBlockSize = math.MaxUint16

// stored returns an uncompressed block, of as many stored blocks of deflate as raw needs.
func stored(raw []byte) *block {
	var b []byte
	for part := range slices.Chunk(raw, storedBlockSize) {
		b = append(b, 0) // not the last block, not compressed
		b = binary.LittleEndian.AppendUint16(b, uint16(len(part)))
		b = binary.LittleEndian.AppendUint16(b, ^uint16(len(part)))
		b = append(b, part...)
	}
	return &block{deflated: b, length: int64(len(raw)), sum: crc32.ChecksumIEEE(raw)}
}

// maxUncompressed is the length up to which compression costs more than it saves.
const maxUncompressed = 512

// edgeBlock returns the block of a list's head or tail, of any length: the head of a Table contains the
// descriptions of all columns.
func edgeBlock(raw []byte) *block {
	if len(raw) <= maxUncompressed {
		return stored(raw)
	}
	return compress(raw)
}

// gzipHeader begins a member: no name, no time, fastest compression, unknown system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff}

// lastBlock is an empty block with the mark of the last one.
var lastBlock = []byte{3, 0}

// appendMember appends a block as a gzip member. A client that reads the member as it arrives has all of
// the block before it reads the end of the member.
func appendMember(b []byte, content *block) []byte {
	b = append(append(b, gzipHeader...), content.deflated...)
	return appendMemberEnd(b, content.sum, content.length)
}

func appendMemberEnd(b []byte, sum uint32, length int64) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, lastBlock...), sum)
	return binary.LittleEndian.AppendUint32(b, uint32(length))
}

// memberLength returns the uncompressed length of a gzip member, which is below 4 GiB.
func memberLength(member []byte) int {
	return int(binary.LittleEndian.Uint32(member[len(member)-4:]))
}

// gzipMember writes blocks as one gzip member (RFC 1952).
type gzipMember struct {
	w      io.Writer
	length int64
	sum    uint32
}

func newGzipMember(w io.Writer) (*gzipMember, error) {
	_, err := w.Write(gzipHeader)
	return &gzipMember{w: w}, err
}

func (m *gzipMember) write(b *block) error {
	m.sum = combine(m.sum, b.sum, b.length)
	m.length += b.length
	_, err := m.w.Write(b.deflated)
	return err
}

func (m *gzipMember) close() error {
	_, err := m.w.Write(appendMemberEnd(nil, m.sum, m.length))
	return err
}
