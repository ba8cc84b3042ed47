package history

import (
	"bytes"
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

// Equal reports whether other is the same state with the same content. After a restore from a backup the same revision
// may be another state.
func (o *Object) Equal(other keepwatch.Object) bool {
	p, ok := other.(*Object)
	return ok && o.uid == p.uid && o.revision == p.revision && bytes.Equal(o.text, p.text)
}

// MaxSpeed bounds how many times faster the past is replayed.
const MaxSpeed = 1e9

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
	// Speed is how many times faster than it was recorded the past is delivered, at most MaxSpeed. Zero delivers it
	// without a pause.
	Speed float64
	// Time is the recorded time at which the replay begins, which may be later than the last change up to At. Zero is when
	// the state at At was complete.
	Time time.Time
	// Start is when the past begins to go on: watches deliver nothing before it is closed. Nil is at once.
	Start <-chan struct{}
	// Decode returns the object to be delivered. It must have o's key, UID and revision. Nil delivers each *[Object].
	Decode func(o *Object) keepwatch.Object
}

const (
	// pollEvery is how often a watch at the end of the history looks for more.
	pollEvery = 200 * time.Millisecond
	// moveEvery is how often a replay without changes of its resource looks how far those of the others have come.
	moveEvery = 10 * time.Second
	// batchPoints bounds the revisions that a replay reads at a time, and replayBytes the objects of several revisions.
	batchPoints = 200
	replayBytes = 1 << 20
)

// Source is one resource at a moment of the past, and onward. List, Watch and the watch's methods are for one
// reflector; Newest and Passed are safe for concurrent use.
type Source struct {
	history *History
	options SourceOptions

	mu      sync.Mutex
	at      sink.Point // what List shows
	reached keepwatch.Revision
	passed  time.Time // the recorded time of at, since watches could not continue before it; zero before
	start   time.Time // the recorded time at which the replay begins; zero until it was read
	begun   time.Time // when the replay of At began; zero before
	// within is the end of the gap that the replay began in: up to there it shows what there is. It is nil until it was
	// read, and zero if there is none.
	within *sink.Point
}

// Source returns a source of one resource. It reads nothing.
func (h *History) Source(options SourceOptions) *Source {
	return &Source{history: h, options: options, at: options.At, reached: options.At.Revision}
}

