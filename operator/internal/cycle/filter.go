package cycle

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// Filter limits handlers to some objects. The zero value matches all.
type Filter struct {
	Labels      labels.Selector // nil for any
	Annotations labels.Selector // nil for any
	Fields      []FieldFilter
	// When are functions of the object, which they must not change.
	When []func(object map[string]any) bool
}

// FieldFilter matches objects that have a field, with one of Values if there are any. A
// nil value stands for an absent field. It matches an update only if the field changed.
type FieldFilter struct {
	Path   Path
	Values []any
	Side   Side
}

// Side is the state of an object that a FieldFilter matches. The set is closed.
type Side uint8

const (
	Either Side = iota // the old or the new state of an update, else the present state
	Before             // the old state of an update; other causes match
	After              // the new state of an update; other causes match
)

// view is an object as filters see it.
type view struct {
	object map[string]any
	old    map[string]any // the desired state that was handled last, nil if none
	diff   []Difference
	// begun: a handler was called for the update, and first is the diff at that call. Later
	// changes are an update of their own.
	begun bool
	first []Difference
}

// Matches reports whether an object matches, for any cause.
func (f Filter) Matches(object map[string]any) bool { return f.matches(view{object: object}) }

func (f Filter) matches(v view) bool {
	return f.selects(v.object) && !slices.ContainsFunc(f.Fields, func(field FieldFilter) bool {
		return field.Side == Either && !field.matches(v.object) && (v.old == nil || !field.matches(v.old))
	})
}

// matchesUpdate reports whether an update matches.
func (f Filter) matchesUpdate(v view) bool {
	return f.matches(v) && !slices.ContainsFunc(f.Fields, func(field FieldFilter) bool {
		return len(within(v.diff, field.Path)) == 0 ||
			field.Side == Before && !field.matches(v.old) || field.Side == After && !field.matches(v.object)
	})
}

func (f Filter) selects(object map[string]any) bool {
	if f.Labels != nil && !f.Labels.Matches(set(object, "labels")) {
		return false
	}
	if f.Annotations != nil && !f.Annotations.Matches(set(object, "annotations")) {
		return false
	}
	return !slices.ContainsFunc(f.When, func(when func(map[string]any) bool) bool { return !when(object) })
}

func set(object map[string]any, of string) labels.Set {
	value, _ := lookup(object, Path{"metadata", of})
	all, _ := value.(map[string]any)
	set := make(labels.Set, len(all))
	for key, value := range all {
		if text, ok := value.(string); ok {
			set[key] = text
		}
	}
	return set
}

func (f FieldFilter) matches(object map[string]any) bool {
	value, there := lookup(object, f.Path)
	if len(f.Values) == 0 {
		return there
	}
	return slices.ContainsFunc(f.Values, func(want any) bool { return equal(value, want) })
}

func (f Filter) paths() []Path {
	paths := make([]Path, 0, len(f.Fields))
	for _, field := range f.Fields {
		paths = append(paths, field.Path)
	}
	return paths
}
