package history

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Stay is a row: a state of an object, from its beginning to its end.
type Stay struct {
	ID                        int64
	Resource, Namespace, Name string // as the tables have them
	UID                       string
	From, To                  Point
	SeenFrom, SeenTo          time.Time
	Deleted                   bool
}

// Mark is a place in the order of rows by a time and their ids.
type Mark struct {
	Time time.Time
	ID   int64
}

// Edge is the end of rows by which they are ordered.
type Edge int

const (
	Begins Edge = iota // their SeenFrom; their ends are not set
	Ends               // their SeenTo
)

// Chain are rows of one object that were deleted, each the successor of the one before.
type Chain struct {
	First  Stay
	To     Point // of the last one
	SeenTo time.Time
}

// ThinTables are the tables of a database, in a transaction.
type ThinTables interface {
	Status(ctx context.Context) ([]sink.Status, error)
	// Thinned returns the border up to which the history was thinned with an interval, zero before the first one. finest
	// is true for the shortest interval: tables from before several ones were possible have the border of that one.
	Thinned(ctx context.Context, interval time.Duration, finest bool) (time.Time, error)
	SetThinned(ctx context.Context, interval time.Duration, border time.Time) error
	// NextEnd returns the first time after another one at which a row has ended, zero if there is none.
	NextEnd(ctx context.Context, after time.Time) (time.Time, error)
	// Gaps returns the gaps of other reasons than [sink.GapThinned] that began until to and did not end before from.
	Gaps(ctx context.Context, from, to time.Time) ([]sink.StoredGap, error)
	// Rows returns the first rows behind a mark whose time of an edge is not after upTo, in the order of it.
	Rows(ctx context.Context, by Edge, behind Mark, upTo time.Time, limit int) ([]Stay, error)
	// Replace deletes rows, and moves the ends of the rows before them: that of the last row of the object before
	// c.First, if c.First has replaced it, becomes the end of the chain.
	Replace(ctx context.Context, rows []Stay, chains []Chain) error
	// TakeGaps deletes the gaps of [sink.GapThinned] of a stream and an epoch that ended after from and not after to, and
	// returns them.
	TakeGaps(ctx context.Context, of sink.StoredGap, from, to time.Time) ([]sink.StoredGap, error)
	// Declare stores a gap.
	Declare(ctx context.Context, g sink.StoredGap) error
	// Forget deletes the gaps of [sink.GapThinned] of a stream that ended before its history begins.
	Forget(ctx context.Context, of sink.Status) error
}

// Thinner thins out a history, in one tier or in several with longer and longer intervals, the finest first.
type Thinner struct{ tiers []*tier }

// NewThinner returns a Thinner of tables that were opened. Each of the options has a greater age than the one before,
// and an interval that is a multiple of that one's. After a transaction that has failed another Thinner is needed.
func NewThinner(options []sink.Thinning) *Thinner {
	t := &Thinner{}
	for i, o := range options {
		t.tiers = append(t.tiers, &tier{options: o, finest: i == 0})
	}
	return t
}

// Step reads up to about limit rows, and deletes those of them that the options say.
func (t *Thinner) Step(ctx context.Context, tables ThinTables, now time.Time, limit int) (sink.Expiry, error) {
	e := sink.Expiry{Reason: sink.ExpiredByThinning}
	for _, tier := range t.tiers {
		read, err := tier.step(ctx, tables, now, limit, &e)
		if err != nil {
			return e, err
		}
		if limit -= read; limit <= 0 {
			break
		}
	}
	return e, nil
}

// tier thins out a history, as its options say, from one border to the next. The range between two is a window. That of
// a longer interval has whole windows of a shorter one, so that their borders stay, and their gaps become one.
//
// A row is deleted if its object has a later one, and no border has it: neither the time of one, nor the revision that
// the resources of the same etcd had reached at that time. So the state at a border stays complete, of each
// resource at its time and of all at one revision. In the transaction that deletes rows their range becomes a gap.
// Windows of a stream with another gap are left alone. What was done is stored with each border; after a crash the
// window begins anew.
type tier struct {
	options sink.Thinning
	finest  bool
	next    time.Time // when to look for a window again
	window  *window
	done    *window // the one before it
}