// List returns the state at the source's point as one page. If the history does not reach back to it any more, List
// fails, or shows the state where it begins now if watches go on from there.
func (s *Source) List(ctx context.Context, request keepwatch.ListRequest) (page keepwatch.Page, err error) {
	if request.Continue != "" {
		return page, keepwatch.Failed(keepwatch.Rejected, "list %s: no list has a second page", s.options.Resource)
	}
	err = s.history.View(ctx, func(v *View) error {
		of, err := v.StreamOf(s.options.Resource, s.options.Namespace)
		if err != nil {
			return keepwatch.Failed(keepwatch.Absent, "%w", err)
		}
		if err := s.overtaken(ctx, v, of, s.point()); err != nil && !(s.options.Onward && isMoved(err)) {
			return err
		}
		at := s.point()
		if at.Revision < request.NotOlderThan {
			return keepwatch.Failed(keepwatch.Rewound, "list %s: the moment is revision %d, below %d, which was seen before",
				s.options.Resource, at.Revision, request.NotOlderThan)
		}
		page.Revision = at.Revision
		query := sink.StateQuery{Resource: s.options.Resource, Namespace: s.options.Namespace, At: &at}
		return v.tables.States(ctx, query, func(state sink.State) error {
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
// shows the state at the gap's end. So it does, with the state where the history begins then, once retention has
// deleted what would come next.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	at := s.point()
	w := &replay{source: s, at: sink.Point{Epoch: at.Epoch, Revision: from}, few: batchPoints}
	if at.Before(w.at) && !s.options.Onward {
		return nil, keepwatch.Failed(keepwatch.Rewound, "watch %s: the moment is revision %d, below %d", s.options.Resource,
			at.Revision, from)
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w, nil
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

// Passed returns the time of the moment that List shows since the last watch could not continue: the end of a gap, or
// where the history begins since retention has deleted what was before. It is zero if no watch has ended so. It is safe
// for concurrent use.
func (s *Source) Passed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed
}

func (s *Source) advance(to keepwatch.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached = max(s.reached, to)
}

// overtaken returns nil if all that a stream had after a point is still in the history, apart from its gaps. Otherwise
// it moves the source to where the history begins now, and returns why a watch cannot continue. The replay's clock
// does not stay behind that: retention may be as fast as a replay, which would never reach it.
func (s *Source) overtaken(ctx context.Context, v *View, of sink.Status, at sink.Point) error {
	if of.First.Revision == 0 || !at.Before(of.First) {
		return nil
	}
	first := of.First
	if gap := v.gapAt(of, first); gap != nil {
		if isOpen(of, *gap) {
			return keepwatch.Failed(keepwatch.ServerError, "%s: the list that ends a gap is not complete", s.options.Resource)
		}
		_, first = pointsOf(*gap, v.Gaps(of))
	}
	seen, err := v.timeOf(ctx, of, first)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.reached, s.passed = first, first.Revision, seen
	if behind := seen.Sub(s.presentLocked()); !s.begun.IsZero() && behind > 0 {
		s.start = s.start.Add(behind)
	}
	kind := keepwatch.Expired
	if first.Epoch != at.Epoch {
		kind = keepwatch.Rewound
	}
	return keepwatch.Failed(kind,
		"%s: the history after revision %d was deleted by retention: it begins at revision %d now", s.options.Resource,
		at.Revision, first.Revision)
}

// isMoved reports whether an error of overtaken is that of a source that it has moved.
func isMoved(err error) bool {
	failure, ok := errors.AsType[*keepwatch.Failure](err)
	return ok && (failure.Kind == keepwatch.Expired || failure.Kind == keepwatch.Rewound)
}

// leap moves the source over a gap, and returns why the watch cannot continue.
func (s *Source) leap(gap sink.StoredGap, to sink.Point) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.reached, s.passed = to, to.Revision, gap.Ended
	if gap.Reason == keepwatch.GapRewind {
		return keepwatch.Failed(keepwatch.Rewound, "watch %s: the source was restored from a backup after revision %d",
			s.options.Resource, gap.From)
	}
	return keepwatch.Failed(keepwatch.Expired, "watch %s: %s", s.options.Resource, lost(gap))
}

// dueAt returns when what was stored at a time is due, zero without a speed.
func (s *Source) dueAt(at time.Time) (due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if speed := s.options.Speed; speed > 0 {
		return s.begun.Add(time.Duration(min(float64(at.Sub(s.start))/speed, never)))
	}
	return due
}

// present returns the recorded time that the replay has reached.
func (s *Source) present() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.presentLocked()
}

// presentLocked is present. s.mu is locked.
func (s *Source) presentLocked() time.Time {
	return s.start.Add(time.Duration(min(float64(time.Since(s.begun))*s.options.Speed, never)))
}

// never is later than any watch lasts, and fits into a Duration.
const never = float64(100 * 365 * 24 * time.Hour)

// findStart finds the recorded time at which the replay begins.
func (s *Source) findStart(ctx context.Context, v *View, of sink.Status) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start.IsZero() {
		if s.start = s.options.Time; s.start.IsZero() {
			s.start, err = v.timeOf(ctx, of, s.options.At)
		}
	}
	return err
}

// nextGap returns the first gap that ends after a point of the replay, and the point of its end. It may have begun
// before the point, if it was thinned out since the replay came there.
func (s *Source) nextGap(v *View, of sink.Status, at sink.Point) (first *sink.StoredGap, end sink.Point) {
	in := v.gapAt(of, at)
	if in != nil {
		_, end = pointsOf(*in, v.Gaps(of))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.within == nil {
		s.within = &end
	}
	if in != nil && in.Reason == sink.GapThinned && !at.Before(*s.within) {
		return in, end
	}
	return v.nextGap(of, at)
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
