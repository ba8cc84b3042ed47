package nats

import (
	"fmt"
	"strings"
)

// token returns a text as a part of a name: letters, digits and - as they are, a dot as _, any other byte as
// = and two hexadecimal digits, and the empty text as _. It is the same for no two names of resources, of
// namespaces or of objects.
func token(text string) string {
	if text == "" {
		return "_"
	}
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-':
			b.WriteByte(c)
		case c == '.':
			b.WriteByte('_')
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}
