package sinktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Thinned is the thinning of [TestThinning].
var Thinned = sink.Thinning{Age: 30 * time.Minute, Interval: 10 * time.Minute}

// Thinning is a test of a sink that thins out its history.
type Thinning struct {
	Seed  uint64
	Steps int // of about 45 s
	Rows  int // that Sink reads in a transaction, at least
	// Sink has the options Thinned, Complete none; both are new.
	Sink, Complete sink.Sink
	// Refuse makes the database of Sink refuse a change of a table until allow is called.
	Refuse func(change, table string) (allow func())
	// Past and CompletePast read the databases of the sinks.
	Past, CompletePast history.Database
	// Deleted returns how many states Sink has reported as deleted.
	Deleted func() int
}

// thinning is a run of [Thinning].
type thinning struct {
	Thinning
	t       *testing.T
	random  *rand.Rand
	streams []sink.Stream
	etcds   []*thinEtcd
	sources []*thinSource
	now     time.Time
	changes int
}

// thinEtcd has the objects of the streams on one line.
type thinEtcd struct {
	revision keepwatch.Revision
	epoch    int
	objects  map[string]map[string]*again // resource → name
	saved    *thinEtcd                    // a backup
}

// thinSource is what one stream has received.
type thinSource struct {
	stream   int
	resource string
	etcd     *thinEtcd
	epoch    int
	pending  []stream.Event
	late     int // steps since something has waited
	progress sink.Progress
	known    map[string]*again
	list     []stream.Message // of a gap, what its next pieces have
}

// TestThinning stores random histories of two etcds, whose streams lag behind each other, lose their place, and are
// restored, in a sink that thins them out, and that is killed, and in one that retains all. What remains of the first
// is compared with the other: which states are deleted, each moment that is known, that borders and deletions are, and
// why other moments are refused.
func TestThinning(t *testing.T, test Thinning) {
	t.Helper()
	r := &thinning{
		Thinning: test, t: t, random: rand.New(rand.NewPCG(test.Seed, 0)), streams: Streams(),
		now: time.Date(2020, 11, 28, 10, 3, 0, 0, time.UTC),
	}
	began := r.now
	for i, s := range r.streams {
		for len(r.etcds) <= s.Line {
			r.etcds = append(r.etcds, &thinEtcd{revision: 5, objects: map[string]map[string]*again{}})
		}
		etcd := r.etcds[s.Line]
		etcd.objects[s.ID.Resource] = map[string]*again{}
		source := &thinSource{stream: i, resource: s.ID.Resource, etcd: etcd, known: map[string]*again{}}
		for range 5 { // before the first list
			r.change(etcd, s.ID.Resource)
		}
		r.sources = append(r.sources, source)
	}
	for _, s := range []sink.Sink{r.Sink, r.Complete} {
		Open(t, s)
	}
	for _, s := range r.sources {
		s.pending = nil
		s.relist(stream.Gap{})
	}
	for step := range r.Steps {
		r.step()
		if step%100 == 99 {
			r.check(false)
		}
	}
	r.drain()
	r.now = r.now.Add(time.Minute) // a border is looked for as often
	for range r.changes*6/r.Rows + 6*int(r.now.Sub(began)/Thinned.Interval) + 100 {
		r.write(nil) // until nothing is left to do
	}
	r.check(true)
}

// step changes objects, and delivers some of it.
func (r *thinning) step() {
	r.now = r.now.Add(time.Duration(1+r.random.IntN(80)) * time.Second)
	if r.random.IntN(40) == 0 {
		r.drain()
		r.now = r.now.Add(25 * time.Minute) // nothing happens
	}
	for _, etcd := range r.etcds {
		etcd.disturb(r)
	}
	for range 1 + r.random.IntN(8) {
		s := r.sources[r.random.IntN(len(r.sources))]
		if e := r.change(s.etcd, s.resource); s.epoch == s.etcd.epoch {
			s.pending = append(s.pending, e)
		}
	}
	r.deliver()
}

// drain delivers all that waits: no stream lags behind the others for longer than an interval.
func (r *thinning) drain() {
	for slices.ContainsFunc(r.sources, func(s *thinSource) bool {
		return len(s.list)+len(s.pending) > 0 ||
			s.epoch != s.etcd.epoch
	}) {
		r.now = r.now.Add(time.Second)
		r.deliver()
	}
}

