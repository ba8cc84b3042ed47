package history

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// Text is the text of a base, to read what was written as a delta of it. It is immutable.
type Text struct {
	text string
	// characters are where each character begins, and the end; nil if each is a byte.
	characters []int32
}

// NewText returns the text of a base.
func NewText(text string) *Text {
	t := &Text{text: text}
	if !isASCII(text) {
		for i := range text {
			t.characters = append(t.characters, int32(i))
		}
		t.characters = append(t.characters, int32(len(text)))
	}
	return t
}

// Size returns about how many bytes of memory the text takes.
func (t *Text) Size() int { return len(t.text) + 4*len(t.characters) }

// part returns characters of the text, the first of which is 1.
func (t *Text) part(first, length int) (string, bool) {
	count := len(t.text)
	if t.characters != nil {
		count = len(t.characters) - 1
	}
	if first < 1 || length < 0 || length > count || first-1 > count-length {
		return "", false
	}
	from, end := first-1, first-1+length
	if t.characters != nil {
		from, end = int(t.characters[from]), int(t.characters[end])
	}
	return t.text[from:end], true
}

var errDelta = errors.New("a compressed state is damaged")

// Apply returns the text that [Base.Delta] has written as a delta of this one.
func (t *Text) Apply(delta string) ([]byte, error) {
	d := deltaReader{rest: delta}
	if !d.skip("[") {
		return nil, errDelta
	}
	out := make([]byte, 0, len(t.text)+len(delta))
	for more := !d.skip("]"); more; {
		if d.skip(`"`) {
			var ok bool
			if out, ok = d.literal(out); !ok {
				return nil, errDelta
			}
		} else {
			text, ok := d.copied(t)
			if !ok {
				return nil, errDelta
			}
			out = append(out, text...)
		}
		more = d.skip(",")
		if !more && !d.skip("]") {
			return nil, errDelta
		}
	}
	if d.rest != "" {
		return nil, errDelta
	}
	return out, nil
}

// deltaReader reads a delta.
type deltaReader struct{ rest string }

// skip skips a text if it is the next one.
func (d *deltaReader) skip(text string) bool {
	if len(d.rest) < len(text) || d.rest[:len(text)] != text {
		return false
	}
	d.rest = d.rest[len(text):]
	return true
}

// literal appends the string up to its closing quote.
func (d *deltaReader) literal(out []byte) ([]byte, bool) {
	for i := 0; i < len(d.rest); i++ {
		switch d.rest[i] {
		case '"':
			out = append(out, d.rest[:i]...)
			d.rest = d.rest[i+1:]
			return out, true
		case '\\':
			out = append(out, d.rest[:i]...)
			c, _, tail, err := strconv.UnquoteChar(d.rest[i:], '"')
			if err != nil {
				return nil, false
			}
			out = utf8.AppendRune(out, c)
			d.rest, i = tail, -1
		}
	}
	return nil, false
}

// copied returns the part of a text that the next pair stands for.
func (d *deltaReader) copied(of *Text) (string, bool) {
	var pair [2]int
	for i, before := range []string{"[", ","} {
		if !d.skip(before) {
			return "", false
		}
		digits := 0
		for digits < len(d.rest) && d.rest[digits] >= '0' && d.rest[digits] <= '9' {
			digits++
		}
		n, err := strconv.Atoi(d.rest[:digits])
		if err != nil {
			return "", false
		}
		pair[i], d.rest = n, d.rest[digits:]
	}
	if !d.skip("]") {
		return "", false
	}
	return of.part(pair[0], pair[1])
}