// thinEvery is how often a tier looks for a window.
const thinEvery = time.Minute

// window is a range of time between two borders that is thinned.
type window struct {
	from, to time.Time
	// start and end are the greatest points of the lines that were stored until from and to. A line without a change
	// between the border before and its own has none.
	start, end map[int]Point
	step       step
	behind     Mark
}

// step is a pass over the rows of a window, or of the one before it.
type step int

const (
	beginsBefore step = iota // for start
	endsBefore
	begins // for end
	ends
	deletes
	finished
)

// step reads up to about limit rows, and adds what it has deleted to e. It returns how many it has read.
func (t *tier) step(ctx context.Context, tables ThinTables, now time.Time, limit int, e *sink.Expiry) (read int,
	err error) {
	if t.window == nil && now.Before(t.next) {
		return 0, nil
	}
	streams, err := tables.Status(ctx)
	if err != nil {
		return 0, err
	}
	for read < limit {
		if t.window == nil {
			if err := t.begin(ctx, tables, now); err != nil {
				return read, err
			}
		}
		if t.window == nil {
			t.next = now.Add(thinEvery)
			return read, forget(ctx, tables, streams)
		}
		n, err := t.pass(ctx, tables, streams, limit-read, e)
		if err != nil {
			return read, err
		}
		read += max(n, 1)
	}
	return read, nil
}