func (r *thinning) deliver() {
	var pieces []sink.Piece
	for _, s := range r.sources {
		if p := s.deliver(r); p != nil {
			pieces = append(pieces, *p)
		}
	}
	r.write(pieces)
}

// disturb makes a backup, or restores it.
func (e *thinEtcd) disturb(r *thinning) {
	switch n := r.random.IntN(120); {
	case n == 0 && e.saved != nil:
		e.revision, e.objects, e.epoch = e.saved.revision, e.saved.objects, e.epoch+1
		e.saved = nil
	case n < 3:
		objects := map[string]map[string]*again{}
		for resource, of := range e.objects {
			objects[resource] = maps.Clone(of)
		}
		e.saved = &thinEtcd{revision: e.revision, objects: objects}
	}
}

// change changes a random object.
func (r *thinning) change(etcd *thinEtcd, resource string) stream.Event {
	r.changes++
	etcd.revision += keepwatch.Revision(1 + r.random.IntN(2))
	name := fmt.Sprintf("o%d", r.random.IntN(6))
	of := etcd.objects[resource]
	o, exists := of[name]
	if exists && r.random.IntN(6) == 0 {
		delete(of, name)
		return stream.Event{Type: keepwatch.Deleted, Revision: etcd.revision, Object: o}
	}
	kind, uid := keepwatch.Added, keepwatch.UID(fmt.Sprintf("%s-%d-%d", name, etcd.revision, etcd.epoch))
	if exists {
		kind, uid = keepwatch.Modified, o.uid
	}
	of[name] = &again{thing{name, etcd.revision, fmt.Sprintf(`{"is":"%s %d %d"}`, name, etcd.revision,
		r.random.IntN(1000))}, uid}
	return stream.Event{Type: kind, Revision: etcd.revision, Object: of[name]}
}

