package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Known is a point whose state is known, and its time, which is zero if that is not known.
type Known struct {
	Point sink.Point
	Time  time.Time
	// Restored reports whether etcd was restored from a backup after it. The moment of its revision is another one then:
	// that of the newest epoch.
	Restored bool
}

// String names the moment as [ParseMoment] finds it.
func (k Known) String() string {
	if k.Restored && !k.Time.IsZero() {
		return k.Time.UTC().Format(timeFormat) + " (before a restore from a backup)"
	}
	text := "revision " + k.Point.Revision.String()
	if !k.Time.IsZero() {
		text += " at " + k.Time.UTC().Format(timeFormat)
	}
	return text
}

// Unknown is the error of a moment whose state the history does not have.
type Unknown struct {
	Resource string
	Reason   string
	// Gap is the declared gap that the moment is in, nil if it is in none.
	Gap *sink.StoredGap
	// Earlier and Later are the nearest known moments, nil if there are none.
	Earlier, Later *Known
}

func (u *Unknown) Error() string {
	nearest := "no moment is known yet"
	switch {
	case u.Earlier != nil && u.Later != nil:
		nearest = fmt.Sprintf("the nearest known moments are %s and %s", u.Earlier, u.Later)
	case u.Earlier != nil:
		nearest = fmt.Sprintf("the last known moment is %s", u.Earlier)
	case u.Later != nil:
		nearest = fmt.Sprintf("the first known moment is %s", u.Later)
	}
	return fmt.Sprintf("%s: %s; %s", u.Resource, u.Reason, nearest)
}

// NotFollowed reports whether the moment is before the first list of a stream, or after the last transaction of one
// that is not followed any more.
func (u *Unknown) NotFollowed(of sink.Status) bool {
	return u.Gap == nil && (u.Earlier == nil || !of.Active)
}

// Check returns an [Unknown] if the state of a stream at a point is not known.
func (v *View) Check(ctx context.Context, of sink.Status, at sink.Point) error {
	first, last := of.First, lastOf(of)
	if first.Revision == 0 {
		return v.unknownAt(ctx, of, "the first list is not complete", nil, nil, nil)
	}
	if at.Before(first) {
		if gap := v.gapAt(of, first); gap != nil { // older states of it were deleted
			_, first = pointsOf(*gap, v.Gaps(of))
		}
		reason := "the history begins later"
		if at.Revision > 0 { // a time before everything has no revision
			reason = fmt.Sprintf("the history begins after revision %d", at.Revision)
		}
		return v.unknownAt(ctx, of, reason, nil, nil, &first)
	}
	if last.Before(at) {
		return v.unknownAt(ctx, of, fmt.Sprintf("the history ends before revision %d", at.Revision), nil, &last, nil)
	}
	if gap := v.gapAt(of, at); gap != nil {
		return v.missing(ctx, of, gap)
	}
	return nil
}

// Near returns the nearest points to one of a stream that are known, and that a [Moment] names by their revision,
// which is one of the newest epoch. Both are the point itself if it is known. They are nil if there are none: outside
// the history there are none either.
func (v *View) Near(ctx context.Context, of sink.Status, at sink.Point) (earlier, later *sink.Point, err error) {
	err = v.Check(ctx, of, at)
	unknown, ok := errors.AsType[*Unknown](err)
	switch {
	case err == nil:
		earlier, later = &at, &at
	case !ok:
		return nil, nil, err
	case unknown.Gap != nil:
		if unknown.Earlier != nil {
			earlier = &unknown.Earlier.Point
		}
		if unknown.Later != nil {
			later = &unknown.Later.Point
		}
	}
	if earlier != nil && earlier.Epoch != of.Progress.Epoch {
		earlier = nil
	}
	if later != nil && later.Epoch != of.Progress.Epoch {
		later = nil
	}
	return earlier, later, nil
}

// RevisionOf returns the first revision at which a state of a stream is known to be valid, and that a [Moment] names,
// 0 if there is none.
func (v *View) RevisionOf(ctx context.Context, of sink.Status, s *sink.State) (keepwatch.Revision, error) {
	at := s.From
	if at.Before(of.First) { // the first list had states of before
		at = of.First
	}
	_, later, err := v.Near(ctx, of, at)
	if err != nil || later == nil || s.To != nil && !later.Before(*s.To) {
		return 0, err
	}
	return later.Revision, nil
}

// CheckAt returns an [Unknown] if the state of a stream at its point is not known, or if the moment is a time in a gap,
// or one that is not known since the clock was ahead: the last point that was stored until then is known, but the state
// at the time is not.
func (v *View) CheckAt(ctx context.Context, of sink.Status, p *Points) error {
	if err := v.Check(ctx, of, p.Of(of)); err != nil || !p.byTime(of) {
		return err
	}
	if err := v.CheckClock(ctx, p.Time, of); err != nil {
		return err
	}
	var in *sink.StoredGap
	gaps := v.Gaps(of)
	for i, g := range gaps {
		begin, _ := pointsOf(g, gaps)
		switch {
		case in != nil:
			if in.From == g.From && in.Epoch == g.Epoch { // its list was started over
				in = &gaps[i]
			}
			continue
		case begin.Before(p.Of(of)), !isOpen(of, g) && !p.Time.Before(g.Ended):
			continue
		}
		began, err := v.began(ctx, of, g)
		if err != nil {
			return err
		}
		if p.Time.After(began) {
			in = &gaps[i]
		}
	}
	if in == nil {
		return nil
	}
	return v.missing(ctx, of, in)
}

