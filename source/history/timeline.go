package history

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Timeline is what has happened to objects after one moment and up to another, without their contents.
type Timeline struct {
	Stream      sink.Status
	After, UpTo sink.Point
	// From and To are the times of the points. From is zero if nothing was stored until then.
	From, To time.Time
	// Lanes are the objects with changes, the one that was changed last first.
	Lanes []Lane
	// Unknown are the times between From and To of which the history is missing, in their order.
	Unknown []Span
}

// Lane is what has happened to one object name, in the order of revisions. Its events have states without objects.
type Lane struct {
	Key    keepwatch.Key
	Events []Event
}

// Span is a time in which nothing is known.
type Span struct {
	From, To time.Time
	Reason   string
}

// ErrTooMany is the error of a timeline with more states than it may have.
var ErrTooMany = errors.New("there are too many changes between the moments")

// Timeline returns what has happened to objects between two moments, which need not be known. It returns [ErrTooMany]
// if more than most states begin or end between them, or, with a name, if there are more states.
func (v *View) Timeline(ctx context.Context, of Objects, from, to Moment, most int) (*Timeline, error) {
	stream, err := v.StreamOf(of.Resource, of.Namespace)
	if err != nil {
		return nil, err
	}
	first, err := v.Points(ctx, from, true, stream)
	if err != nil {
		return nil, err
	}
	last, err := v.Points(ctx, to, true, stream)
	if err != nil {
		return nil, err
	}
	t := &Timeline{Stream: stream, After: first.Of(stream), UpTo: last.Of(stream), From: first.Time, To: last.Time}
	var states []sink.State
	if t.After.Before(t.UpTo) {
		query := sink.StateQuery{Resource: of.Resource, Namespace: of.Namespace, Name: of.Name}
		if of.Name == "" { // the states of one object are found by its name, and are fewer than those of the time
			query.After, query.UpTo = &t.After, &t.UpTo
		}
		err = v.tables.States(ctx, query, func(s sink.State) error {
			if len(states) == most {
				return ErrTooMany
			}
			s.Object = nil
			states = append(states, s)
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(states, func(a, b sink.State) int { return cmp.Compare(a.ID, b.ID) })
	lanes := map[keepwatch.Key]*Lane{}
	for _, e := range v.happened(stream, states) {
		if !t.After.Before(e.Point) || t.UpTo.Before(e.Point) {
			continue
		}
		l := lanes[e.State.Key]
		if l == nil {
			l = &Lane{Key: e.State.Key}
			lanes[l.Key] = l
		}
		l.Events = append(l.Events, e)
	}
	for _, l := range lanes {
		t.Lanes = append(t.Lanes, *l)
	}
	slices.SortFunc(t.Lanes, func(a, b Lane) int {
		return cmp.Or(compare(b.Events[len(b.Events)-1].Point, a.Events[len(a.Events)-1].Point), a.Key.Compare(b.Key))
	})
	t.Unknown, err = v.unknown(ctx, t)
	return t, err
}

// unknown returns the times of a timeline of which the history is missing.
func (v *View) unknown(ctx context.Context, t *Timeline) (all []Span, err error) {
	add := func(from, to time.Time, reason string) {
		if from.Before(t.From) {
			from = t.From
		}
		if to.After(t.To) {
			to = t.To
		}
		if from.Before(to) {
			all = append(all, Span{from, to, reason})
		}
	}
	if t.Stream.First.Revision == 0 {
		add(t.From, t.To, "the first list is not complete")
		return all, nil
	}
	add(t.From, t.Stream.FirstSeen, "before the history")
	for _, g := range v.merged(t.Stream) {
		begin, _ := pointsOf(g, v.Gaps(t.Stream))
		if begin.Before(t.Stream.First) { // it is before the history
			continue
		}
		began, err := v.began(ctx, t.Stream, g)
		if err != nil {
			return nil, err
		}
		end := g.Ended
		if isOpen(t.Stream, g) {
			end = t.To // the list that ends it is not complete
		}
		add(began, end, string(g.Reason))
	}
	add(t.Stream.Time, t.To, "not known yet")
	slices.SortFunc(all, func(a, b Span) int { return a.From.Compare(b.From) })
	return all, nil
}

// AtMost returns the first states that are valid at a point, in the order of a LIST, and how many there are. The point
// must be known.
func (v *View) AtMost(ctx context.Context, of Objects, at sink.Point,
	most int) (all []sink.State, count int, err error) {
	cut := func(bound int) {
		if len(all) > bound {
			slices.SortFunc(all, func(a, b sink.State) int { return a.Key.Compare(b.Key) })
			clear(all[most:])
			all = all[:most]
		}
	}
	query := sink.StateQuery{Resource: of.Resource, Namespace: of.Namespace, Name: of.Name, At: &at}
	err = v.tables.States(ctx, query, func(s sink.State) error {
		count++
		all = append(all, s)
		cut(2 * most)
		return nil
	})
	cut(most)
	slices.SortFunc(all, func(a, b sink.State) int { return a.Key.Compare(b.Key) })
	return all, count, err
}
