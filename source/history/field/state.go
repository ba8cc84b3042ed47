package field

import (
	"encoding/json"
	"time"
)

// State is a decoded state of an object. To decode one takes much longer than to compare it: a State is for all
// comparisons. It does not change. A nil State is that of an object that does not exist.
type State struct {
	value  any
	owners []owner
}

// owner is a manager, and the set of fields that it has.
type owner struct {
	Manager
	set any
}

// Decode decodes a state, which is JSON. What it cannot read of managedFields, it takes for absent: they may be
// redacted.
func Decode(object []byte) (*State, error) {
	value, err := parse(object)
	if err != nil {
		return nil, err
	}
	s := &State{value: value}
	entries, _ := s.metadata()["managedFields"].([]any)
	for _, e := range entries {
		entry, ok := e.(map[string]any)
		if !ok {
			continue
		}
		text := func(name string) string {
			value, _ := entry[name].(string)
			return value
		}
		o := owner{set: entry["fieldsV1"], Manager: Manager{Name: text("manager"), Operation: text("operation"),
			Subresource: text("subresource"), APIVersion: text("apiVersion")}}
		if written, err := time.Parse(time.RFC3339, text("time")); err == nil {
			o.Time = written
		}
		s.owners = append(s.owners, o)
	}
	return s, nil
}

// Generation returns the state's metadata.generation, 0 without one.
func (s *State) Generation() int64 {
	number, _ := s.metadata()["generation"].(json.Number)
	n, _ := number.Int64()
	return n
}

func (s *State) metadata() map[string]any {
	object, _ := s.value.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	return metadata
}

// parts returns the value and the owners, none of a nil State.
func (s *State) parts() (any, []owner) {
	if s == nil {
		return nil, nil
	}
	return s.value, s.owners
}
