// Package report writes what judges report: texts of others that are safe in a terminal, JSON, and JUnit's format.
package report

import (
	"encoding/json"
	"io"
	"strings"
	"unicode"
)

// Printable replaces what could control a terminal: others choose the names and values that a report quotes.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
