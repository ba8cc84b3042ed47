package cycle

import (
	"maps"
	"slices"
)

// Op is what happened to a field. The set is closed.
type Op string

const (
	AddOp    Op = "add"
	ChangeOp Op = "change"
	RemoveOp Op = "remove"
)

// Difference is what happened to one field.
type Difference struct {
	Op   Op
	Path Path
	// Old is nil for an added field, New for a removed one.
	Old, New any
}

// Compare returns the differences of new from old, sorted by path. Maps are compared field
// by field, other values as a whole.
func Compare(old, new map[string]any) []Difference {
	return compare(nil, old, new, nil)
}

func compare(at Path, old, new map[string]any, found []Difference) []Difference {
	names := slices.Collect(maps.Keys(old))
	for name := range new {
		if _, both := old[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		path := append(at[:len(at):len(at)], name)
		before, after := old[name], new[name]
		beforeMap, wasMap := before.(map[string]any)
		afterMap, isMap := after.(map[string]any)
		switch {
		case wasMap && isMap:
			found = compare(path, beforeMap, afterMap, found)
		case equal(before, after):
		case before == nil:
			found = append(found, Difference{AddOp, path, nil, after})
		case after == nil:
			found = append(found, Difference{RemoveOp, path, before, nil})
		default:
			found = append(found, Difference{ChangeOp, path, before, after})
		}
	}
	return found
}

// within returns the part of a diff that changes a field. The change of a parent, which
// adds or removes the field with it, becomes a change of the field.
func within(diff []Difference, field Path) []Difference {
	var part []Difference
	for _, d := range diff {
		if d.Path.under(field) {
			part = append(part, d)
		} else if field.under(d.Path) {
			rest := field[len(d.Path):]
			old, hadOld := inside(d.Old, rest)
			new, hasNew := inside(d.New, rest)
			switch {
			case hadOld && hasNew && !equal(old, new):
				part = append(part, Difference{ChangeOp, field, old, new})
			case hadOld && !hasNew:
				part = append(part, Difference{RemoveOp, field, old, nil})
			case !hadOld && hasNew:
				part = append(part, Difference{AddOp, field, nil, new})
			}
		}
	}
	return part
}

func inside(value any, p Path) (any, bool) {
	m, _ := value.(map[string]any)
	return lookup(m, p)
}

// equal compares JSON values. Numbers are equal as int64 or float64, and null equals an
// absent value.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if i, ok := b.(int64); ok {
			return a == float64(i)
		}
	}
	return a == b
}