// began returns the time up to which the state of a stream before a gap is known. In tables that do not have it, this
// is the time of the last change before.
func (v *View) began(ctx context.Context, of sink.Status, g sink.StoredGap) (time.Time, error) {
	if !g.Began.IsZero() {
		return g.Began, nil
	}
	begin, _ := pointsOf(g, v.Gaps(of))
	return v.timeOf(ctx, of, begin)
}

// isOpen reports whether the list that ends a gap is not complete.
func isOpen(of sink.Status, g sink.StoredGap) bool {
	if g.Reason == sink.GapThinned {
		return false
	}
	return g.Ended.IsZero() || of.Progress.Gap != "" && of.Progress.Cursor == g.From
}

// missing returns the [Unknown] of a moment in a gap.
func (v *View) missing(ctx context.Context, of sink.Status, gap *sink.StoredGap) error {
	begin, end := pointsOf(*gap, v.Gaps(of))
	reason := lost(*gap)
	later := &end
	if isOpen(of, *gap) {
		later = nil // the list that ends the gap is not complete
	}
	return v.unknownAt(ctx, of, reason, gap, &begin, later)
}

// lost says what is not known in a gap.
func lost(gap sink.StoredGap) string {
	if gap.Reason == sink.GapThinned {
		return fmt.Sprintf("the states between revisions %d and %d were thinned out", gap.From, gap.To)
	}
	return fmt.Sprintf("the history between revisions %d and %d is missing (%s)", gap.From, gap.To, gap.Reason)
}

// unknownAt returns an [Unknown] with the times of the nearest known points.
func (v *View) unknownAt(ctx context.Context, of sink.Status, reason string, gap *sink.StoredGap, earlier,
	later *sink.Point) error {
	u := &Unknown{Resource: of.ID.Resource, Reason: reason, Gap: gap}
	for _, end := range []struct {
		at *sink.Point
		to **Known
	}{{earlier, &u.Earlier}, {later, &u.Later}} {
		if end.at == nil {
			continue
		}
		seen, err := v.timeOf(ctx, of, *end.at)
		if err != nil {
			return err
		}
		*end.to = knownAt(*end.at, seen, v.line(of))
	}
	return u
}

// knownAt returns a known point of a stream, of a line with its streams.
func knownAt(at sink.Point, seen time.Time, line []sink.Status) *Known {
	newer := func(s sink.Status) bool { return s.Progress.Epoch > at.Epoch }
	return &Known{Point: at, Time: seen, Restored: slices.ContainsFunc(line, newer)}
}

// lastOf returns the last known point of a stream.
func lastOf(of sink.Status) sink.Point {
	at := sink.Point{Epoch: of.Progress.Epoch, Revision: of.Progress.Cursor}
	if of.Progress.Gap == keepwatch.GapRewind { // the cursor is still that of the epoch before
		at.Epoch--
	}
	return at
}

// gapAt returns the gap that a point is in, nil if it is in none. Of several, it is the one that lasts longest: a
// list that was started over is declared again.
func (v *View) gapAt(of sink.Status, at sink.Point) (in *sink.StoredGap) {
	gaps := v.Gaps(of)
	for i, g := range gaps {
		begin, end := pointsOf(g, gaps)
		if begin.Before(at) && at.Before(end) {
			in = &gaps[i]
		}
	}
	return in
}

// pointsOf returns the last known point before a gap, and the first one after it.
func pointsOf(g sink.StoredGap, all []sink.StoredGap) (begin, end sink.Point) {
	begin, end = sink.Point{Epoch: g.Epoch, Revision: g.From}, sink.Point{Epoch: g.Epoch, Revision: g.To}
	if g.Reason == keepwatch.GapRewind { // it begins in the epoch before
		begin.Epoch = 0
		for _, other := range all {
			if other.Epoch < g.Epoch {
				begin.Epoch = max(begin.Epoch, other.Epoch)
			}
		}
	}
	return begin, end
}

// timeOf returns when the state of a stream at a known point was complete.
func (v *View) timeOf(ctx context.Context, of sink.Status, at sink.Point) (time.Time, error) {
	seen, err := v.tables.SeenAt(ctx, []string{of.ID.Resource}, at)
	if !at.Before(of.First) && of.FirstSeen.After(seen) { // without a change since the first list
		seen = of.FirstSeen
	}
	if at.Revision == of.Progress.Cursor && at.Epoch == of.Progress.Epoch && of.Progress.Gap == "" {
		seen = of.Time
	}
	return seen, err
}
