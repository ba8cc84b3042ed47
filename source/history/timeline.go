package history

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
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
	// Lanes are objects with changes, the one that was changed last first, and Objects is how many there are.
	Lanes   []Lane
	Objects int
	// Unknown are the times between From and To of which the history is missing, in their order.
	Unknown []Span
}

// Lane is what has happened to one object name.
type Lane struct {
	Key  keepwatch.Key
	Runs []Run
}

// Run are changes of an object that are close to each other, in the order of revisions. Their states have no objects.
type Run struct {
	First, Last Event
	Count       int
}

// Span is a time in which nothing is known.
type Span struct {
	From, To time.Time
	Reason   string
}

// maxHeld bounds the states of a timeline that are in memory at a time.
const maxHeld = 100_000

// Timeline returns what has happened to objects between two moments, which need not be known: of the objects that were
// changed last, at most lanes of them, and of each as runs that are shorter than one of so many equal parts of the time
// between the moments. However many changes there are, some of them are in memory at a time.
func (v *View) Timeline(ctx context.Context, of Objects, from, to Moment, lanes, parts int) (*Timeline, error) {
	return v.timeline(ctx, of, from, to, lanes, parts, maxHeld)
}

func (v *View) timeline(ctx context.Context, of Objects, from, to Moment, lanes, parts, held int) (*Timeline, error) {
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
	if t.After.Before(t.UpTo) {
		if err := v.fill(ctx, t, of, lanes, parts, held); err != nil {
			return nil, err
		}
	}
	t.Unknown, err = v.unknown(ctx, t)
	return t, err
}

// fill adds the lanes of a timeline: those of the objects that the last changes belong to, for which all states are
// read once. If there are too many for the memory, those of the lanes are read once more.
func (v *View) fill(ctx context.Context, t *Timeline, of Objects, lanes, parts, held int) error {
	top := newTop(lanes)
	var states []sink.State // nil if there are too many
	count := 0
	err := v.tables.States(ctx, sink.StateQuery{
		Resource: of.Resource, Namespace: of.Namespace, Name: of.Name, After: &t.After, UpTo: &t.UpTo, WithoutObjects: true,
	}, func(s sink.State) error {
		if count++; count <= held {
			states = append(states, s)
		} else {
			states = nil
		}
		if s.Deleted && !t.UpTo.Before(*s.To) {
			top.add(s.Key, *s.To)
		} else if t.After.Before(s.From) && !t.UpTo.Before(s.From) {
			top.add(s.Key, s.From)
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.Objects = len(top.seen)
	byKey := map[keepwatch.Key]*Lane{}
	for _, key := range top.keys() {
		t.Lanes = append(t.Lanes, Lane{Key: key})
	}
	for i := range t.Lanes {
		byKey[t.Lanes[i].Key] = &t.Lanes[i]
	}
	begin := t.From
	if begin.IsZero() {
		begin = t.Stream.FirstSeen
	}
	longest := t.To.Sub(begin) / time.Duration(parts)
	story := v.newStory(t.Stream)
	if states == nil {
		return v.fillEach(ctx, t, of.Resource, story, longest)
	}
	slices.SortFunc(states, func(a, b sink.State) int { return cmp.Compare(a.ID, b.ID) })
	for _, e := range story.between(states, t.After, t.UpTo) {
		if l := byKey[e.State.Key]; l != nil {
			l.add(e, longest)
		}
	}
	return nil
}

// fillEach adds the runs of each lane, whose states it reads one by one.
func (v *View) fillEach(ctx context.Context, t *Timeline, resource string, story *story, longest time.Duration) error {
	for i := range t.Lanes {
		l := &t.Lanes[i]
		if err := v.tables.States(ctx, sink.StateQuery{
			Resource: resource, Namespace: l.Key.Namespace, Name: l.Key.Name, After: &t.After, UpTo: &t.UpTo,
			WithoutObjects: true,
		}, func(s sink.State) error {
			for _, e := range story.tell(&s) {
				if t.After.Before(e.Point) && !t.UpTo.Before(e.Point) {
					l.add(e, longest)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// add adds the next event of a lane to its last run, or to a new one.
func (l *Lane) add(e Event, longest time.Duration) {
	if n := len(l.Runs); n > 0 && e.Time.Sub(l.Runs[n-1].First.Time) < longest {
		l.Runs[n-1].Last = e
		l.Runs[n-1].Count++
		return
	}
	l.Runs = append(l.Runs, Run{First: e, Last: e, Count: 1})
}

// top are the keys that were added last in the order of points, and how many there are.
type top struct {
	most int
	last map[keepwatch.Key]sink.Point
	seen map[uint64]struct{} // hashes of all
	seed maphash.Seed
}

func newTop(most int) *top {
	return &top{most, map[keepwatch.Key]sink.Point{}, map[uint64]struct{}{}, maphash.MakeSeed()}
}

func (t *top) add(key keepwatch.Key, at sink.Point) {
	t.seen[maphash.Comparable(t.seed, key)] = struct{}{}
	if t.last[key].Before(at) {
		t.last[key] = at
	}
	if len(t.last) > 4*t.most+100 { // one that is dropped comes back with its last point, if that is late enough
		for _, key := range t.sorted()[t.most:] {
			delete(t.last, key)
		}
	}
}

func (t *top) sorted() []keepwatch.Key {
	return slices.SortedFunc(maps.Keys(t.last), func(a, b keepwatch.Key) int {
		return cmp.Or(compare(t.last[b], t.last[a]), a.Compare(b))
	})
}

func (t *top) keys() []keepwatch.Key {
	all := t.sorted()
	return all[:min(t.most, len(all))]
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
	if before, ahead, err := v.beforeJump(ctx, t.Stream); err != nil {
		return nil, err
	} else if ahead {
		add(before.Time, t.To, "the clock was ahead")
	}
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
	err = v.EachAt(ctx, of, at, func(s sink.State) error {
		count++
		all = append(all, s)
		cut(2 * most)
		return nil
	})
	cut(most)
	slices.SortFunc(all, func(a, b sink.State) int { return a.Key.Compare(b.Key) })
	return all, count, err
}
