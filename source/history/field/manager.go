package field

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Manager is an entry of metadata.managedFields.
type Manager struct {
	Name        string    `json:"manager"`
	Operation   string    `json:"operation"`
	Subresource string    `json:"subresource,omitempty"`
	APIVersion  string    `json:"apiVersion,omitempty"`
	Time        time.Time `json:"time,omitzero"`
}

// String returns the manager's name, and the subresource that it has written.
func (m Manager) String() string {
	if m.Subresource != "" {
		return m.Name + "/" + m.Subresource
	}
	return m.Name
}

func (m Manager) same(o Manager) bool {
	return m.Name == o.Name && m.Operation == o.Operation && m.Subresource == o.Subresource && m.APIVersion == o.APIVersion
}

// Writers returns the managers that have written a state, given the one before, which may be nil: those whose entries
// are new, have another time, or have more fields. It is empty for an object without managedFields, and for a write
// that has changed only values of fields that the manager has written within the same second: then it is one of
// [Owners].
func Writers(older, newer *State) (writers []Manager) {
	_, before := older.parts()
	_, after := newer.parts()
	for _, m := range after {
		if !slices.ContainsFunc(before, func(old owner) bool {
			return old.same(m.Manager) && old.Time.Equal(m.Time) && contains(old.set, m.set)
		}) {
			writers = append(writers, m.Manager)
		}
	}
	return writers
}

func contains(set, part any) bool {
	fields, _ := part.(map[string]any)
	all, _ := set.(map[string]any)
	for name, below := range fields {
		if whole, ok := all[name]; !ok || !contains(whole, below) {
			return false
		}
	}
	return true
}

// Owners returns the managers of changed fields in the newer state.
func Owners(changes []Change, newer *State) (managers []Manager) {
	for _, c := range changes {
		for _, m := range newer.ownersOf(c.Path) {
			if !slices.ContainsFunc(managers, m.same) {
				managers = append(managers, m)
			}
		}
	}
	return managers
}

// ownersOf returns the managers of a field.
func (s *State) ownersOf(p Path) (managers []Manager) {
	_, owners := s.parts()
	for _, one := range owners {
		if owns(one.set, p) {
			managers = append(managers, one.Manager)
		}
	}
	return managers
}

// owns reports whether a set of fields has a field, or as a whole one that it is in.
func owns(set any, p Path) bool {
	fields, ok := set.(map[string]any)
	if !ok {
		return false
	}
	if len(p) == 0 {
		return true
	}
	if len(fields) == 0 {
		return true // an atomic field
	}
	if next, ok := below(fields, p[0]); ok {
		return owns(next, p[1:])
	}
	return false
}

// below returns the set of what is below an element of a path.
func below(fields map[string]any, e Element) (any, bool) {
	if e.Name != "" {
		next, ok := fields["f:"+e.Name]
		return next, ok
	}
	for name, next := range fields {
		switch kind, text, _ := strings.Cut(name, ":"); kind {
		case "k":
			var key map[string]json.RawMessage
			if json.Unmarshal([]byte(text), &key) == nil && matches(key, e.element) {
				return next, true
			}
		case "v":
			if value, err := json.Marshal(e.element); err == nil && string(value) == text {
				return next, true
			}
		}
	}
	return nil, false
}

// matches reports whether an element of a list has the members of a key.
func matches(key map[string]json.RawMessage, element any) bool {
	o, ok := element.(map[string]any)
	if !ok {
		return false
	}
	for name, want := range key {
		if value, err := json.Marshal(o[name]); err != nil || string(value) != string(want) {
			return false
		}
	}
	return len(key) > 0
}

// WritersOf returns the managers that have written a field of a state, given those that have written the state, as
// [Writers] returns them: of those that have the field, the ones that have written, or all if none has. It returns
// nothing for a field that was removed.
func WritersOf(p Path, newer *State, writers []Manager) []Manager {
	all := newer.ownersOf(p)
	both := slices.DeleteFunc(slices.Clone(all), func(m Manager) bool { return !slices.ContainsFunc(writers, m.same) })
	if len(both) > 0 {
		return both
	}
	return all
}
