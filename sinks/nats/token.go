package nats

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

const (
	// maxToken is the number of bytes of the longest token that is not a hash. A subject has to fit in a server's
	// max_control_line, 4096 by default. Only names that are free text, such as those of RBAC, are longer.
	maxToken = 512
	// beginning is how much the hash of a longer token has of it.
	beginning = 64
)

// token returns a text as a part of a name: letters, digits and - as they are, a dot as _, any other byte as
// = and two hexadecimal digits, and the empty text as _. If that is too long, it is the beginning, == and the SHA-256
// of the text. It is the same for no two names of resources, of namespaces or of objects.
func token(text string) string {
	encoded := encode(text)
	if len(encoded) <= maxToken {
		return encoded
	}
	return fmt.Sprintf("%s==%x", encoded[:beginning], sha256.Sum256([]byte(text)))
}

func encode(text string) string {
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
