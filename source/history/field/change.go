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
	from, err := leavesOf(older)
	if err != nil {
		return nil, err
	}
	to, err := leavesOf(newer)
	if err != nil {
		return nil, err
	}
	values := make(map[string]json.RawMessage, len(from))
	for _, l := range from {
		values[l.text] = l.value
	}
	var all []Change
	for _, l := range to {
		if old, ok := values[l.text]; (!ok || !bytes.Equal(old, l.value)) && !bookkeeping(l.path) {
			all = append(all, Change{l.path, old, l.value})
		}
		delete(values, l.text)
	}
	for _, l := range from {
		if old, ok := values[l.text]; ok && !bookkeeping(l.path) {
			all = append(all, Change{l.path, old, nil})
		}
	}
	slices.SortStableFunc(all, func(a, b Change) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	return all, nil
}

// bookkeeping reports whether a field changes with every write.
func bookkeeping(p Path) bool {
	return p.In("metadata", "managedFields") || p.In("metadata", "resourceVersion")
}
