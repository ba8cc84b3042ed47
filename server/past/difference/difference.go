package difference

import (
	"context"
	"slices"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/source/history/field"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Difference is an object that differs between two points.
type Difference struct {
	Resource      string
	Key           keepwatch.Key
	Before, After *sink.State // nil if there was none; not both
}

// Managers returns the names of the tools that have written the state after, by its managedFields. It returns none for
// an object that was created or deleted.
func (d Difference) Managers() (names []string) {
	if d.Before == nil || d.After == nil {
		return nil
	}
	for _, m := range field.Writers(d.Before.Object, d.After.Object) {
		if !slices.Contains(names, m.String()) {
			names = append(names, m.String())
		}
	}
	return names
}

// Between returns the objects that differ between two points, in the order of a LIST. from may be the later one.
func Between(ctx context.Context, v *history.View, of history.Objects, from,
	to sink.Point) (all []Difference, err error) {
	backward := to.Before(from)
	if backward {
		from, to = to, from
	}
	byKey := map[keepwatch.Key]*Difference{}
	states, err := v.Between(ctx, of, from, to)
	if err != nil {
		return nil, err
	}
	valid := func(s *sink.State, at sink.Point) bool {
		return !at.Before(s.From) && (s.To == nil || at.Before(*s.To))
	}
	for i := range states {
		s := &states[i]
		d := byKey[s.Key]
		if d == nil {
			d = &Difference{Key: s.Key, Resource: s.Resource}
			byKey[s.Key] = d
		}
		if valid(s, from) {
			d.Before = s
		}
		if valid(s, to) {
			d.After = s
		}
	}
	for _, d := range byKey {
		if backward {
			d.Before, d.After = d.After, d.Before
		}
		if d.Before != nil || d.After != nil { // otherwise it was created and deleted in between
			all = append(all, *d)
		}
	}
	slices.SortFunc(all, func(a, b Difference) int { return a.Key.Compare(b.Key) })
	return all, nil
}
