package wire

import (
	"bytes"
	"encoding/binary"
)

// Counter counts something in a text that arrives in pieces.
type Counter interface {
	// Count is how many ended in this piece.
	Count(piece []byte) int
}

// Lines counts the events of a watch in JSON, which end with the only newline they
// have.
type Lines struct{}

// Count counts newlines.
func (Lines) Count(piece []byte) int { return bytes.Count(piece, newline) }

var newline = []byte{'\n'}

// Blocks counts the events of a watch in protobuf: each is preceded by its length in
// four bytes.
type Blocks struct {
	prefix [4]byte
	have   int // bytes of the prefix
	left   int // bytes of the block that are missing, once the prefix is complete
}

// Count counts blocks that are whole.
func (b *Blocks) Count(piece []byte) (n int) {
	for len(piece) > 0 {
		if b.have < len(b.prefix) {
			took := copy(b.prefix[b.have:], piece)
			b.have += took
			piece = piece[took:]
			if b.have < len(b.prefix) {
				return n
			}
			b.left = int(binary.BigEndian.Uint32(b.prefix[:]))
		}
		took := min(b.left, len(piece))
		b.left -= took
		piece = piece[took:]
		if b.left == 0 {
			b.have = 0
			n++
		}
	}
	return n
}

// Marks counts the occurrences of a text that does not overlap itself.
type Marks struct {
	text []byte
	tail []byte // the end of the last text, shorter than the mark
}

// NewMarks counts text, which isn't empty.
func NewMarks(text string) *Marks { return &Marks{text: []byte(text)} }

// Count counts the texts that are whole with this piece.
func (m *Marks) Count(piece []byte) int {
	n := 0
	if len(m.tail) > 0 {
		seam := append(m.tail, piece[:min(len(piece), len(m.text)-1)]...)
		n = bytes.Count(seam, m.text)
		if len(piece) < len(m.text) {
			// All of it is in the seam.
			m.retain(seam)
			return n
		}
	}
	n += bytes.Count(piece, m.text)
	m.retain(piece)
	return n
}

// retain stores the end of text if a mark can begin there.
func (m *Marks) retain(text []byte) {
	if i := bytes.LastIndex(text, m.text); i >= 0 {
		text = text[i+len(m.text):]
	}
	m.tail = append(m.tail[:0:0], text[max(0, len(text)-len(m.text)+1):]...)
}
