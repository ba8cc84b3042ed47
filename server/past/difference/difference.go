package difference

import (
	"context"
	"fmt"
	"maps"
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
	older, err := field.Decode(d.Before.Object)
	newer, err2 := field.Decode(d.After.Object)
	if err != nil || err2 != nil {
		return nil
	}
	for _, m := range field.Writers(older, newer) {
		if !slices.Contains(names, m.String()) {
			names = append(names, m.String())
		}
	}
	return names
}

// maxBytes bounds the objects of a comparison that are in memory at a time. The others are read again, one by one.
const maxBytes = 64 << 20

// Each calls yield with the objects that differ between two points, in the order of a LIST, until it returns an error,
// which Each returns. from may be the later one.
func Each(ctx context.Context, v *history.View, of history.Objects, from, to sink.Point,
	yield func(Difference) error) error {
	return each(ctx, v, of, from, to, maxBytes, yield)
}

func each(ctx context.Context, v *history.View, of history.Objects, from, to sink.Point, most int,
	yield func(Difference) error) error {
	all, bytes := map[keepwatch.Key]Difference{}, 0
	add := func(set func(*Difference, *sink.State)) func(sink.State) error {
		return func(s sink.State) error {
			if bytes += len(s.Object); bytes > most {
				s.Object = nil
			}
			d := all[s.Key]
			d.Resource, d.Key = s.Resource, s.Key
			set(&d, &s)
			all[s.Key] = d
			return nil
		}
	}
	err := v.Valid(ctx, of, from, to, add(func(d *Difference, s *sink.State) { d.Before = s }))
	if err == nil {
		err = v.Valid(ctx, of, to, from, add(func(d *Difference, s *sink.State) { d.After = s }))
	}
	if err != nil {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(all), keepwatch.Key.Compare) {
		d := all[key]
		delete(all, key)
		if err = whole(ctx, v, d.Before, from); err == nil {
			err = whole(ctx, v, d.After, to)
		}
		if err == nil {
			err = yield(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whole reads the object of a state that is valid at a point, if it is not in memory.
func whole(ctx context.Context, v *history.View, s *sink.State, at sink.Point) error {
	if s == nil || s.Object != nil {
		return nil
	}
	states, err := v.At(ctx, history.Objects{Resource: s.Resource, Namespace: s.Key.Namespace, Name: s.Key.Name}, at)
	if err == nil && len(states) != 1 {
		err = fmt.Errorf("%s has %d states at revision %d", Name(s), len(states), at.Revision)
	}
	if err == nil {
		s.Object = states[0].Object
	}
	return err
}
