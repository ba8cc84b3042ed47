package cycle

import (
	"encoding/json"
	"fmt"
	"maps"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// handling is what handlers have seen besides the essence that was handled last. A
// handler that is done with a cause may have seen something else than what is there
// in the end, even if that is what was there before: it has to be told.
type handling struct {
	// First is the essence at the first call of the cycle under way; nil if there was
	// none yet.
	First map[string]any `json:"first,omitempty"`
	// Also differs from First in every field in which a later call of the cycle has
	// seen another value, and has one of these; nil if there is none.
	Also map[string]any `json:"also,omitempty"`
	// Before is Also of the cycle before, of which First was recorded as handled.
	Before map[string]any `json:"before,omitempty"`
}

// with is the handling after a call that sees an essence.
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

// old is the essence that was handled, as far as every handler knows: it differs
// from the present one in every field in which that, or what some handler has seen,
// does.
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

// began is the diff that the cycle under way has begun with.
func (h handling) initialDiff(handled map[string]any) []Difference {
	return Compare(handling{Before: h.Before}.old(handled, h.First), h.First)
}

// end is the essence to record as handled at the end of a cycle, and what is left.
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

// overlay is a map with the new values of some differences in it. What is on the way
// to them is copied.
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
		panic(fmt.Sprintf("cycle: an object that came as JSON can't be written as JSON: %v", err))
	}
	return string(text)
}

// handling is what the object's note says.
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
