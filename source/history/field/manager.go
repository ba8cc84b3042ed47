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
	fields      string    // as JSON
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

// managersOf returns the entries of an object, none if its managedFields cannot be read: they may be redacted.
func managersOf(object []byte) (all []Manager) {
	var o struct {
		Metadata struct {
			ManagedFields []struct {
				Manager
				FieldsV1 json.RawMessage
			}
		}
	}
	if object == nil || json.Unmarshal(object, &o) != nil {
		return nil
	}
	for _, m := range o.Metadata.ManagedFields {
		m.Manager.fields = string(m.FieldsV1)
		all = append(all, m.Manager)
	}
	return all
}

// Writers returns the managers that have written a state, given the one before, which may be nil: those whose entries
// are new, have another time, or have more fields. It is empty for an object without managedFields, and for a write
// that has changed only values of fields that the manager has written within the same second: then it is one of
// [Owners].
func Writers(older, newer []byte) (writers []Manager) {
	before := managersOf(older)
	for _, m := range managersOf(newer) {
		if !slices.ContainsFunc(before, func(old Manager) bool {
			return old.same(m) && old.Time.Equal(m.Time) && !gained(old.fields, m.fields)
		}) {
			writers = append(writers, m)
		}
	}
	return writers
}

// gained reports whether a set of fields has some that the one before did not have.
func gained(before, after string) bool {
	if before == after {
		return false
	}
	older, err := parse([]byte(before))
	newer, err2 := parse([]byte(after))
	return err != nil || err2 != nil || !contains(older, newer)
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
func Owners(changes []Change, newer []byte) (managers []Manager) {
	of := ownersOf(newer)
	for _, c := range changes {
		for _, m := range of.of(c.Path) {
			if !slices.ContainsFunc(managers, m.same) {
				managers = append(managers, m)
			}
		}
	}
	return managers
}

// owners tells the managers of the fields of one state.
type owners []owner

type owner struct {
	Manager
	set any // the parsed fields
}

func ownersOf(object []byte) (all owners) {
	for _, m := range managersOf(object) {
		if set, err := parse([]byte(m.fields)); err == nil {
			all = append(all, owner{m, set})
		}
	}
	return all
}

// of returns the managers of a field.
func (o owners) of(p Path) (managers []Manager) {
	for _, one := range o {
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

// WritersOf returns the managers that have written a changed field, given the two states: of those that have it in
// the newer one, the ones that have written that state, or all if none has. It returns nothing for a field that was
// removed.
func WritersOf(c Change, older, newer []byte) []Manager {
	return writersOf(c.Path, ownersOf(newer), Writers(older, newer))
}

func writersOf(p Path, of owners, writers []Manager) []Manager {
	all := of.of(p)
	both := slices.DeleteFunc(slices.Clone(all), func(m Manager) bool { return !slices.ContainsFunc(writers, m.same) })
	if len(both) > 0 {
		return both
	}
	return all
}
