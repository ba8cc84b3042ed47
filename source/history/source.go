package history

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

var _ keepwatch.Source = (*Source)(nil)

// Object is a state of an object, as the database has it. It is immutable.
type Object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	text     []byte
}

func (o *Object) Key() keepwatch.Key           { return o.key }
func (o *Object) UID() keepwatch.UID           { return o.uid }
func (o *Object) Revision() keepwatch.Revision { return o.revision }

// JSON returns the whole object, with apiVersion and kind. For a deletion it is the last state, with the revision of
// that.
func (o *Object) JSON() []byte { return o.text }

// SourceOptions configure a Source. Resource and At are required.
type SourceOptions struct {
	Resource string
	// Namespace is that of the stream, empty for all; see [View.StreamOf].
	Namespace string
	// At is the point whose state the source lists. It must be known, or the source is one that begins within a gap.
	At sink.Point
	// Onward makes watches deliver what came after At, and then what is stored while they are open. Otherwise the
	// source stays at At: its watches deliver nothing.
	Onward bool
	// Speed is how many times faster than it was recorded the past is delivered. Zero delivers it without a pause.
	Speed float64
	// Start is when the past begins to go on: watches deliver nothing before it is closed. Nil is at once.
	Start <-chan struct{}
	// Decode returns the object to be delivered. It must have o's key, UID and revision. Nil delivers each *[Object].
	Decode func(o *Object) keepwatch.Object
}

const (
	// pollEvery is how often a watch at the end of the history looks for more.
	pollEvery = 200 * time.Millisecond
	// batchPoints bounds the revisions of a batch.
	batchPoints = 200
)

// Source is one resource at a moment of the past, and onward. List, Watch and the watch's methods are for one
// reflector; Newest is safe for concurrent use.
type Source struct {
	history *History
	options SourceOptions

	mu      sync.Mutex
	at      sink.Point // what List shows
	reached keepwatch.Revision
	start   time.Time // the recorded time of At; zero until it was read
	begun   time.Time // when the replay of At began; zero before
}

// Source returns a source of one resource. It reads nothing.
func (h *History) Source(options SourceOptions) *Source {
	return &Source{history: h, options: options, at: options.At, reached: options.At.Revision}
}

// List returns the state at the source's point as one page.
func (s *Source) List(ctx context.Context, request keepwatch.ListRequest) (page keepwatch.Page, err error) {
	at := s.point()
	switch {
	case request.Continue != "":
		return page, keepwatch.Failed(keepwatch.Rejected, "list %s: no list has a second page", s.options.Resource)
	case at.Revision < request.NotOlderThan:
		return page, keepwatch.Failed(keepwatch.Rewound,
			"list %s: the moment is revision %d, below %d, which was seen before",
			s.options.Resource, at.Revision, request.NotOlderThan)
	}
	page.Revision = at.Revision
	query := sink.StateQuery{Resource: s.options.Resource, Namespace: s.options.Namespace, At: &at}
	err = s.history.database.Snapshot(ctx, func(tables sink.Snapshot) error {
		return tables.States(ctx, query, func(state sink.State) error {
			page.Objects = append(page.Objects, s.object(&state, state.From.Revision))
			return nil
		})
	})
	return page, s.failure(err)
}

func (s *Source) point() sink.Point {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// object returns the object to deliver of a state.
func (s *Source) object(state *sink.State, revision keepwatch.Revision) keepwatch.Object {
	o := objectOf(state, revision)
	if s.options.Decode == nil {
		return o
	}
	return s.options.Decode(o)
}

// objectOf returns the object of a state with a revision.
func objectOf(state *sink.State, revision keepwatch.Revision) *Object {
	o := &Object{state.Key, state.UID, revision, state.Object}
	if revision != state.From.Revision {
		o.text = WithRevision(o.text, revision.String())
	}
	return o
}

// failure returns an error of the database as one that another attempt may not meet.
func (s *Source) failure(err error) error {
	failure, ok := errors.AsType[*keepwatch.Failure](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return failure
	}
	return keepwatch.Failed(keepwatch.ServerError, "%s: %w", s.options.Resource, err)
}

// StreamList is not offered: a list is one page.
func (s *Source) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "list %s: a list is one page", s.options.Resource)
}

