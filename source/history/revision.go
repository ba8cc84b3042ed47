package history

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// WithRevision returns the text of an object with another metadata.resourceVersion, as an API server sends a deleted
// object. A text without one is returned as it is.
func WithRevision(text []byte, revision string) []byte {
	d := json.NewDecoder(bytes.NewReader(text))
	for _, name := range []string{"metadata", "resourceVersion"} {
		if !enterMember(d, name) {
			return text
		}
	}
	from := d.InputOffset() // behind the name
	if token, err := d.Token(); err != nil {
		return text
	} else if _, ok := token.(string); !ok {
		return text
	}
	to := d.InputOffset()
	from += int64(bytes.IndexByte(text[from:to], '"'))
	changed := make([]byte, 0, len(text)+8)
	changed = append(changed, text[:from]...)
	changed = strconv.AppendQuote(changed, revision)
	return append(changed, text[to:]...)
}

// enterMember reads an object up to the value of a member, and reports whether there is one.
func enterMember(d *json.Decoder, name string) bool {
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return false
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if token == name {
			return true
		}
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}
