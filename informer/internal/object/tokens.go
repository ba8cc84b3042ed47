package object

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// tokens reads the tokens of a JSON text. The text must be valid, which source/kube has checked: no method
// checks that the text ends early. The slices that methods return point into the text.
type tokens struct {
	text []byte
	at   int
}

// peek skips white space and returns the first byte of the next token.
func (t *tokens) peek() byte {
	for {
		switch c := t.text[t.at]; c {
		case ' ', '\t', '\n', '\r':
			t.at++
		default:
			return c
		}
	}
}

// enter reads the bracket that begins an object or an array, and reports whether it has a first member or
// element. If not, enter also reads the bracket that ends it.
func (t *tokens) enter() bool {
	t.at++
	if c := t.peek(); c == '}' || c == ']' {
		t.at++
		return false
	}
	return true
}

// more reads the comma or the bracket after an element, and reports whether another element follows.
func (t *tokens) more() bool {
	c := t.peek()
	t.at++
	return c == ','
}

// name reads the name of a member, and the colon after it.
func (t *tokens) name() []byte {
	t.peek()
	name := t.string()
	t.peek()
	t.at++
	return name
}

// string reads a string.
func (t *tokens) string() []byte {
	from := t.at
	t.skipString()
	b := t.text[from+1 : t.at-1]
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	b, _ = jsontext.AppendUnquote(nil, t.text[from:t.at])
	return b
}

func (t *tokens) skipString() {
	t.at++
	for {
		switch t.text[t.at] {
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

// raw reads a value of any kind.
func (t *tokens) raw() []byte {
	t.peek()
	from := t.at
	depth := 0
	for {
		switch t.text[t.at] {
		case '"':
			t.skipString()
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
			t.skipLiteral()
		}
		if depth == 0 {
			return t.text[from:t.at]
		}
	}
}

// literal reads a number, true, false or null.
func (t *tokens) literal() []byte {
	from := t.at
	t.skipLiteral()
	return t.text[from:t.at]
}

func (t *tokens) skipLiteral() {
	for t.at < len(t.text) {
		switch t.text[t.at] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return
		}
		t.at++
	}
}

// null reads a null, and reports whether the next value is one.
func (t *tokens) null() bool {
	if t.peek() != 'n' {
		return false
	}
	t.skipLiteral()
	return true
}
