package objectjson

// maxDepth bounds how deep the sets are that isFieldSet accepts. encoding/json has a bound, too.
const maxDepth = 100

// isFieldSet reports whether encoding/json copies JSON unchanged: JSON of objects only, without white
// space, whose names contain no character that encoding/json escapes.
func isFieldSet(raw []byte) bool {
	depth := 0
	for i := 0; i < len(raw) && raw[i] == '{'; { // an object begins
		if depth++; depth > maxDepth {
			return false
		}
		i++
		if i < len(raw) && raw[i] == '}' { // it is empty: it ends, as do the objects whose last member it is
			for ; i < len(raw) && raw[i] == '}'; i++ {
				if depth--; depth == 0 {
					return i == len(raw)-1
				}
			}
			if i == len(raw) || raw[i] != ',' {
				return false
			}
			i++
		}
		if i = valueAfterName(raw, i); i < 0 {
			return false
		}
	}
	return false
}

// valueAfterName returns the position of the object behind the name at i and its colon, or -1.
func valueAfterName(raw []byte, i int) int {
	if i >= len(raw) || raw[i] != '"' {
		return -1
	}
	for i++; i < len(raw); i++ {
		c := raw[i]
		if unescaped[c] {
			continue
		}
		switch c {
		case '"':
			if i+2 < len(raw) && raw[i+1] == ':' && raw[i+2] == '{' {
				return i + 2
			}
			return -1
		case '\\':
			if i++; i == len(raw) || raw[i] != '"' && raw[i] != '\\' {
				return -1
			}
		default:
			return -1
		}
	}
	return -1
}
