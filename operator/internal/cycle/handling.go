package cycle

import (
	"encoding/json"
	"fmt"
	"maps"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// handling records the states that handlers saw besides the one handled last. A handler
// that succeeded early in a cycle may have seen another state than the final one, even if
// the final one equals the initial one: the difference is delivered to it as an update.
type handling struct {
	// First is the desired state at the first call of the current cycle; nil before that.
	First map[string]any `json:"first,omitempty"`
	// Also is First with each field replaced in which a later call saw another value, by
	// one such value; nil if there is none.
	Also map[string]any `json:"also,omitempty"`
	// Before is Also of the previous cycle, whose First was recorded as handled.
	Before map[string]any `json:"before,omitempty"`
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

func (h handling) encode() string {
	text, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("cycle: a decoded JSON object cannot be encoded: %v", err))
	}
	return string(text)
}

// handling returns the handling that an object stores.
func (s Spec) handling(object map[string]any) (h handling, err error) {
	text, ok := s.progress(object, handlingName)
	if !ok {
		return h, nil
	}
	if err := utiljson.Unmarshal([]byte(text), &h); err != nil {
		return h, s.unreadable(s.slot(handlingName, object), err)
	}
	return h, nil
}
