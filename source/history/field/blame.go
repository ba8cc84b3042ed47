package field

import (
	"encoding/json"
	"fmt"
)

// Since is a field of a state, and the change that gave it its value.
type Since struct {
	Path  Path
	Value json.RawMessage
	// From is the value before, nil if the field was absent, or if State is the first one.
	From json.RawMessage
	// State is the index of the state since which the field has the value.
	State int
	// Managers are those that have written the value, empty if that is not known.
	Managers []Manager
}

// Blame returns the fields of the last one of an object's states, in the order of their names, each with the state
// since which it has its value. The revision and managedFields are no fields.
func Blame(states [][]byte) ([]Since, error) {
	var current map[string]Since
	var last []leaf
	for i, state := range states {
		leaves, err := leavesOf(state)
		if err != nil {
			return nil, fmt.Errorf("state %d: %w", i, err)
		}
		var older []byte
		if i > 0 {
			older = states[i-1]
		}
		var of owners
		var writers []Manager
		next := make(map[string]Since, len(leaves))
		for _, l := range leaves {
			if bookkeeping(l.path) {
				continue
			}
			before, known := current[l.text]
			if known && string(before.Value) == string(l.value) {
				next[l.text] = before
				continue
			}
			if of == nil {
				of, writers = ownersOf(state), Writers(older, state)
			}
			next[l.text] = Since{Path: l.path, Value: l.value, From: before.Value, State: i, Managers: writersOf(l.path, of,
				writers)}
		}
		current, last = next, leaves
	}
	var all []Since
	for _, l := range last {
		if s, ok := current[l.text]; ok {
			all = append(all, s)
		}
	}
	return all, nil
}
