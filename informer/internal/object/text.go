package object

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// text is JSON on its way through a decoder. It is known to be valid: source/kube
// has checked it while it cut it out. Nothing here looks for an end that must be
// there.
type text struct {
	b  []byte
	at int
}

// peek passes over white space and is the first byte of what follows.
func (t *text) peek() byte {
	for {
		switch c := t.b[t.at]; c {
		case ' ', '\t', '\n', '\r':
			t.at++
		default:
			return c
		}
	}
}

// enter passes the bracket that begins an object or an array, and reports whether
// something is in it. If not, it passes its end too.
func (t *text) enter() bool {
	t.at++
	if c := t.peek(); c == '}' || c == ']' {
		t.at++
		return false
	}
	return true
}

// more passes what is behind an element, and reports whether another one follows.
func (t *text) more() bool {
	c := t.peek()
	t.at++
	return c == ','
}

// name reads the name of a member, and the colon behind it. It is valid until the
// text is not any more.
func (t *text) name() []byte {
	t.peek()
	name := t.quoted()
	t.peek()
	t.at++
	return name
}

// quoted reads a string.
func (t *text) quoted() []byte {
	from := t.at
	t.passString()
	b := t.b[from+1 : t.at-1]
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	b, _ = jsontext.AppendUnquote(nil, t.b[from:t.at])
	return b
}

func (t *text) passString() {
	t.at++
	for {
		switch t.b[t.at] {
		case '"':
			t.at++
			return
		case '\\':
			t.at += 2
		default:
			t.at++
		}
	}
}

// raw passes over a value.
func (t *text) raw() []byte {
	t.peek()
	from := t.at
	depth := 0
	for {
		switch t.b[t.at] {
		case '"':
			t.passString()
		case '{', '[':
			depth++
			t.at++
			continue
		case '}', ']':
			depth--
			t.at++
		case ',', ':', ' ', '\t', '\n', '\r':
			t.at++
			continue
		default:
			t.passLiteral()
		}
		if depth == 0 {
			return t.b[from:t.at]
		}
	}
}

// literal reads a number, true, false or null.
func (t *text) literal() []byte {
	from := t.at
	t.passLiteral()
	return t.b[from:t.at]
}

func (t *text) passLiteral() {
	for t.at < len(t.b) {
		switch t.b[t.at] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return
		}
		t.at++
	}
}
