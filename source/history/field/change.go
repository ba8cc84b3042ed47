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
func Changes(older, newer *State) (all []Change) {
	before, _ := older.parts()
	after, _ := newer.parts()
	var from, to []leaf
	if older != nil {
		walk(nil, before, after, &from)
	}
	if newer != nil {
		walk(nil, after, before, &to)
	}
	values := make(map[string]json.RawMessage, len(from))
	for _, l := range from {
		values[l.text] = l.value
	}
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
	return all
}
