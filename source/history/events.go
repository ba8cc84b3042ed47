package history

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"math"
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
	Type     EventType
	Resource string
	// Namespace is that of the stream of a Missing, empty if the stream is of all namespaces.
	Namespace string
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

const (
	// batchEvents bounds the points whose changes are in memory at a time, and partBytes their objects. Of a point with
	// more, the objects of a few states are in memory at a time, and of the others what identifies them.
	batchEvents = 500
	partBytes   = 8 << 20
	// fewestNames are the objects of the first query for those of a part, and mostNames those of any.
	fewestNames = 8
	mostNames   = 256
)

// Events returns what has happened to objects after a point and not after another one, in the order of revisions, as
// far as it was stored: changes, and the gaps between them. The zero points are the beginning and the end of what is
// stored; from the beginning, gaps before the first change are not among them. Gaps of [sink.GapThinned] without a
// change of the objects are not among them: each deleted state had a later one in its gap. The changes of a few
// revisions are in memory at a time, and of their objects a bounded part. An error is the last element.
func (v *View) Events(ctx context.Context, of Objects, after, upTo sink.Point) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		stream, err := v.StreamOf(of.Resource, of.Namespace)
		if err != nil {
			yield(Event{}, err)
			return
		}
		t := &teller{view: v, of: of, stream: stream, story: v.newStory(stream), after: after, upTo: upTo, yield: yield}
		if t.upTo == (sink.Point{}) {
			t.upTo = sink.Point{Epoch: math.MaxInt32, Revision: math.MaxInt64} // as a database has them
		}
		t.gaps = v.merged(stream)
		if err := t.tell(ctx); err != nil && err != errStopped {
			yield(Event{}, err)
		}
	}
}

// errStopped is the error of a consumer of events that wants no more.
var errStopped = errors.New("stopped")

// teller delivers the events of a stream's objects.
type teller struct {
	view        *View
	of          Objects
	stream      sink.Status
	story       *story
	after, upTo sink.Point
	gaps        []sink.StoredGap            // that were not delivered
	thinned     map[sink.StoredGap]struct{} // of one object: those in which it has changed
	begun       bool                        // a change was delivered
	yield       func(Event, error) bool
}

func (t *teller) tell(ctx context.Context) error {
	tell := t.tellAll
	if t.of.Name != "" {
		tell = t.tellOne
	}
	if err := tell(ctx); err != nil || !t.begun && t.after == (sink.Point{}) {
		return err
	}
	return t.tellGaps(ctx, t.upTo)
}

// tellOne delivers the events of one object, whose states are read one by one.
func (t *teller) tellOne(ctx context.Context) error {
	query := sink.StateQuery{Resource: t.of.Resource, Namespace: t.of.Namespace, Name: t.of.Name}
	if t.after != (sink.Point{}) {
		query.After, query.UpTo = &t.after, &t.upTo
	}
	t.thinned = map[sink.StoredGap]struct{}{}
	if slices.ContainsFunc(t.gaps, func(g sink.StoredGap) bool { return g.Reason == sink.GapThinned }) {
		query.WithoutObjects = true
		if err := t.view.tables.States(ctx, query, func(s sink.State) error {
			if g := t.story.gapOf(s.From); g != nil {
				t.thinned[*g] = struct{}{}
			}
			return nil
		}); err != nil {
			return err
		}
		query.WithoutObjects = false
	}
	return t.view.tables.States(ctx, query, func(s sink.State) error { return t.deliver(ctx, t.story.tell(&s)) })
}

// tellAll delivers the events of all objects, those of a few points at a time.
func (t *teller) tellAll(ctx context.Context) error {
	return t.view.eachPart(ctx, t.of, t.after, t.upTo, batchEvents, false,
		func(states []sink.State, after, upTo sink.Point) error {
			return t.deliver(ctx, t.story.again().between(states, after, upTo))
		})
}

