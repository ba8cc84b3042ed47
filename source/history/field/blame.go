package field

import (
	"encoding/json"
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

// Blame finds since when each field of an object has its value, in states that are added from the first to the last.
// The zero value is ready for use. It retains the last state, and the values.
type Blame struct {
	fields map[string]Since
	last   []leaf
	older  *State // the last state
	states int
}

// Add adds the next state.
func (b *Blame) Add(object []byte) error {
	state, err := Decode(object)
	if err != nil {
		return err
	}
	var leaves []leaf
	walk(nil, state.value, nil, &leaves)
	writers := Writers(b.older, state)
	next := make(map[string]Since, len(leaves))
	for _, l := range leaves {
		before, known := b.fields[l.text]
		if known && string(before.Value) == string(l.value) {
			next[l.text] = before
			continue
		}
		next[l.text] = Since{Path: l.path, Value: l.value, From: before.Value, State: b.states,
			Managers: WritersOf(l.path, state, writers)}
	}
	b.fields, b.last, b.older = next, leaves, state
	b.states++
	return nil
}

// Fields returns the fields of the last state, in the order of their names, each with the number of the state since
// which it has its value. The revision and managedFields are no fields.
func (b *Blame) Fields() (all []Since) {
	for _, l := range b.last {
		if s, ok := b.fields[l.text]; ok {
			all = append(all, s)
		}
	}
	return all
}
