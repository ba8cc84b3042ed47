package field

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Change is a field that differs between two states.
type Change struct {
	Path Path
	// Old and New are the values as JSON, nil if the state does not have the field.
	Old, New json.RawMessage
}

// Changes returns the fields that differ between two states of an object, in the order of their names. Either may be
// nil. The revision and managedFields are no fields: they change with every write.
func Changes(older, newer []byte) ([]Change, error) {
	var of [2]any
	for i, text := range [][]byte{older, newer} {
		var err error
		if text == nil {
			continue
		}
		if of[i], err = parse(text); err != nil {
			return nil, err
		}
	}
	var from, to []leaf
	if older != nil {
		walk(nil, of[0], of[1], &from)
	}
	if newer != nil {
		walk(nil, of[1], of[0], &to)
	}
	values := make(map[string]json.RawMessage, len(from))
	for _, l := range from {
		values[l.text] = l.value
	}
	var all []Change
	for _, l := range to {
		if old, ok := values[l.text]; !ok || !bytes.Equal(old, l.value) {
			all = append(all, Change{l.path, old, l.value})
		}
		delete(values, l.text)
	}
	for _, l := range from {
		if old, ok := values[l.text]; ok {
			all = append(all, Change{l.path, old, nil})
		}
	}
	slices.SortStableFunc(all, func(a, b Change) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	return all, nil
}
