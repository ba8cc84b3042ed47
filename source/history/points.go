package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Points are the points of several streams at one moment.
type Points struct {
	Moment Moment
	// Time is that of the moment: when the newest change before it was stored, if the moment is a revision.
	Time  time.Time
	lines map[int]sink.Point // by Status.Line
	exact int                // the line that a revision belongs to
}

// Of returns the point of a stream.
func (p *Points) Of(s sink.Status) sink.Point { return p.lines[s.Line] }

// byTime reports whether the point of a stream is that of a time.
func (p *Points) byTime(s sink.Status) bool {
	return !p.Moment.IsNow() && (p.Moment.Revision == 0 || s.Line != p.exact)
}

// Lines returns the number of lines of revisions: if there are several, the states belong together by their time
// only.
func (p *Points) Lines() int { return len(p.lines) }

// Later returns the streams that have a newer state than at the moment now, which is the newest point that all streams
// of a line have reached. For another moment it returns none.
func (p *Points) Later(streams ...sink.Status) (later []sink.Status) {
	for _, s := range streams {
		if p.Moment.IsNow() && p.Of(s).Before(sink.Point{Epoch: s.Progress.Epoch, Revision: s.Progress.Cursor}) {
			later = append(later, s)
		}
	}
	return later
}

// Points returns the points of streams at a moment. With lenient false it returns an [Unknown] if the state of one of
// them is not known.
func (v *View) Points(ctx context.Context, m Moment, lenient bool, streams ...sink.Status) (*Points, error) {
	if len(streams) == 0 {
		return nil, fmt.Errorf("the history is empty")
	}
	p := &Points{Moment: m, Time: m.Time, lines: map[int]sink.Point{}}
	lines := map[int][]sink.Status{}
	for _, s := range streams {
		lines[s.Line] = append(lines[s.Line], s)
	}
	if m.Revision > 0 { // it belongs to the line of the first stream; its time is the moment of the others
		first := lines[streams[0].Line]
		point := sink.Point{Revision: m.Revision}
		for _, s := range first {
			point.Epoch = max(point.Epoch, s.Progress.Epoch)
		}
		p.exact, p.lines[streams[0].Line] = streams[0].Line, point
		var err error
		if p.Time, err = v.tables.SeenAt(ctx, names(first), point); err != nil {
			return nil, err
		}
	}
	for line, of := range lines {
		if _, ok := p.lines[line]; ok {
			continue
		}
		var err error
		if m.IsNow() {
			p.lines[line] = newest(of)
		} else if p.lines[line], err = v.cutAt(ctx, p.Time, of); err != nil {
			return nil, err
		}
	}
	if m.IsNow() {
		for _, s := range current(streams) {
			if p.Time.IsZero() || s.Time.Before(p.Time) {
				p.Time = s.Time
			}
		}
	}
	if lenient {
		return p, nil
	}
	for _, s := range streams {
		if err := v.checkMoment(ctx, s, p, lines[s.Line]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// PointsOf returns the points of one stream at a moment, as Points does. Of a time, it is the greatest point of all
// types that share the stream's revisions if the stream's state there is known: what is read of several types at a time
// is of one revision then, and a type without changes is known for as long as the others.
func (v *View) PointsOf(ctx context.Context, m Moment, lenient bool, of sink.Status) (*Points, error) {
	if m.Time.IsZero() {
		p, err := v.Points(ctx, m, lenient, of)
		if err == nil && m.Revision > 0 {
			p.Time, err = v.SeenAt(ctx, of, p.Of(of))
		}
		return p, err
	}
	line := v.line(of)
	at, err := v.cutAt(ctx, m.Time, line)
	if err == nil {
		err = v.Check(ctx, of, at)
	}
	switch {
	case errors.As(err, new(*Unknown)):
		return v.Points(ctx, m, lenient, of)
	case err != nil:
		return nil, err
	}
	p := &Points{Moment: m, Time: m.Time, lines: map[int]sink.Point{of.Line: at}}
	if lenient {
		return p, nil
	}
	return p, v.checkMoment(ctx, of, p, line)
}

// checkMoment returns an [Unknown] if the state of a stream at its point, or at the moment, is not known. line are the
// streams of its line.
func (v *View) checkMoment(ctx context.Context, s sink.Status, p *Points, line []sink.Status) error {
	if err := v.CheckAt(ctx, s, p); err != nil {
		return err
	}
	return checkEnd(p.Moment, s, line)
}

// Followed returns those of several streams that were followed at a moment, in their order, and the others; see
// [Unknown.NotFollowed]. Gaps do not matter.
func (v *View) Followed(ctx context.Context, m Moment, streams ...sink.Status) (followed, others []sink.Status,
	err error) {
	points, err := v.Points(ctx, m, true, streams...)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range streams {
		line := slices.DeleteFunc(slices.Clone(streams), func(other sink.Status) bool { return other.Line != s.Line })
		err := v.checkMoment(ctx, s, points, line)
		unknown, ok := errors.AsType[*Unknown](err)
		switch {
		case err != nil && !ok:
			return nil, nil, err
		case ok && unknown.NotFollowed(s):
			others = append(others, s)
		default:
			followed = append(followed, s)
		}
	}
	return followed, others, nil
}

// In returns a moment of all types as one of a stream. A revision is one of the line with the most types: for a stream
// of another line, it is the time at which the last change up to it was stored. In returns an [Unknown] if that is not
// known.
func (v *View) In(ctx context.Context, m Moment, of sink.Status) (Moment, error) {
	if m.Revision == 0 {
		return m, nil
	}
	all := ByLine(v.streams)
	first := all[0].Line
	if of.Line == first {
		return m, nil
	}
	line := slices.DeleteFunc(all, func(s sink.Status) bool { return s.Line != first })
	points, err := v.Points(ctx, m, true, line...)
	if err != nil {
		return m, err
	}
	last := slices.MaxFunc(line, func(a, b sink.Status) int {
		return cmp.Or(cmp.Compare(a.Progress.Epoch, b.Progress.Epoch), cmp.Compare(a.Progress.Cursor, b.Progress.Cursor))
	})
	err = v.Check(ctx, last, points.Of(last))
	if unknown, ok := errors.AsType[*Unknown](err); err != nil && (!ok || unknown.Gap == nil) {
		return m, err
	}
	return Moment{Time: points.Time}, nil
}

// Named returns the point of a revision of a stream that is named at a point near it: the revisions of one epoch may be
// there in another one, too. It is one of the point's epoch if that has it, and otherwise of the newest. A page is of
// the revision of the page before, which was read at that point or, since a moment such as "15 minutes ago" moves on,
// before it: Named returns an [Unknown] if that may be one of two epochs.
func (v *View) Named(ctx context.Context, of sink.Status, near sink.Point, r keepwatch.Revision,
	page bool) (sink.Point, error) {
	in := func(epoch int) (bool, error) { return v.isIn(ctx, of, sink.Point{Epoch: epoch, Revision: r}) }
	there, err := in(near.Epoch)
	if err != nil {
		return near, err
	}
	if page && near.Epoch > 0 && near.Revision < r {
		before, err := in(near.Epoch - 1)
		if err != nil {
			return near, err
		}
		if before && there {
			return near, v.unknownAt(ctx, of, fmt.Sprintf(
				"the page before may be of revision %d before or after a restore from a backup", r), nil, nil, &near)
		}
		if before {
			return sink.Point{Epoch: near.Epoch - 1, Revision: r}, nil
		}
	}
	if there {
		return sink.Point{Epoch: near.Epoch, Revision: r}, nil
	}
	return sink.Point{Epoch: of.Progress.Epoch, Revision: r}, nil
}

// isIn reports whether a stream has reached a point in its epoch, also if that is in a gap.
func (v *View) isIn(ctx context.Context, of sink.Status, at sink.Point) (bool, error) {
	err := v.Check(ctx, of, at)
	unknown, ok := errors.AsType[*Unknown](err)
	if !ok {
		return err == nil, err
	}
	return unknown.Gap != nil && unknown.Gap.Reason != keepwatch.GapRewind, nil
}

// SeenAt returns when the last change up to a point was stored, of all types that share the revisions of a stream, or
// the first list of one of them, if that was later.
func (v *View) SeenAt(ctx context.Context, of sink.Status, at sink.Point) (time.Time, error) {
	line := v.line(of)
	seen, err := v.tables.SeenAt(ctx, names(line), at)
	for _, s := range line {
		if s.First.Revision > 0 && !at.Before(s.First) && s.FirstSeen.After(seen) {
			seen = s.FirstSeen
		}
	}
	return seen, err
}

// line returns the streams that share the revisions of one.
func (v *View) line(of sink.Status) []sink.Status {
	return slices.DeleteFunc(slices.Clone(v.streams), func(s sink.Status) bool { return s.Line != of.Line })
}

// storedUntil returns the greatest point between two of one epoch at which the types that share the revisions of a
// stream have nothing after the first one that was stored after a time.
func (v *View) storedUntil(ctx context.Context, of sink.Status, from, upTo sink.Point,
	until time.Time) (sink.Point, error) {
	for _, name := range names(v.line(of)) {
		low, high := from.Revision, upTo.Revision+1 // nothing is later at low
		for probe := upTo.Revision; low+1 < high; probe = low + (high-low)/2 {
			seen, err := v.tables.SeenAt(ctx, []string{name}, sink.Point{Epoch: upTo.Epoch, Revision: probe})
			if err != nil {
				return from, err
			}
			if seen.After(until) {
				high = probe
			} else {
				low = probe
			}
		}
		upTo.Revision = low
	}
	return upTo, nil
}

// ByLine returns streams, those of the line with the most of them first: a revision of several types is one of that
// line.
func ByLine(streams []sink.Status) []sink.Status {
	count := map[int]int{}
	for _, s := range streams {
		count[s.Line]++
	}
	sorted := slices.Clone(streams)
	slices.SortStableFunc(sorted, func(a, b sink.Status) int {
		return cmp.Or(cmp.Compare(count[b.Line], count[a.Line]), cmp.Compare(a.Line, b.Line))
	})
	return sorted
}

// current returns the streams that have a newest state: those that are followed and were listed. What is not followed
// any more stays at its last state. If there are none, it returns all.
func current(streams []sink.Status) []sink.Status {
	all := slices.DeleteFunc(slices.Clone(streams), func(s sink.Status) bool { return !s.Active || s.First.Revision == 0 })
	if len(all) == 0 {
		return streams
	}
	return all
}

// newest returns the newest point that all current streams of a line have reached.
func newest(of []sink.Status) sink.Point {
	last := slices.MinFunc(current(of), func(a, b sink.Status) int {
		if a.Progress.Before(b.Progress) {
			return -1
		}
		return 1
	})
	return sink.Point{Epoch: last.Progress.Epoch, Revision: last.Progress.Cursor}
}

// pointAt returns the greatest point of streams of one line that was stored at a time or before.
func (v *View) pointAt(ctx context.Context, at time.Time, of []sink.Status) (sink.Point, error) {
	point, err := v.tables.PointAt(ctx, names(of), at)
	for _, s := range of { // without a change, a list and a bookmark are progress, too
		if !s.FirstSeen.IsZero() && !s.FirstSeen.After(at) && point.Before(s.First) {
			point = s.First
		}
		if cursor := (sink.Point{Epoch: s.Progress.Epoch, Revision: s.Progress.Cursor}); !s.Time.After(at) &&
			point.Before(cursor) {
			point = cursor
		}
	}
	return point, err
}

// cuts remembers the points of lines at times: to find one asks for each type, and reads the beginnings and ends of all
// later states in tables without peaks.
type cuts struct {
	mu    sync.Mutex
	known map[cut]sink.Point
}

type cut struct {
	streams string // of the line, which may become others, or some of them
	at      time.Time
}

const (
	// maxCuts bounds the cuts that are remembered, which are those of times settledAfter before the last transaction.
	maxCuts      = 2048
	settledAfter = time.Minute
)

// cutAt is pointAt, which it remembers.
func (v *View) cutAt(ctx context.Context, at time.Time, line []sink.Status) (sink.Point, error) {
	var streams strings.Builder
	settled := false
	for _, s := range line {
		fmt.Fprintf(&streams, "%s/%s ", s.ID.Namespace, s.ID)
		settled = settled || at.Before(s.Time.Add(-settledAfter))
	}
	key := cut{streams.String(), at.UTC()}
	v.cuts.mu.Lock()
	point, ok := v.cuts.known[key]
	v.cuts.mu.Unlock()
	if ok {
		return point, nil
	}
	point, err := v.pointAt(ctx, at, line)
	if err != nil || !settled {
		return point, err
	}
	v.cuts.mu.Lock()
	defer v.cuts.mu.Unlock()
	if len(v.cuts.known) >= maxCuts {
		clear(v.cuts.known)
	}
	v.cuts.known[key] = point
	return point, nil
}

// checkEnd returns an [Unknown] for a time after the last transaction of a line.
func checkEnd(m Moment, s sink.Status, line []sink.Status) error {
	if m.Time.IsZero() {
		return nil
	}
	var last time.Time
	for _, other := range line {
		if other.Time.After(last) {
			last = other.Time
		}
	}
	if !m.Time.After(last) {
		return nil
	}
	return &Unknown{
		Resource: s.ID.Resource, Reason: fmt.Sprintf("the history ends before %s", m),
		Earlier: knownAt(lastOf(s), s.Time, line),
	}
}