// eachPart calls tell with the states that begin or end after a point and not after another one, those of at most so
// many points at a time, of fewer if their objects have more than partBytes, in the order in which they were stored. Of
// a point whose objects have more than that, it calls tell several times, each time with all states of some objects.
func (v *View) eachPart(ctx context.Context, of Objects, after, upTo sink.Point, points int, withoutObjects bool,
	tell func(states []sink.State, after, upTo sink.Point) error) error {
	for few := points; after.Before(upTo); {
		next, err := v.tables.PointsAfter(ctx, of.Resource, of.Namespace, after, few)
		if err != nil || len(next) == 0 || upTo.Before(next[0]) {
			return err
		}
		to := next[len(next)-1]
		if upTo.Before(to) {
			to = upTo
		}
		states, err := v.between(ctx, of, after, to, withoutObjects, v.partBytes)
		switch {
		case err == errTooLarge && len(next) > 1:
			few = len(next) / 2
			continue
		case err == errTooLarge:
			err = v.eachObjectOf(ctx, of, after, to, tell)
		case err == nil:
			if bytesOf(states) < v.partBytes/4 {
				few = min(2*few, points)
			}
			err = tell(states, after, to)
		}
		if err != nil {
			return err
		}
		after = to
	}
	return nil
}

// eachObjectOf calls tell with the states that begin or end after a point and not after another one, those of some
// objects of a namespace at a time, of as many as have no more bytes than that. What identifies the states is read
// before: one read in the order of the objects would be open while tell reads something else, which a connection of a
// database does not allow, and to begin it again after each part costs a sort of all of them.
func (v *View) eachObjectOf(ctx context.Context, of Objects, after, upTo sink.Point,
	tell func(states []sink.State, after, upTo sink.Point) error) error {
	all, err := v.between(ctx, of, after, upTo, true, 0)
	if err != nil {
		return err
	}
	names := map[string][]string{} // by namespace
	for _, s := range all {
		names[s.Key.Namespace] = append(names[s.Key.Namespace], s.Key.Name)
	}
	var states []sink.State
	few := fewestNames
	for _, namespace := range slices.Sorted(maps.Keys(names)) {
		rest := slices.Compact(slices.Sorted(slices.Values(names[namespace])))
		for len(rest) > 0 {
			n, most := min(few, len(rest)), v.partBytes/2
			if n == 1 {
				most = 0
			}
			some, err := v.selected(ctx, sink.StateQuery{Resource: of.Resource, Namespace: namespace, Names: rest[:n],
				After: &after, UpTo: &upTo}, most)
			switch {
			case err == errTooLarge:
				few = n / 2
				continue
			case err != nil:
				return err
			case n == few && bytesOf(some) < v.partBytes/8:
				few = min(2*few, mostNames)
			}
			if rest, states = rest[n:], append(states, some...); bytesOf(states) > v.partBytes/4 {
				if err := tell(states, after, upTo); err != nil {
					return err
				}
				states = nil
			}
		}
	}
	return tell(states, after, upTo)
}

func bytesOf(states []sink.State) (n int) {
	for _, s := range states {
		n += len(s.Object)
	}
	return n
}

// deliver delivers those of some events that are asked for, with the gaps before each.
func (t *teller) deliver(ctx context.Context, events []Event) error {
	for _, e := range events {
		if !t.after.Before(e.Point) || t.upTo.Before(e.Point) {
			continue
		}
		if !t.begun && t.after == (sink.Point{}) {
			t.gaps = slices.DeleteFunc(slices.Clone(t.gaps), func(g sink.StoredGap) bool {
				_, end := pointsOf(g, t.view.Gaps(t.stream))
				return !e.Point.Before(end)
			})
		}
		t.begun = true
		if err := t.tellGaps(ctx, e.Point); err != nil {
			return err
		}
		if !t.yield(e, nil) {
			return errStopped
		}
	}
	return nil
}