// relist begins a gap, or the first list: its messages are delivered in several pieces.
func (s *thinSource) relist(gap stream.Gap) {
	s.pending, s.list, s.epoch = nil, nil, s.etcd.epoch
	if gap.Reason != "" {
		s.list = append(s.list, gap)
	}
	current := s.etcd.objects[s.resource]
	for _, name := range slices.Sorted(maps.Keys(s.known)) {
		if o := current[name]; o == nil || o.uid != s.known[name].uid {
			s.list = append(s.list, stream.Event{Type: keepwatch.Deleted, Revision: s.etcd.revision, Object: s.known[name]})
			delete(s.known, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(current)) {
		o, known := current[name], s.known[name]
		switch {
		case known == nil:
			s.list = append(s.list, stream.Event{Type: keepwatch.Added, Revision: o.revision, Object: o})
		case known.revision != o.revision || known.json != o.json:
			s.list = append(s.list, stream.Event{Type: keepwatch.Modified, Revision: o.revision, Object: o})
		}
	}
	s.list = append(s.list, stream.Synced{Revision: s.etcd.revision, Count: uint64(len(current))})
}

// deliver returns the next piece of a stream, nil if it has none.
func (s *thinSource) deliver(r *thinning) *sink.Piece {
	switch {
	case len(s.list) > 0:
	case s.epoch != s.etcd.epoch:
		s.relist(stream.Gap{From: s.progress.Cursor, To: s.etcd.revision, Reason: keepwatch.GapRewind})
	case r.random.IntN(60) == 0:
		s.relist(stream.Gap{From: s.progress.Cursor, To: s.etcd.revision, Reason: keepwatch.GapExpired})
	}
	s.progress.Floor = s.etcd.epoch
	var messages []stream.Message
	cursor := s.progress.Cursor
	if n := len(s.list); n > 0 {
		n = min(n, 4+r.random.IntN(8))
		messages, s.list = s.list[:n], s.list[n:]
		if synced, ok := messages[n-1].(stream.Synced); ok {
			cursor = synced.Revision
		}
	} else {
		n := len(s.pending)
		if s.late++; n > 0 && s.late < 3 {
			n = r.random.IntN(n + 1)
		}
		for _, e := range s.pending[:n] {
			messages, cursor = append(messages, e), e.Revision
		}
		if s.pending = s.pending[n:]; len(s.pending) == 0 {
			s.late = 0
			if r.random.IntN(3) == 0 {
				cursor = s.etcd.revision // a bookmark
			}
		}
		if len(messages) == 0 && cursor == s.progress.Cursor {
			return nil
		}
	}
	for _, m := range messages {
		if e, ok := m.(stream.Event); ok {
			name := e.Object.Key().Name
			if s.known[name] = e.Object.(*again); e.Type == keepwatch.Deleted {
				delete(s.known, name)
			}
		}
	}
	p := stream.Piece{Messages: messages, Cursor: cursor, Count: uint64(len(s.known)), Position: []byte(`{}`)}
	piece := &sink.Piece{Stream: s.stream, Piece: p, Before: s.progress, After: s.progress.After(p)}
	s.progress = piece.After
	return piece
}

// write stores pieces in both sinks. That of the thinned one is refused, or killed, at times.
func (r *thinning) write(pieces []sink.Piece) {
	r.t.Helper()
	batch := sink.Batch{Time: r.now, Pieces: pieces}
	Write(r.t, r.Complete, batch)
	if r.random.IntN(4) == 0 {
		refused := [][2]string{{"DELETE", "resources"}, {"UPDATE", "resources"}, {"INSERT", "gaps"}, {"UPDATE", "gaps"},
			{"UPDATE", "keepwatch"}}
		change := refused[r.random.IntN(len(refused))]
		allow := r.Refuse(change[0], change[1])
		err := r.Sink.Write(r.t.Context(), batch)
		allow()
		if err == nil {
			return
		}
		r.Sink.Close()
		Open(r.t, r.Sink)
	}
	Write(r.t, r.Sink, batch)
	if r.random.IntN(10) == 0 {
		r.Sink.Close()
		Open(r.t, r.Sink)
	}
}

// thinView is one state of a database, with all states of each resource, also as texts.
type thinView struct {
	*history.View
	streams []sink.Status
	states  map[string][]sink.State
	texts   map[string][]string
}

// textOf returns all of a state but its end.
func textOf(s sink.State) string {
	return fmt.Sprint(s.Key, s.UID, s.From, s.SeenFrom.UnixMilli(), s.Deleted, string(s.Object))
}

func (r *thinning) view(database history.Database, read func(v thinView)) {
	r.t.Helper()
	ctx := r.t.Context()
	err := history.New(database, history.Options{}).View(ctx, func(v *history.View) error {
		all := thinView{View: v, streams: v.Streams(), states: map[string][]sink.State{}, texts: map[string][]string{}}
		for _, s := range all.streams {
			states, err := v.States(ctx, history.Objects{Resource: s.ID.Resource})
			if err != nil {
				return err
			}
			all.states[s.ID.Resource] = states
			for _, state := range states {
				all.texts[s.ID.Resource] = append(all.texts[s.ID.Resource], textOf(state))
			}
		}
		read(all)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// at returns the states that are valid at a point.
func (v thinView) at(resource string, at sink.Point) string {
	var all []string
	for i, s := range v.states[resource] {
		if !at.Before(s.From) && (s.To == nil || at.Before(*s.To)) {
			all = append(all, v.texts[resource][i])
		}
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// check compares the databases. In the end nothing is left to be thinned out.
func (r *thinning) check(end bool) {
	r.t.Helper()
	r.view(r.CompletePast, func(complete thinView) {
		r.view(r.Past, func(thinned thinView) {
			doomed := r.doomed(complete)
			r.checkStates(complete, thinned, doomed, end)
			r.checkPoints(complete, thinned, doomed, end)
			r.checkTimes(complete, thinned)
		})
	})
}

// borders returns the borders of what is old enough, of which a window begins at each but the last.
func (r *thinning) borders(v thinView) (all []time.Time) {
	for b := v.streams[0].FirstSeen.Truncate(Thinned.Interval); !b.After(r.now.Add(-Thinned.Age)); b = b.Add(
		Thinned.Interval) {
		all = append(all, b)
	}
	return all
}

// doomed returns the states that the whole history has more than the borders, by stream and window.
func (r *thinning) doomed(v thinView) map[string][][]sink.State {
	all := map[string][][]sink.State{}
	borders := r.borders(v)
	pointAt := func(s sink.Status, b time.Time) (at sink.Point) {
		for _, other := range v.streams {
			if other.Line != s.Line {
				continue
			}
			for _, state := range v.states[other.ID.Resource] {
				if !state.SeenFrom.After(b) && at.Before(state.From) {
					at = state.From
				}
				if state.To != nil && !state.SeenTo.After(b) && at.Before(*state.To) {
					at = *state.To
				}
			}
		}
		return at
	}
	for _, s := range v.streams {
		for i := range max(0, len(borders)-1) {
			from, to := borders[i], borders[i+1]
			start, last := pointAt(s, from), pointAt(s, to)
			if slices.ContainsFunc(v.Gaps(s), func(g sink.StoredGap) bool {
				return !g.Began.After(to) && (g.Ended.IsZero() || !g.Ended.Before(from))
			}) {
				continue
			}
			var window []sink.State
			for _, state := range v.states[s.ID.Resource] {
				if state.To != nil && !state.Deleted && state.From.Epoch == state.To.Epoch && state.SeenFrom.After(from) &&
					!state.SeenTo.After(to) &&
					s.First.Before(state.From) && start.Before(state.From) && !last.Before(*state.To) {
					window = append(window, state)
				}
			}
			if window != nil {
				all[s.ID.Resource] = append(all[s.ID.Resource], window)
			}
		}
	}
	return all
}

// checkStates checks which states were deleted, and that those before them end where these ended.
func (r *thinning) checkStates(complete, thinned thinView, doomed map[string][][]sink.State, end bool) {
	r.t.Helper()
	gone := 0
	for resource, states := range complete.states {
		isDoomed := map[int64]bool{}
		for _, window := range doomed[resource] {
			for _, s := range window {
				isDoomed[s.ID] = true
			}
		}
		type line struct {
			text string
			to   *sink.Point
		}
		want := make([]line, 0, len(states)) // pointers to its elements stay
		last := map[keepwatch.Key]*line{}
		for _, s := range states {
			if p := last[s.Key]; isDoomed[s.ID] {
				if p != nil && p.to != nil && *p.to == s.From {
					p.to = s.To
				}
				continue
			}
			want = append(want, line{textOf(s), s.To})
			last[s.Key] = nil
			if !s.Deleted {
				last[s.Key] = &want[len(want)-1]
			}
		}
		var wanted, got []string
		for _, l := range want {
			wanted = append(wanted, fmt.Sprint(l.text, l.to))
		}
		for _, s := range thinned.states[resource] {
			got = append(got, fmt.Sprint(textOf(s), s.To))
		}
		gone += len(states) - len(thinned.states[resource])
		if end && !slices.Equal(got, wanted) {
			i := 0
			for i < min(len(got), len(wanted)) && got[i] == wanted[i] {
				i++
			}
			r.t.Errorf("%s has %d states, and must have %d; from the first difference on:\n%.300q\n%.300q", resource, len(got),
				len(wanted),
				got[i:], wanted[i:])
		}
	}
	if gone != r.Deleted() {
		r.t.Errorf("%d states are gone, and %d were reported", gone, r.Deleted())
	}
}

// checkPoints checks each revision, or some: what is known is as in the complete history, and no more is refused than
// the range of what was deleted in one window.
func (r *thinning) checkPoints(complete, thinned thinView, doomed map[string][][]sink.State, all bool) {
	r.t.Helper()
	ctx := r.t.Context()
	refused := 0
	for i, s := range complete.streams {
		of := thinned.streams[i]
		if of.First != s.First || of.Progress != s.Progress {
			r.t.Fatalf("%s: %+v, want %+v", s.ID.Resource, of, s)
		}
		for epoch := 0; epoch <= s.Progress.Epoch; epoch++ {
			for revision := keepwatch.Revision(1); revision <= r.etcds[s.Line].most(s); revision++ {
				if !all && r.random.IntN(10) > 0 {
					continue
				}
				at := sink.Point{Epoch: epoch, Revision: revision}
				err, wanted := thinned.Check(ctx, of, at), complete.Check(ctx, s, at)
				unknown, ok := errors.AsType[*history.Unknown](err)
				switch {
				case err == nil && wanted == nil:
					if got, want := thinned.at(s.ID.Resource, at), complete.at(s.ID.Resource, at); got != want {
						r.t.Fatalf("%s at %v:\n%s, want\n%s", s.ID.Resource, at, got, want)
					}
				case wanted != nil:
					if fmt.Sprint(err) != fmt.Sprint(wanted) {
						r.t.Fatalf("%s at %v: %v, want %v", s.ID.Resource, at, err, wanted)
					}
				case !ok || unknown.Gap == nil || unknown.Gap.Reason != sink.GapThinned || !within(doomed[s.ID.Resource], at):
					r.t.Fatalf("%s at %v is refused: %v", s.ID.Resource, at, err)
				default:
					refused++
					for _, near := range []*history.Known{unknown.Earlier, unknown.Later} {
						if err := thinned.Check(ctx, of, near.Point); err != nil {
							r.t.Fatalf("%s at %v: %v is named: %v", s.ID.Resource, at, near, err)
						}
					}
				}
			}
		}
	}
	r.t.Logf("%d states are deleted, %d moments are refused", r.Deleted(), refused)
}

// most returns a revision that no stream of an etcd has exceeded.
func (e *thinEtcd) most(s sink.Status) keepwatch.Revision {
	return max(e.revision, s.Progress.Cursor) + 200
}

// within reports whether a point is in the range of the states of a window.
func within(windows [][]sink.State, at sink.Point) bool {
	return slices.ContainsFunc(windows, func(window []sink.State) bool {
		first := slices.MinFunc(window, func(a, b sink.State) int { return comparePoints(a.From, b.From) })
		last := slices.MaxFunc(window, func(a, b sink.State) int { return comparePoints(*a.To, *b.To) })
		return !at.Before(first.From) && at.Before(*last.To)
	})
}

func comparePoints(a, b sink.Point) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Revision, b.Revision))
}

// checkTimes checks each border, random times, and those of some states, of one stream, of those of an etcd and of all.
func (r *thinning) checkTimes(complete, thinned thinView) {
	r.t.Helper()
	var first time.Time
	for _, s := range complete.streams {
		if s.FirstSeen.After(first) {
			first = s.FirstSeen
		}
	}
	times := r.borders(complete)
	borders := len(times)
	for range 60 {
		times = append(times, first.Add(time.Duration(r.random.Int64N(int64(r.now.Sub(first)))).Truncate(time.Millisecond)))
	}
	for _, s := range complete.streams {
		states := complete.states[s.ID.Resource]
		for range 40 {
			state := states[r.random.IntN(len(states))]
			times = append(times, state.SeenFrom)
			if state.To != nil {
				times = append(times, state.SeenTo)
			}
		}
	}
	for i, at := range times {
		if !at.After(first) {
			continue
		}
		for _, some := range [][]int{{0}, {1}, {2}, {3}, {0, 1, 2, 3}} {
			got, err := thinned.statesAt(r.t.Context(), at, some)
			want, wanted := complete.statesAt(r.t.Context(), at, some)
			switch {
			case err != nil && wanted == nil && i < borders:
				r.t.Fatalf("the border %v of %v is refused: %v", at, some, err)
			case err == nil && wanted != nil:
				r.t.Fatalf("%v of %v is known, and was refused: %v", at, some, wanted)
			case err == nil && got != want:
				r.t.Fatalf("%v of %v:\n%s, want\n%s", at, some, got, want)
			}
		}
	}
}

// statesAt returns the states of some streams at a time.
func (v thinView) statesAt(ctx context.Context, at time.Time, some []int) (string, error) {
	var streams []sink.Status
	for _, i := range some {
		streams = append(streams, v.streams[i])
	}
	points, err := v.Points(ctx, history.Moment{Time: at}, false, streams...)
	if err != nil {
		return "", err
	}
	text := ""
	for _, s := range streams {
		text += v.at(s.ID.Resource, points.Of(s))
	}
	return text, nil
}
