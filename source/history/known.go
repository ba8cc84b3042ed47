package history

import (
	"context"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Known is a point whose state is known, and its time, which is zero if that is not known.
type Known struct {
	Point sink.Point
	Time  time.Time
}

func (k Known) String() string {
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
	first, last := of.First, sink.Point{Epoch: of.Progress.Epoch, Revision: of.Progress.Cursor}
	unknown := func(reason string, gap *sink.StoredGap, earlier, later *sink.Point) error {
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
			*end.to = &Known{*end.at, seen}
		}
		return u
	}
	if of.Progress.Gap == keepwatch.GapRewind { // the cursor is still that of the epoch before
		last.Epoch--
	}
	if first.Revision == 0 {
		return unknown("the first list is not complete", nil, nil, nil)
	}
	if at.Before(first) {
		return unknown(fmt.Sprintf("the history begins after revision %d", at.Revision), nil, nil, &first)
	}
	if last.Before(at) {
		return unknown(fmt.Sprintf("the history ends before revision %d", at.Revision), nil, &last, nil)
	}
	if gap := v.gapAt(of, at); gap != nil {
		begin, end := pointsOf(*gap, v.Gaps(of))
		reason := fmt.Sprintf("the history between revisions %d and %d is missing (%s)", gap.From, gap.To, gap.Reason)
		later := &end
		if last.Before(end) {
			later = nil // the list that ends the gap is not complete
		}
		return unknown(reason, gap, &begin, later)
	}
	return nil
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
	if of.First == at && !of.FirstSeen.IsZero() {
		seen = of.FirstSeen
	}
	if at.Revision == of.Progress.Cursor && at.Epoch == of.Progress.Epoch && of.Progress.Gap == "" {
		seen = of.Time
	}
	return seen, err
}
