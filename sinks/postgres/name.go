package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// The names of some types, RBAC's for example, are any text without slashes and percent signs. A column has no U+0000,
// and an index no room for a name of more than about 2,700 bytes.

// text returns a text that Postgres can store, a different one for each: U+0000 is \u0000, and the backslash of a text
// that looks like it is \u005c. original is its inverse.
func text(s string) string     { return escapes.Replace(s) }
func original(s string) string { return unescapes.Replace(s) }

var (
	escapes   = strings.NewReplacer("\x00", `\u0000`, `\u0000`, `\u005cu0000`, `\u005c`, `\u005cu005c`)
	unescapes = strings.NewReplacer(`\u0000`, "\x00", `\u005c`, `\`)
)

const (
	// maxName is the number of bytes of the longest name that the indexes have as it is. No other type's names are that
	// long.
	maxName = 500
	// beginning is the number of characters of a longer name with which its short form begins.
	beginning = 40
)

var shortened = regexp.MustCompile(`~sha256:[0-9a-f]{64}$`)

// indexed returns the form of a name in the column name, and the whole name, nil if both are the same. A long name is
// there as its beginning and its hash. So is one that looks like that: no two names have the same form.
func indexed(name string) (form string, full *string) {
	encoded := text(name)
	if len(encoded) <= maxName && !shortened.MatchString(encoded) {
		return encoded, nil
	}
	runes := []rune(encoded)
	hash := sha256.Sum256([]byte(name))
	return string(runes[:min(beginning, len(runes))]) + "~sha256:" + hex.EncodeToString(hash[:]), &encoded
}
