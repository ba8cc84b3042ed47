package history

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Beside is the state of an object when an Event about it was written.
type Beside struct {
	// State is nil if the history has none until then. If Deleted is true, it is the last one before the deletion.
	State   *sink.State
	Deleted bool
	// At is a revision at which the history knows State to be valid, and that a [Moment] names, 0 if there is none.
	At keepwatch.Revision
	// Restored reports whether etcd was restored from a backup after State, which is why there is none.
	Restored bool
	// Doubt says why the object may have been in another state, "" if it was not.
	Doubt string
}

// MomentOf returns the moment of a stream that belongs to a state of an Event, which is of the stream from: its
// revision, or without revisions that both have in common, the time at which it was written. If the history of the
// stream begins later, it is that beginning, and late is true.
func (v *View) MomentOf(s *sink.State, from, of sink.Status) (m Moment, late bool, err error) {
	if from.Line == of.Line && s.From.Epoch == of.Progress.Epoch {
		if s.From.Before(of.First) {
			return Moment{Revision: of.First.Revision}, true, nil
		}
		return Moment{Revision: s.From.Revision}, false, nil
	}
	written, err := v.EventsWritten(from)(s)
	if written.Before(of.FirstSeen) {
		return Moment{Time: of.FirstSeen}, true, err
	}
	return Moment{Time: written}, false, err
}

// Beside returns the state of an object that r names, its Subject or its Related, when r was written last, with its
// contents. states are those of that object, without theirs. Without revisions that both have in common it is that of
// the time.
func (v *View) Beside(ctx context.Context, r *Reported, subject Subject, resource string,
	states []sink.State) (b Beside, err error) {
	stream, err := v.StreamOf(resource, subject.Namespace)
	if err != nil {
		return b, err
	}
	events, err := v.eventStream(r.State.Key.Namespace)
	if err != nil {
		return b, err
	}
	points := &Points{Moment: Moment{Revision: r.State.From.Revision}, exact: events.Line,
		lines: map[int]sink.Point{events.Line: r.State.From}}
	if stream.Line != events.Line {
		at := written(events, v.gapsOf(events), r.State, r.Last)
		if points, err = v.Points(ctx, Moment{Time: at}, true, stream); err != nil {
			return b, err
		}
	}
	at := points.Of(stream)
	// Some components give another UID than the object's: the kubelet's Events about a Node have its name.
	byUID := slices.ContainsFunc(states, func(s sink.State) bool { return s.UID == subject.UID })
	for i := range states {
		s := &states[i]
		if byUID && s.UID != subject.UID || at.Before(s.From) {
			continue
		}
		if b.State == nil || b.State.From.Before(s.From) {
			b.State = s
		}
	}
	if b.State != nil {
		b.Deleted = b.State.To != nil && !at.Before(*b.State.To)
		if b.State, err = v.whole(ctx, b.State); err != nil {
			return b, err
		}
		if b.At, err = v.RevisionOf(ctx, stream, b.State); err != nil {
			return b, err
		}
		b.Restored = b.At == 0 && b.State.From.Epoch < stream.Progress.Epoch
	}
	err = v.CheckAt(ctx, stream, points)
	unknown, ok := errors.AsType[*Unknown](err)
	if !ok {
		return b, err
	}
	switch {
	case b.State == nil:
	case b.Deleted && byUID: // a UID does not return
		return b, nil
	case !b.Deleted && at.Before(stream.First): // the first list had what was not written since
		return b, nil
	case v.outlasts(stream, b.State, at, unknown.Gap):
		return b, nil
	}
	b.Doubt = unknown.Reason
	return b, nil
}

// whole returns a state with its object.
func (v *View) whole(ctx context.Context, s *sink.State) (*sink.State, error) {
	before := sink.Point{Epoch: s.From.Epoch, Revision: s.From.Revision - 1}
	of := Objects{Resource: s.Resource, Namespace: s.Key.Namespace, Name: s.Key.Name}
	all, err := v.between(ctx, of, before, s.From, false, 0)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(other sink.State) bool { return other.ID == s.ID })
	if i < 0 {
		return nil, fmt.Errorf("%s %s has no state %d any more", s.Resource, s.Key, s.ID)
	}
	return &all[i], nil
}

// outlasts reports whether a state that has begun is valid at a point although other states of its stream were deleted
// there: the end of one whose successor was deleted is in the gap.
func (v *View) outlasts(of sink.Status, s *sink.State, at sink.Point, gap *sink.StoredGap) bool {
	if gap == nil || gap.Reason != sink.GapThinned {
		return false
	}
	_, end := pointsOf(*gap, v.Gaps(of))
	return s.To == nil || end.Before(*s.To) || s.Deleted && at.Before(*s.To)
}