// tellGaps delivers the next gaps that begin before a point.
func (t *teller) tellGaps(ctx context.Context, before sink.Point) error {
	for len(t.gaps) > 0 {
		g := t.gaps[0]
		begin, end := pointsOf(g, t.view.Gaps(t.stream))
		if !begin.Before(before) {
			return nil
		}
		t.gaps = t.gaps[1:]
		if !t.after.Before(end) {
			continue
		}
		if changed, err := t.changedIn(ctx, g, begin, end); err != nil {
			return err
		} else if !changed {
			continue
		}
		if !t.yield(Event{Type: Missing, Resource: t.of.Resource, Namespace: t.stream.ID.Namespace, Point: begin,
			Time: g.Seen, Gap: &g}, nil) {
			return errStopped
		}
	}
	return nil
}

// changedIn reports whether the objects have changed in a gap of [sink.GapThinned], true for another gap.
func (t *teller) changedIn(ctx context.Context, g sink.StoredGap, begin, end sink.Point) (bool, error) {
	if g.Reason != sink.GapThinned {
		return true, nil
	}
	if t.thinned != nil {
		_, changed := t.thinned[g]
		return changed, nil
	}
	changed := false
	err := t.view.tables.States(ctx, sink.StateQuery{
		Resource: t.of.Resource, Namespace: t.of.Namespace, After: &begin, UpTo: &end, WithoutObjects: true,
	}, func(s sink.State) error {
		if in := t.story.gapOf(s.From); in != nil && *in == g {
			changed = true
			return errStopped
		}
		return nil
	})
	if err == errStopped {
		err = nil
	}
	return changed, err
}

// story makes events of the states of a stream, those of each object in the order in which they were stored.
type story struct {
	of    sink.Status
	gapOf func(at sink.Point) *sink.StoredGap
	last  map[keepwatch.Key]*sink.State
}

func (v *View) newStory(of sink.Status) *story {
	return (&story{of: of, gapOf: v.gapsOf(of)}).again()
}

// again returns a story of other states.
func (s *story) again() *story { return &story{s.of, s.gapOf, map[keepwatch.Key]*sink.State{}} }

// tell returns the changes that a state begins and ends with.
func (s *story) tell(state *sink.State) []Event {
	e := Event{Type: Added, Resource: state.Resource, Point: state.From, Time: state.SeenFrom, State: state,
		Gap: s.gapOf(state.From)}
	if p := s.last[state.Key]; p != nil && p.UID == state.UID && !p.Deleted {
		e.Type, e.Prior = Modified, p
	} else if !s.of.First.Before(state.From) {
		e.Type = Existed
	}
	s.last[state.Key] = state
	if !state.Deleted {
		return []Event{e}
	}
	return []Event{e, {Type: Deleted, Resource: state.Resource, Point: *state.To, Time: state.SeenTo, State: state,
		Prior: state, Gap: notThinned(s.gapOf(*state.To))}}
}

// between returns the changes of states after a point and not after another one, in the order of revisions.
func (s *story) between(states []sink.State, after, upTo sink.Point) (all []Event) {
	for i := range states {
		for _, e := range s.tell(&states[i]) {
			if after.Before(e.Point) && !upTo.Before(e.Point) {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return compare(a.Point, b.Point) })
	return all
}

// Merge returns the events of several sequences, each in its order, as less says which is the next one.
func Merge(less func(a, b Event) bool, all ...iter.Seq2[Event, error]) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		type head struct {
			event Event
			next  func() (Event, error, bool)
		}
		var heads []*head
		for _, events := range all {
			next, stop := iter.Pull2(events)
			defer stop()
			e, err, ok := next()
			if err != nil { // another sequence may read the same transaction, and would fail because of this one
				yield(e, err)
				return
			}
			if ok {
				heads = append(heads, &head{e, next})
			}
		}
		for len(heads) > 0 {
			first := 0
			for i, h := range heads {
				if less(h.event, heads[first].event) {
					first = i
				}
			}
			h := heads[first]
			if !yield(h.event, nil) {
				return
			}
			e, err, ok := h.next()
			if err != nil {
				yield(e, err)
				return
			}
			if h.event = e; !ok {
				heads = slices.Delete(heads, first, first+1)
			}
		}
	}
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

// gapsOf returns what says of a change of a stream to which gap it belongs, nil if it was received when it happened.
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
