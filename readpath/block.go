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

// block is a piece of a gzip member that was compressed by itself: it ends at a byte
// boundary and refers to nothing before it, so that any blocks in a row are a valid
// stream. The member's checksum is combined from theirs.
type block struct {
	deflated []byte
	length   int64 // of what it unpacks to
	sum      uint32
}

// level is how hard to compress: the fastest, as kube-apiserver does.
const level = flate.BestSpeed

var compressors = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, level)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// compress makes a block.
func compress(raw []byte) *block {
	w := compressors.Get().(*flate.Writer)
	defer compressors.Put(w)
	var b bytes.Buffer
	b.Grow(len(raw)/10 + 64)
	w.Reset(&b)
	// Neither fails: a Buffer doesn't.
	_, _ = w.Write(raw)
	_ = w.Flush()
	return &block{deflated: bytes.Clone(b.Bytes()), length: int64(len(raw)), sum: crc32.ChecksumIEEE(raw)}
}

// maxStored is how many bytes one of deflate's stored blocks can have: its length is 16 bits.
const maxStored = math.MaxUint16

// stored makes a block without compression, of as many of deflate's stored blocks as raw takes.
func stored(raw []byte) *block {
	var b []byte
	for part := range slices.Chunk(raw, maxStored) {
		b = append(b, 0) // not the last block, not compressed
		b = binary.LittleEndian.AppendUint16(b, uint16(len(part)))
		b = binary.LittleEndian.AppendUint16(b, ^uint16(len(part)))
		b = append(b, part...)
	}
	return &block{deflated: b, length: int64(len(raw)), sum: crc32.ChecksumIEEE(raw)}
}

// storedMost is up to which length compression is not worth its time.
const storedMost = 512

// wrap makes the block of a list's head or tail, of any length: the head of a Table has the
// descriptions of all columns.
func wrap(raw []byte) *block {
	if len(raw) <= storedMost {
		return stored(raw)
	}
	return compress(raw)
}

// gzipHeader is that of a member: no name, no time, unknown system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff}

// lastBlock is an empty one that says that it is the last.
var lastBlock = []byte{3, 0}

// member writes blocks as one gzip member.
type member struct {
	w      io.Writer
	length int64
	sum    uint32
}

func newMember(w io.Writer) (*member, error) {
	_, err := w.Write(gzipHeader)
	return &member{w: w}, err
}

func (m *member) write(b *block) error {
	m.sum = combine(m.sum, b.sum, b.length)
	m.length += b.length
	_, err := m.w.Write(b.deflated)
	return err
}

func (m *member) close() error {
	end := binary.LittleEndian.AppendUint32(bytes.Clone(lastBlock), m.sum)
	_, err := m.w.Write(binary.LittleEndian.AppendUint32(end, uint32(m.length)))
	return err
}
