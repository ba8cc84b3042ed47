package postgres

import "bytes"

// acceptable returns a JSON text that jsonb accepts: it replaces what Kubernetes' strings may
// contain and Postgres' may not, the escape of NUL and of halves of surrogate pairs, by that of
// U+FFFD. A text without them is returned as it is.
func acceptable(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\u`)) {
		return text
	}
	var out []byte // nil while it equals text
	from := 0      // of text, what is not in out yet
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			i++
			continue
		}
		size := 2
		if unit, ok := escape(text[i:]); ok {
			size = 6
			low, paired := escape(text[i+6:])
			switch {
			case isHigh(unit) && paired && isLow(low):
				size = 12
			case unit == 0 || isHigh(unit) || isLow(unit):
				out = append(append(out, text[from:i]...), `\ufffd`...)
				from = i + 6
			}
		}
		i += size
	}
	if from == 0 {
		return text
	}
	return append(out, text[from:]...)
}

// escape returns the code unit of a text that begins with \uXXXX.
func escape(text []byte) (unit rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	for _, c := range text[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		unit = unit<<4 | rune(c)
	}
	return unit, true
}

func isHigh(unit rune) bool { return unit >= 0xd800 && unit < 0xdc00 }
func isLow(unit rune) bool  { return unit >= 0xdc00 && unit < 0xe000 }
