package history

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// A copy takes about 12 bytes in a delta: shorter parts are written out.
	minCopy = 20
	// hashBytes is how many bytes the index of a base tells parts apart by.
	hashBytes = 8
	hashBits  = 13
	// maxCounted bounds the characters that a database counts to read a delta: it looks for each part from the beginning
	// of the base.
	maxCounted = 16 << 20
)

// Base is a text that others are written as deltas of. It is immutable.
type Base struct {
	text  string
	ascii bool
	index index
}

// NewBase returns the base with a text, or nil if a database cannot count its characters.
func NewBase(text string) *Base {
	if !countable(text) || len(text) > maxBase {
		return nil
	}
	return &Base{text, isASCII(text), newIndex(text)}
}

// countable reports whether databases agree on the number of characters of a text.
func countable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// Size returns about how many bytes of memory the base takes.
func (b *Base) Size() int { return len(b.text) + 4<<hashBits }

// Delta returns text as what differs from the base, in JSON that a database can read: an array of strings, and of pairs
// [from, length] that stand for a part of the base, in characters, the first of which is 1. It returns false if a
// database cannot count the characters of text, if the delta would not be shorter than text, or if it has too
// many parts.
func (b *Base) Delta(text string) (string, bool) {
	if !countable(text) {
		return "", false
	}
	base, index := b.text, b.index
	d := deltaWriter{base: base, ascii: b.ascii, out: make([]byte, 0, 256)}
	written, resume := 0, 0 // the end of the last copy, in text and in base
	for at := 0; at+hashBytes <= len(text); {
		from, length := index.match(text, at)
		// Values of one length are often replaced: behind one, the base continues where it would without the change.
		if aligned := resume + at - written; aligned < len(base) {
			if n := common(base[aligned:], text[at:]); n >= hashBytes && n >= length {
				from, length = aligned, n
			}
		}
		if length == 0 {
			at++
			continue
		}
		// Backwards, over what no index entry has found.
		for from > 0 && at > written && base[from-1] == text[at-1] {
			from, at, length = from-1, at-1, length+1
		}
		from, length = wholeCharacters(base, from, length)
		if length < minCopy {
			at += max(length, 1)
			continue
		}
		if !utf8.RuneStart(text[at]) { // wholeCharacters has moved the beginning
			for !utf8.RuneStart(text[at]) {
				at++
			}
		}
		d.literal(text[written:at])
		d.copy(from, length)
		at += length
		written, resume = at, from+length
	}
	d.literal(text[written:])
	delta := d.end()
	return delta, len(delta) < len(text) && d.copies*len(base) <= maxCounted
}

// maxBase bounds the bytes of a base, whose index is in memory.
const maxBase = 4 << 20

// wholeCharacters makes a part of base shorter until it begins and ends with whole characters.
func wholeCharacters(base string, from, length int) (int, int) {
	for length > 0 && !utf8.RuneStart(base[from]) {
		from, length = from+1, length-1
	}
	for end := from + length; length > 0 && end < len(base) && !utf8.RuneStart(base[end]); end-- {
		length--
	}
	return from, length
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// index finds parts of a base by their first bytes.
type index struct {
	base string
	last []int32 // by hash: 1 + where a part begins, 0: nowhere
}

func newIndex(base string) index {
	x := index{base, make([]int32, 1<<hashBits)}
	for i := len(base) - hashBytes; i >= 0; i-- { // the first of equal parts remains
		x.last[hash(base[i:])] = int32(i + 1)
	}
	return x
}

func hash(text string) uint32 {
	h := uint64(0)
	for i := range hashBytes {
		h = h<<8 | uint64(text[i])
	}
	return uint32(h * 0x9e3779b97f4a7c15 >> (64 - hashBits))
}

// match returns the part of the base that text has from at on, with length 0 if there is none.
func (x index) match(text string, at int) (from, length int) {
	from = int(x.last[hash(text[at:])]) - 1
	if from < 0 {
		return 0, 0
	}
	if length = common(x.base[from:], text[at:]); length < hashBytes {
		return 0, 0
	}
	return from, length
}

// common returns how many bytes two texts begin with in common.
func common(a, b string) (length int) {
	for length < len(a) && length < len(b) && a[length] == b[length] {
		length++
	}
	return length
}

// deltaWriter writes a delta.
type deltaWriter struct {
	base  string
	ascii bool
	out   []byte
	// counted characters are before the byte passed of base.
	passed, counted int
	copies          int
}

func (d *deltaWriter) begin() {
	if len(d.out) == 0 {
		d.out = append(d.out, '[')
	} else {
		d.out = append(d.out, ',')
	}
}

func (d *deltaWriter) literal(text string) {
	if text == "" {
		return
	}
	d.begin()
	d.out = append(d.out, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			d.out = append(d.out, '\\', c)
		case c < 0x20:
			d.out = fmt.Appendf(d.out, `\u%04x`, c)
		default:
			d.out = append(d.out, c)
		}
	}
	d.out = append(d.out, '"')
}

func (d *deltaWriter) copy(from, length int) {
	d.begin()
	d.copies++
	first, characters := from, length
	if !d.ascii {
		first, characters = d.characters(from), utf8.RuneCountInString(d.base[from:from+length])
	}
	d.out = append(d.out, '[')
	d.out = strconv.AppendInt(d.out, int64(first+1), 10)
	d.out = append(d.out, ',')
	d.out = strconv.AppendInt(d.out, int64(characters), 10)
	d.out = append(d.out, ']')
}

// characters returns how many characters are before a byte of the base.
func (d *deltaWriter) characters(from int) int {
	if from < d.passed {
		d.passed, d.counted = 0, 0
	}
	d.counted += utf8.RuneCountInString(d.base[d.passed:from])
	d.passed = from
	return d.counted
}

func (d *deltaWriter) end() string {
	if len(d.out) == 0 {
		return "[]"
	}
	return string(append(d.out, ']'))
}
