package readpath

import (
	"bytes"
	"strings"
)

// indentation is what one level of pretty JSON is indented by, as in kube-apiserver.
const indentation = "  "

// appendIndented appends a JSON text as json.Indent would, a part of an enclosing value whose nesting is depth: lines
// after the first begin with as many indentations. The text must be valid, or a part of a valid text that ends outside
// a string: the head of a list, for example, which ends in the opening bracket of its items. json.Indent takes several
// times as long, since it checks the text.
func appendIndented(b, text []byte, depth int) []byte {
	opened := false // a bracket, after which nothing was appended yet
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
			continue
		case '}', ']':
			depth--
			if !opened {
				b = appendLine(b, depth)
			}
			b, opened = append(b, c), false
			i++
			continue
		}
		if opened {
			b, opened = appendLine(b, depth), false
		}
		switch c := text[i]; c {
		case '"':
			end := i + stringLength(text[i:])
			b = append(b, text[i:end]...)
			i = end
		case '{', '[':
			b, opened = append(b, c), true
			depth++
			i++
		case ',':
			b = appendLine(append(b, c), depth)
			i++
		case ':':
			b = append(b, ": "...)
			i++
		default: // a number, true, false or null
			end := i + 1
			for end < len(text) && text[end] > ' ' && text[end] != ',' && text[end] != '}' && text[end] != ']' {
				end++
			}
			b = append(b, text[i:end]...)
			i = end
		}
	}
	return b
}

// line is the beginning of a line that is nested deeply.
var line = "\n" + strings.Repeat(indentation, 32)

// appendLine begins a line.
func appendLine(b []byte, depth int) []byte {
	if n := 1 + depth*len(indentation); n <= len(line) {
		return append(b, line[:n]...)
	}
	return append(append(b, '\n'), strings.Repeat(indentation, depth)...)
}

// stringLength returns the length of the JSON string that a text begins with, with its quotes.
func stringLength(text []byte) int {
	for end := 1; ; {
		i := bytes.IndexByte(text[end:], '"')
		if i < 0 {
			return len(text)
		}
		end += i + 1
		escapes := 0
		for text[end-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
	}
}
