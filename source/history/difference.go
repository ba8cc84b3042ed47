package history

import (
	"context"
	"errors"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Mark is the point of a stream whose state was read, and what the history said of the stream then.
// Marks of one point are equal if no list has begun or ended between them.
type Mark struct {
	Point  sink.Point
	gaps   int  // that were declared
	listed bool // the last one was open: pages of its list may follow
}

// Mark returns the mark of a state of a stream at a point.
func (v *View) Mark(of sink.Status, at sink.Point) Mark {
	return Mark{at, v.declared(of), of.Progress.Gap != ""}
}

// declared returns how many gaps a stream has declared: each list after the first one declares one.
func (v *View) declared(of sink.Status) (n int) {
	for _, g := range v.Gaps(of) {
		if g.Reason != sink.GapThinned {
			n++
		}
	}
	return n
}

// IsKnown reports whether the state of a stream that was read at a mark is still the one that the history has there. It
// returns false after a page of another list, which may show another content of an object at a revision from before,
// for a state that was read while a list was under way, and for a point that is not known any more.
func (v *View) IsKnown(ctx context.Context, of sink.Status, m Mark) (bool, error) {
	if m.listed || m.gaps != v.declared(of) {
		return false, nil
	}
	err := v.Check(ctx, of, m.Point)
	if errors.As(err, new(*Unknown)) {
		return false, nil
	}
	return err == nil, err
}

// Load calls put with each object of a stream that is there at a point, in no particular order, until it returns an
// error, which Load returns.
func (v *View) Load(ctx context.Context, of sink.Status, at sink.Point, put func(*Object) error) error {
	return v.eachObject(ctx, sink.StateQuery{At: &at}, of, put)
}

// LoadDifference calls remove with the key of each object that is there at one point and not at another one, or has
// another state there, and then put with each object that is there at the other one and not in this state at the first
// one. The points are known, and in one epoch; either may be the later one. It calls nothing and returns false if there
// are more than most revisions of the stream between them: to read all may cost less.
func (v *View) LoadDifference(ctx context.Context, of sink.Status, from, to sink.Point, most int,
	remove func(keepwatch.Key), put func(*Object) error) (bool, error) {
	first, last := from, to
	if to.Before(from) {
		first, last = to, from
	}
	if last.Revision-first.Revision > keepwatch.Revision(most) {
		points, err := v.tables.PointsAfter(ctx, of.ID.Resource, of.ID.Namespace, first, most+1)
		if err != nil || len(points) > most && !last.Before(points[most]) {
			return false, err
		}
	}
	err := v.tables.States(ctx, sink.StateQuery{
		Resource: of.ID.Resource, Namespace: of.ID.Namespace, At: &from, NotAt: &to, WithoutObjects: true,
	}, func(s sink.State) error { remove(s.Key); return nil })
	if err != nil {
		return false, err
	}
	return true, v.eachObject(ctx, sink.StateQuery{At: &to, NotAt: &from}, of, put)
}

// eachObject calls put with the objects of a query's states.
func (v *View) eachObject(ctx context.Context, q sink.StateQuery, of sink.Status, put func(*Object) error) error {
	q.Resource, q.Namespace = of.ID.Resource, of.ID.Namespace
	return v.tables.States(ctx, q, func(s sink.State) error { return put(objectOf(&s, s.From.Revision)) })
}