// forget deletes the gaps that are no part of the history any more.
func forget(ctx context.Context, tables ThinTables, streams []sink.Status) error {
	for _, s := range streams {
		if err := tables.Forget(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// begin begins the next window, if there is one with rows that are old enough.
func (t *tier) begin(ctx context.Context, tables ThinTables, now time.Time) error {
	thinned, err := tables.Thinned(ctx, t.options.Interval, t.finest)
	if err != nil {
		return err
	}
	end, err := tables.NextEnd(ctx, thinned)
	if err != nil || end.IsZero() {
		return err
	}
	from := end.Add(-1).Truncate(t.options.Interval) // the border before it
	if from.Before(thinned) {
		from = thinned // a border of another interval
	}
	to := from.Truncate(t.options.Interval).Add(t.options.Interval)
	if to.After(now.Add(-t.options.Age)) {
		return nil
	}
	t.window = &window{from: from, to: to, start: map[int]Point{}, end: map[int]Point{}}
	t.window.behind = after(from.Add(-t.options.Interval))
	if t.done != nil && t.done.to.Equal(from) {
		t.window.start, t.window.step, t.window.behind = t.done.end, begins, after(from)
	}
	return nil
}

// after returns the mark behind all rows of a time.
func after(border time.Time) Mark { return Mark{border, math.MaxInt64} }

// pass reads rows for the step of the window, and goes on to the next one if there are no more.
func (t *tier) pass(
	ctx context.Context, tables ThinTables, streams []sink.Status, limit int, e *sink.Expiry,
) (int, error) {
	w := t.window
	by, upTo, points := Begins, w.to, w.end
	if w.step == endsBefore || w.step == ends || w.step == deletes {
		by = Ends
	}
	if w.step < begins {
		upTo, points = w.from, w.start
	}
	rows, err := tables.Rows(ctx, by, w.behind, upTo, limit)
	if err != nil {
		return 0, err
	}
	if w.step == deletes {
		err = w.delete(ctx, tables, streams, rows, e)
	} else {
		see(points, streams, rows, by)
	}
	switch {
	case err != nil:
		return 0, err
	case len(rows) == limit: // there may be more
		last := rows[limit-1]
		w.behind = Mark{last.SeenFrom, last.ID}
		if by == Ends {
			w.behind.Time = last.SeenTo
		}
		return limit, nil
	}
	w.step++
	switch w.behind = after(w.from); w.step {
	case endsBefore:
		w.behind = after(w.from.Add(-t.options.Interval))
	case finished:
		t.window, t.done = nil, w
		err = tables.SetThinned(ctx, t.options.Interval, w.to)
	}
	return len(rows), err
}

// see adds the points at which rows begin, or their objects were deleted.
func see(points map[int]Point, streams []sink.Status, rows []Stay, by Edge) {
	for _, r := range rows {
		at := r.From
		if by == Ends {
			if !r.Deleted {
				continue // its successor begins there
			}
			at = r.To
		}
		if s := streamOf(streams, r); s != nil && points[s.Line].Before(at) {
			points[s.Line] = at
		}
	}
}

// streamOf returns the stream of a row, nil if there is none.
func streamOf(streams []sink.Status, r Stay) *sink.Status {
	i := slices.IndexFunc(streams, func(s sink.Status) bool {
		return s.ID.Resource == r.Resource && (s.ID.Namespace == "" || s.ID.Namespace == r.Namespace)
	})
	if i < 0 {
		return nil
	}
	return &streams[i]
}

// delete deletes those of some rows that no border has, and declares their range a gap.
func (w *window) delete(
	ctx context.Context, tables ThinTables, streams []sink.Status, rows []Stay, e *sink.Expiry,
) error {
	gaps, err := tables.Gaps(ctx, w.from, w.to)
	if err != nil {
		return err
	}
	type place struct {
		stream *sink.Status
		epoch  int
	}
	ranges := map[place]*sink.StoredGap{}
	var doomed []Stay
	for _, r := range rows {
		s := streamOf(streams, r)
		if s == nil || !w.dooms(r, s) || slices.ContainsFunc(gaps, func(g sink.StoredGap) bool {
			return g.Resource == s.ID.Resource && g.Namespace == s.ID.Namespace
		}) {
			continue
		}
		doomed = append(doomed, r)
		in := place{s, r.From.Epoch}
		if ranges[in] == nil {
			ranges[in] = &sink.StoredGap{
				Resource: s.ID.Resource, Namespace: s.ID.Namespace, Epoch: r.From.Epoch, From: r.From.Revision,
				Reason: sink.GapThinned, Began: r.SeenFrom,
			}
		}
		cover(ranges[in], r)
		if e.States++; r.SeenTo.After(e.Until) {
			e.Until = r.SeenTo
		}
	}
	for _, g := range ranges {
		if err := w.declare(ctx, tables, *g); err != nil {
			return err
		}
	}
	return tables.Replace(ctx, doomed, chains(doomed))
}

// declare declares a gap of the window, which is one with the gaps of the window that were declared before.
func (w *window) declare(ctx context.Context, tables ThinTables, g sink.StoredGap) error {
	before, err := tables.TakeGaps(ctx, g, w.from, w.to)
	if err != nil {
		return err
	}
	for _, b := range before {
		g.From, g.To = min(g.From, b.From), max(g.To, b.To)
		if b.Began.Before(g.Began) {
			g.Began = b.Began
		}
		if b.Ended.After(g.Ended) {
			g.Ended = b.Ended
		}
	}
	g.Seen = g.Ended
	return tables.Declare(ctx, g)
}

// dooms reports whether a row that has ended in the window is deleted.
func (w *window) dooms(r Stay, of *sink.Status) bool {
	start, end := w.start[of.Line], w.end[of.Line]
	if start.Before(of.First) {
		start = of.First
	}
	return !r.Deleted && of.First.Revision > 0 && r.From.Epoch == r.To.Epoch &&
		start.Before(r.From) && !end.Before(r.To) && r.SeenFrom.After(w.from)
}

// cover extends a gap to a row: the revision before it, and the millisecond, are known.
func cover(g *sink.StoredGap, r Stay) {
	g.From, g.To = min(g.From, r.From.Revision-1), max(g.To, r.To.Revision)
	if began := r.SeenFrom.Add(-time.Millisecond); began.Before(g.Began) {
		g.Began = began
	}
	if r.SeenTo.After(g.Ended) {
		g.Ended = r.SeenTo
	}
}

// chains returns the chains of rows that are in the order in which they have ended.
func chains(rows []Stay) (all []Chain) {
	type object struct {
		resource string
		key      keepwatch.Key
		uid      string
	}
	last := map[object]int{} // the index of its last chain
	for _, r := range rows {
		of := object{r.Resource, keepwatch.Key{Namespace: r.Namespace, Name: r.Name}, r.UID}
		if i, ok := last[of]; ok && all[i].To == r.From {
			all[i].To, all[i].SeenTo = r.To, r.SeenTo
			continue
		}
		last[of] = len(all)
		all = append(all, Chain{First: r, To: r.To, SeenTo: r.SeenTo})
	}
	return all
}