// Newest returns the revision that the replay has reached.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if ctx.Err() != nil {
		return 0, &keepwatch.Failure{Kind: keepwatch.Ended, Err: context.Cause(ctx)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached, nil
}

// Unchanged returns nil: a watch of a database is not silent.
func (s *Source) Unchanged(context.Context, keepwatch.Revision, keepwatch.Revision) error { return nil }

// Watch returns the history after a revision. Where a gap begins, it fails with Expired or Rewound, and List then
// shows the state at the gap's end.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	at := s.point()
	w := &replay{source: s, at: sink.Point{Epoch: at.Epoch, Revision: from}}
	if at.Before(w.at) && !s.options.Onward {
		return nil, keepwatch.Failed(keepwatch.Rewound, "watch %s: the moment is revision %d, below %d", s.options.Resource,
			at.Revision, from)
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w, nil
}

// replay is a watch of the past.
type replay struct {
	source *Source
	ctx    context.Context
	cancel context.CancelFunc
	at     sink.Point // what was delivered
	end    error      // permanent
}

func (w *replay) Close() { w.cancel() }

// Next returns the next batch; see keepwatch.Watch.
func (w *replay) Next() (keepwatch.Batch, error) {
	w.source.begin(w.ctx)
	for w.end == nil {
		batch, due, err := w.next()
		switch {
		case err != nil:
			w.end = w.source.failure(err)
		case batch != nil && w.wait(due):
			w.at.Revision = batch.To
			w.source.advance(batch.To)
			return *batch, nil
		case batch == nil:
			until := time.Now().Add(pollEvery)
			if due.After(until) {
				until = due
			}
			w.wait(until)
		}
		if w.ctx.Err() != nil {
			w.end = &keepwatch.Failure{Kind: keepwatch.Ended, Err: context.Cause(w.ctx)}
		}
	}
	return keepwatch.Batch{}, w.end
}

