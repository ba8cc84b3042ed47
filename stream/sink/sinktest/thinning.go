package sinktest

import (
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

// Thinned are the tiers of [TestThinning].
var Thinned = []sink.Thinning{
	{Age: 30 * time.Minute, Interval: 10 * time.Minute}, {Age: 90 * time.Minute, Interval: 30 * time.Minute},
}

// Thinning is a test of a sink that thins out its history.
type Thinning struct {
	Seed  uint64
	Steps int // of about 45 s
	Rows  int // that Sink reads in a transaction, at least
	// Sink has the first Tiers of Thinned as options, Complete none; both are new.
	Sink, Complete sink.Sink
	Tiers          int
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
	for range r.changes*6*r.Tiers/r.Rows + 6*r.Tiers*int(r.now.Sub(began)/Thinned[0].Interval) + 100 {
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
		refused := [][2]string{{"DELETE", "resources"}, {"UPDATE", "resources"}, {"INSERT", "gaps"}, {"DELETE", "gaps"},
			{"INSERT", "thinning"}, {"UPDATE", "thinning"}}
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
