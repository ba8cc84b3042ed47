package cycle

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
)

// handling records the states that handlers saw besides the one handled last. A handler
// that succeeded early in a cycle may have seen another state than the final one, even if
// the final one equals the initial one: the difference is delivered to it as an update.
type handling struct {
	// First is the desired state at the first call of the current cycle; nil before that.
	First map[string]any
	// Also is First with each field replaced in which a later call saw another value, by
	// one such value; nil if there is none.
	Also map[string]any
	// Before is Also of the previous cycle, whose First was recorded as handled.
	Before map[string]any
}

// with returns the handling after a call that sees a desired state.
func (h handling) with(desired map[string]any) handling {
	if h.First == nil {
		h.First = desired
		return h
	}
	if differences := Compare(h.First, desired); len(differences) > 0 {
		if h.Also == nil {
			h.Also = h.First
		}
		h.Also = overlay(h.Also, differences)
	}
	return h
}

// old returns the state that updates are compared with: the handled one, except that each
// field differs from the present state if some handler saw another value.
func (h handling) old(handled, present map[string]any) map[string]any {
	var hidden []Difference
	for _, seen := range []map[string]any{h.Before, h.First, h.Also} {
		if seen == nil {
			continue
		}
		for _, d := range Compare(handled, seen) {
			if equal(at(handled, d.Path), at(present, d.Path)) {
				hidden = append(hidden, d)
			}
		}
	}
	return overlay(handled, hidden)
}

// initialDiff returns the diff at the first call of the current cycle.
func (h handling) initialDiff(handled map[string]any) []Difference {
	return Compare(handling{Before: h.Before}.old(handled, h.First), h.First)
}

// end returns the state to record as handled at the end of a cycle, and the handling of
// the next cycle.
func (h handling) end(present map[string]any) (handled map[string]any, left handling) {
	if h.First == nil {
		return present, handling{}
	}
	return h.First, handling{Before: h.Also}
}

func (h handling) empty() bool { return h.First == nil && h.Also == nil && h.Before == nil }

func at(object map[string]any, p Path) any {
	value, _ := lookup(object, p)
	return value
}

// overlay returns a map with the new values of some differences. It copies the maps on
// their paths.
func overlay(m map[string]any, differences []Difference) map[string]any {
	for _, d := range differences {
		m = replaced(m, d.Path, d.New)
	}
	return m
}

func replaced(m map[string]any, p Path, value any) map[string]any {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]any{}
	}
	switch {
	case len(p) > 1:
		inner, _ := m[p[0]].(map[string]any)
		m[p[0]] = replaced(inner, p[1:], value)
	case value == nil:
		delete(m, p[0])
	default:
		m[p[0]] = value
	}
	return m
}

// storedHandling is a handling as it is stored: the states as changes of the handled state, so that an object stores a
// large state once.
type storedHandling struct {
	// Of identifies the handled state. If it is another one, the handling has no meaning: a user changed the state, or the
	// progress is an earlier version's.
	Of     string   `json:"of"`
	First  []change `json:"seenFirst,omitzero"`
	Also   []change `json:"seenAlso,omitzero"`
	Before []change `json:"seenBefore,omitzero"`
}

// change is a new value of a field; nil removes it.
type change struct {
	Path  Path `json:"path"`
	Value any  `json:"value,omitempty"`
}

// changes returns how a state differs from another one; nil for no state.
func changes(from, to map[string]any) []change {
	if to == nil {
		return nil
	}
	all := []change{}
	for _, d := range Compare(from, to) {
		all = append(all, change{d.Path, d.New})
	}
	return all
}

// applyChanges returns a state with changes; nil for none.
func applyChanges(from map[string]any, changes []change) map[string]any {
	if changes == nil {
		return nil
	}
	to := maps.Clone(from)
	if to == nil {
		to = map[string]any{}
	}
	for _, c := range changes {
		to = replaced(to, c.Path, c.Value)
	}
	return to
}

// encode returns the handling as it is stored beside a handled state.
func (h handling) encode(handled map[string]any) string {
	return encode(storedHandling{
		Of: identify(handled), First: changes(handled, h.First), Also: changes(handled, h.Also), Before: changes(handled,
			h.Before),
	})
}

// identify returns a short digest of a state.
func identify(state map[string]any) string {
	sum := sha256.Sum256(encodeJSON(state))
	return hex.EncodeToString(sum[:8])
}

// handling returns the handling that an object stores beside a handled state. It is empty if it is not of that state.
func (s Spec) handling(object, handled map[string]any) (h handling, err error) {
	text, ok := s.progress(object, handlingName)
	if !ok {
		return h, nil
	}
	var stored storedHandling
	if err := decode(text, &stored); err != nil {
		return h, s.unreadable(s.slot(handlingName, object), err)
	}
	if stored.Of != identify(handled) {
		return h, nil
	}
	return handling{applyChanges(handled, stored.First), applyChanges(handled, stored.Also),
		applyChanges(handled, stored.Before)}, nil
}