// begin waits until the past begins to go on, or ctx is done.
func (s *Source) begin(ctx context.Context) {
	if s.options.Start != nil {
		select {
		case <-s.options.Start:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
}

// wait waits until a time, and reports whether it has come.
func (w *replay) wait(until time.Time) bool {
	delay := time.Until(until)
	if !w.source.options.Onward {
		<-w.ctx.Done()
		return false
	}
	if delay <= 0 {
		return w.ctx.Err() == nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

func (s *Source) advance(to keepwatch.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached = max(s.reached, to)
}

// next returns the next batch, and when it is due. It returns nil if there is none yet, or a gap follows, whose end is
// due then.
func (w *replay) next() (batch *keepwatch.Batch, due time.Time, err error) {
	if !w.source.options.Onward {
		return nil, due, nil
	}
	options := w.source.options
	if more, err := w.source.history.mayHaveMore(w.ctx, options.Resource, options.Namespace, w.at); err != nil || !more {
		return nil, due, err
	}
	err = w.source.history.View(w.ctx, func(v *View) error {
		batch, due, err = w.read(v)
		return err
	})
	return batch, due, err
}

func (w *replay) read(v *View) (*keepwatch.Batch, time.Time, error) {
	s := w.source
	var none time.Time
	of, err := v.StreamOf(s.options.Resource, s.options.Namespace)
	if err != nil {
		return nil, none, keepwatch.Failed(keepwatch.Absent, "%w", err)
	}
	end := sink.Point{Epoch: of.Progress.Epoch, Revision: of.Progress.Cursor}
	if of.Progress.Gap == keepwatch.GapRewind {
		end.Epoch--
	}
	if gap, after := v.nextGap(of, w.at); gap != nil {
		if gap.From == w.at.Revision || gap.Reason == keepwatch.GapRewind &&
			!w.at.Before(sink.Point{Epoch: w.at.Epoch, Revision: gap.From}) {
			if end.Before(after) {
				return nil, none, nil // the list that ends it is not complete
			}
			due, err := w.dueAt(v, of, gap.Ended)
			if err != nil || time.Now().Before(due) {
				return nil, due, err
			}
			return nil, none, s.leap(*gap, after)
		}
		end = sink.Point{Epoch: w.at.Epoch, Revision: gap.From}
	}
	if !w.at.Before(end) {
		return nil, none, nil
	}
	points, err := v.tables.PointsAfter(w.ctx, of.ID.Resource, of.ID.Namespace, w.at, batchPoints)
	if err != nil {
		return nil, none, err
	}
	to := end
	if len(points) == batchPoints && points[batchPoints-1].Before(end) {
		to = points[batchPoints-1]
	}
	if len(points) == 0 || end.Before(points[0]) {
		return &keepwatch.Batch{From: w.at.Revision, To: end.Revision}, none, nil // a bookmark
	}
	return w.batch(v, of, to)
}

// leap moves the source over a gap, and returns why the watch cannot continue.
func (s *Source) leap(gap sink.StoredGap, to sink.Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.reached = to, to.Revision
	if gap.Reason == keepwatch.GapRewind {
		return keepwatch.Failed(keepwatch.Rewound, "watch %s: the source was restored from a backup after revision %d",
			s.options.Resource, gap.From)
	}
	return keepwatch.Failed(keepwatch.Expired, "watch %s: %s", s.options.Resource, lost(gap))
}

// batch returns the changes after w.at and not after to. With a speed, these are only those of the first time of
// them.
func (w *replay) batch(v *View, of sink.Status, to sink.Point) (*keepwatch.Batch, time.Time, error) {
	var due time.Time
	states, err := v.Between(w.ctx, Objects{Resource: of.ID.Resource, Namespace: of.ID.Namespace}, w.at, to)
	if err != nil {
		return nil, due, err
	}
	changes := w.source.changes(states, w.at, to)
	if speed := w.source.options.Speed; speed > 0 && len(changes) > 0 {
		first := changes[0].seen
		if due, err = w.dueAt(v, of, first); err != nil {
			return nil, due, err
		}
		for i, c := range changes {
			if c.seen.After(first) && c.Revision > changes[i-1].Revision {
				changes, to.Revision = changes[:i], changes[i-1].Revision
				break
			}
		}
	}
	batch := &keepwatch.Batch{From: w.at.Revision, To: to.Revision}
	for _, c := range changes {
		batch.Changes = append(batch.Changes, c.Change)
	}
	return batch, due, nil
}

// dueAt returns when what was stored at a time is due, zero without a speed.
func (w *replay) dueAt(v *View, of sink.Status, at time.Time) (due time.Time, err error) {
	speed := w.source.options.Speed
	if speed == 0 {
		return due, nil
	}
	start, err := w.source.startTime(w.ctx, v, of)
	if err != nil {
		return due, err
	}
	return w.source.begun.Add(time.Duration(min(float64(at.Sub(start))/speed, never))), nil
}

// never is later than any watch lasts, and fits into a Duration.
const never = float64(100 * 365 * 24 * time.Hour)

// startTime returns the recorded time of the point that the source began with.
func (s *Source) startTime(ctx context.Context, v *View, of sink.Status) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start.IsZero() {
		seen, err := v.timeOf(ctx, of, s.options.At)
		if err != nil {
			return seen, err
		}
		s.start = seen
	}
	return s.start, nil
}

// recorded is a change, and when it was stored.
type recorded struct {
	keepwatch.Change
	seen time.Time
}

// nextGap returns the first gap that ends after a point, and the point of its end.
func (v *View) nextGap(of sink.Status, at sink.Point) (first *sink.StoredGap, end sink.Point) {
	all := v.Gaps(of)
	for _, g := range v.merged(of) {
		begin, after := pointsOf(g, all)
		if !at.Before(after) || begin.Before(at) && begin.Epoch == at.Epoch && g.Reason != keepwatch.GapRewind {
			continue
		}
		if first == nil || after.Before(end) {
			first, end = &g, after
		}
	}
	return first, end
}
