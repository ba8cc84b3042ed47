package history

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// EventType is what has happened at a point. The set is closed.
type EventType string

const (
	Existed  EventType = "EXISTED" // the first list had the object: when it was created or changed is not known
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Missing  EventType = "GAP" // a part of the history is missing
)

// Event is what has happened to an object at a point.
type Event struct {
	Type EventType
	// Point is that of the change. A deletion within a gap has the gap's end, a Missing its beginning.
	Point sink.Point
	// Time is when the change was stored.
	Time time.Time
	// State is the state since the change; for Deleted the last one, for Missing nil.
	State *sink.State
	// Prior is the state before it, nil if there is none.
	Prior *sink.State
	// Gap is set for Missing, and for a change within a gap: other changes before it may be missing. A deletion within
	// one of [sink.GapThinned] has none.
	Gap *sink.StoredGap
}

// Events returns what has happened to objects, in the order of revisions, as far as it was stored: changes, and the
// gaps between them. Gaps of [sink.GapThinned] without a change of the objects are not among them: each deleted state
// had a later one in its gap.
func (v *View) Events(ctx context.Context, of Objects) ([]Event, error) {
	stream, err := v.StreamOf(of.Resource, of.Namespace)
	if err != nil {
		return nil, err
	}
	states, err := v.States(ctx, of)
	if err != nil || len(states) == 0 {
		return nil, err
	}
	all := v.happened(stream, states)
	began := slices.MinFunc(all, func(a, b Event) int { return compare(a.Point, b.Point) }).Point
	thinned := map[sink.StoredGap]bool{}
	for _, e := range all {
		if e.Gap != nil {
			thinned[*e.Gap] = true
		}
	}
	for _, g := range v.merged(stream) {
		if g.Reason == sink.GapThinned && !thinned[g] {
			continue
		}
		if begin, end := pointsOf(g, v.Gaps(stream)); began.Before(end) {
			all = append(all, Event{Type: Missing, Point: begin, Time: g.Seen, Gap: &g})
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int {
		return cmp.Or(compare(a.Point, b.Point), cmp.Compare(order(a), order(b)))
	})
	return all, nil
}

// happened returns the changes that states of a stream begin and end with, those of one object in the order of
// revisions.
func (v *View) happened(of sink.Status, states []sink.State) (all []Event) {
	gapOf := v.gapsOf(of)
	last := map[keepwatch.Key]*sink.State{}
	for i := range states {
		s := &states[i]
		e := Event{Type: Added, Point: s.From, Time: s.SeenFrom, State: s, Gap: gapOf(s.From)}
		if p := last[s.Key]; p != nil && p.UID == s.UID && !p.Deleted {
			e.Type, e.Prior = Modified, p
		} else if !of.First.Before(s.From) {
			e.Type = Existed
		}
		last[s.Key] = s
		all = append(all, e)
		if s.Deleted {
			all = append(all, Event{Type: Deleted, Point: *s.To, Time: s.SeenTo, State: s, Prior: s,
				Gap: notThinned(gapOf(*s.To))})
		}
	}
	return all
}

// order orders what has happened at one point: what the gap's beginning has, then the gap.
func order(e Event) int {
	if e.Type == Missing {
		return 1
	}
	return 0
}

func compare(a, b sink.Point) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Revision, b.Revision))
}

// notThinned returns a gap in which ends and last states may be missing, nil for another one.
func notThinned(g *sink.StoredGap) *sink.StoredGap {
	if g != nil && g.Reason == sink.GapThinned {
		return nil
	}
	return g
}

// gapOf returns the gap that a change belongs to, nil if it was received when it happened.
func (v *View) gapOf(of sink.Status, at sink.Point) *sink.StoredGap { return v.gapsOf(of)(at) }

// gapsOf returns gapOf of one stream, for many changes.
func (v *View) gapsOf(of sink.Status) func(at sink.Point) *sink.StoredGap {
	merged, all := v.merged(of), v.Gaps(of)
	begins, ends := make([]sink.Point, len(merged)), make([]sink.Point, len(merged))
	last := make([]sink.Point, len(merged)) // the greatest of the ends so far
	for i, g := range merged {
		begins[i], ends[i] = pointsOf(g, all)
		if last[i] = ends[i]; i > 0 && last[i].Before(last[i-1]) {
			last[i] = last[i-1]
		}
	}
	return func(at sink.Point) *sink.StoredGap {
		i, _ := slices.BinarySearchFunc(begins, at, compare)
		for i--; i >= 0 && !last[i].Before(at); i-- {
			if !ends[i].Before(at) {
				return &merged[i]
			}
		}
		return nil
	}
}

// merged returns the gaps of a stream, of those with one beginning the last one, which began with the first: a list
// that was started over is declared again.
func (v *View) merged(of sink.Status) (all []sink.StoredGap) {
	for _, g := range v.Gaps(of) {
		if n := len(all); n > 0 && all[n-1].From == g.From && all[n-1].Epoch == g.Epoch && all[n-1].Reason == g.Reason {
			g.Began = all[n-1].Began
			all[n-1] = g
			continue
		}
		all = append(all, g)
	}
	return all
}

// changes returns the changes of states after a point and not after another one, in the order of revisions; at one
// revision, deletions first.
func (s *Source) changes(states []sink.State, after, upTo sink.Point) (all []recorded) {
	within := func(p sink.Point) bool { return after.Before(p) && !upTo.Before(p) }
	replaced := map[int64]bool{} // the ids of states that another one replaces
	last := map[keepwatch.Key]*sink.State{}
	kinds := make([]keepwatch.ChangeType, len(states))
	for i := range states {
		state := &states[i]
		kinds[i] = keepwatch.Added
		if p := last[state.Key]; p != nil && p.UID == state.UID && p.To != nil && *p.To == state.From && !p.Deleted {
			kinds[i] = keepwatch.Modified
			replaced[p.ID] = true
		}
		last[state.Key] = state
	}
	for i := range states {
		state := &states[i]
		if within(state.From) {
			all = append(all, recorded{
				keepwatch.Change{Type: kinds[i], Revision: state.From.Revision, Object: s.object(state, state.From.Revision)},
				state.SeenFrom,
			})
		}
		if state.To != nil && within(*state.To) && !replaced[state.ID] {
			all = append(all, recorded{
				keepwatch.Change{Type: keepwatch.Deleted, Revision: state.To.Revision, Object: s.object(state, state.To.Revision)},
				state.SeenTo,
			})
		}
	}
	slices.SortStableFunc(all, func(a, b recorded) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(rank(a), rank(b)))
	})
	return all
}

// rank orders the changes at one revision.
func rank(r recorded) int {
	if r.Type == keepwatch.Deleted {
		return 0
	}
	return 1
}
