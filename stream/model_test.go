package stream

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

var errCrash = errors.New("crash")

// crashPoint ends a run at a random write.
type crashPoint struct {
	steps   int  // writes until the crash; negative: never
	after   bool // the last write is done before the crash
	percent int  // of the last write to the output
}

func (f *crashPoint) reached() bool {
	if f.steps < 0 {
		return false
	}
	f.steps--
	return f.steps < 0
}

// crashingState is a state whose process may end before or after each write.
type crashingState struct {
	State
	crash *crashPoint
}

func (s crashingState) announce(intents []announcement, delivered keepwatch.Revision) error {
	return s.write(func() error { return s.State.announce(intents, delivered) })
}

func (s crashingState) commit(c commit) error {
	return s.write(func() error { return s.State.commit(c) })
}

func (s crashingState) write(do func() error) error {
	if !s.crash.reached() {
		return do()
	}
	if s.crash.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errCrash
}

// crashingOutput is an output whose process may end within a write.
type crashingOutput struct {
	bytes.Buffer
	crash *crashPoint
}

func (p *crashingOutput) Write(text []byte) (int, error) {
	if !p.crash.reached() {
		return p.Buffer.Write(text)
	}
	p.Buffer.Write(text[:len(text)*p.crash.percent/100])
	return 0, errCrash
}

// follower calls streams as a reflector does, one run after the other.
type follower struct {
	t       *rapid.T
	world   *world
	open    func() State // opens the state of the last run
	crashes bool

	state   State
	stream  *Stream
	crash   crashPoint
	outputs []*crashingOutput
	newest  bool // the next list must show the newest state
}

func (f *follower) start() {
	out := &crashingOutput{crash: &f.crash}
	f.outputs = append(f.outputs, out)
	f.crash.steps = -1
	f.state = f.open()
	stream, err := New(NDJSON(out, "things"), crashingState{f.state, &f.crash}, Options{Bookmarks: true})
	if err != nil {
		f.t.Fatal(err)
	}
	f.stream, f.newest = stream, stream.Revision() == 0
}

func (f *follower) end() {
	if err := f.state.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// planCrash perhaps plans a crash of the process within steps writes.
func (f *follower) planCrash(steps int) {
	if f.crashes && rapid.Bool().Draw(f.t, "crash") {
		f.crash = crashPoint{
			steps: rapid.IntRange(0, steps).Draw(f.t, "steps"), after: rapid.Bool().Draw(f.t, "late"),
			percent: rapid.IntRange(0, 100).Draw(f.t, "part"),
		}
	}
}

// invalidate calls Invalidate. If that succeeds, the stream is invalid, in the next run
// too.
func (f *follower) invalidate() {
	f.planCrash(0)
	listed := f.stream.position.Cursor > 0
	err := f.stream.Invalidate(context.Background(), keepwatch.GapExpired)
	f.crash.steps = -1
	if err != nil && !errors.Is(err, errCrash) {
		f.t.Fatal(err)
	}
	if err != nil || rapid.Bool().Draw(f.t, "restart") {
		f.end()
		f.start()
	}
	if err == nil && f.stream.Revision() != 0 {
		f.t.Fatalf("Revision is %d after Invalidate", f.stream.Revision())
	}
	if err == nil && listed && f.stream.position.Invalid != keepwatch.GapExpired {
		f.t.Fatalf("after Invalidate the position is %+v", f.stream.position)
	}
}

// step delivers some history or a list, and perhaps crashes meanwhile.
func (f *follower) step(forced bool) {
	f.planCrash(12)
	var err error
	if current := f.stream.Revision(); current == 0 || current < f.world.compacted || forced {
		err = f.list()
	} else {
		err = f.watch(current)
	}
	switch kindOf(err) {
	case keepwatch.StaleReplica, keepwatch.ProtocolViolation:
		f.newest = true
		f.step(true)
	case keepwatch.StreamingListUnsupported:
		f.step(true)
	case 0:
		if errors.Is(err, errCrash) {
			f.end()
			f.start()
		} else if err != nil {
			f.t.Fatal(err)
		}
	default:
		f.t.Fatal(err)
	}
	f.crash.steps = -1
}

// watch delivers the next batch of history, perhaps with repetitions at its start.
func (f *follower) watch(current keepwatch.Revision) error {
	to := keepwatch.Revision(rapid.Uint64Range(uint64(current), uint64(f.world.revision())).Draw(f.t, "to"))
	from := keepwatch.Revision(rapid.Uint64Range(uint64(max(f.world.compacted, current-min(current, 2))),
		uint64(current)).Draw(f.t, "from"))
	_, err := f.stream.Apply(context.Background(), keepwatch.Batch{From: from, To: to, Changes: f.world.history[from:to]})
	return err
}

// list delivers a list, or the first pages of one.
func (f *follower) list() error {
	to := f.world.revision()
	if !f.newest {
		to = keepwatch.Revision(rapid.Uint64Range(uint64(f.stream.position.Cursor), uint64(to)).Draw(f.t, "list at"))
	}
	relist := keepwatch.Relist{Reason: rapid.SampledFrom([]keepwatch.GapReason{keepwatch.GapExpired, ""}).Draw(f.t,
		"reason"), To: to}
	if f.stream.Revision() == 0 && rapid.Bool().Draw(f.t, "streamed") {
		relist.To = 0
	}
	r, err := f.stream.Replace(context.Background(), relist)
	if kindOf(err) == keepwatch.StreamingListUnsupported {
		relist.To = to
		r, err = f.stream.Replace(context.Background(), relist)
	}
	if err != nil {
		return err
	}
	objects := f.world.objects(f.t, to)
	for len(objects) > 0 {
		if rapid.IntRange(0, 5).Draw(f.t, "cut") == 0 {
			r.Discard()
			return nil
		}
		n := rapid.IntRange(1, len(objects)).Draw(f.t, "page")
		if err := r.Put(context.Background(), objects[:n]); err != nil {
			return err
		}
		objects = objects[n:]
	}
	if err := r.Commit(context.Background(), to); err != nil {
		return err
	}
	f.newest = false
	return nil
}

// runAtRandom changes the source and the follower at random, and then lets the follower
// become current.
func (f *follower) runAtRandom() {
	f.world.write(f.t)
	f.start()
	f.t.Repeat(map[string]func(*rapid.T){
		"write":      f.world.write,
		"step":       func(*rapid.T) { f.step(false) },
		"relist":     func(*rapid.T) { f.step(true) },
		"restart":    func(*rapid.T) { f.end(); f.start() },
		"invalidate": func(*rapid.T) { f.invalidate() },
		"hide":       func(*rapid.T) { f.hide() },
		"compact": func(t *rapid.T) {
			f.world.compacted = keepwatch.Revision(rapid.Uint64Range(uint64(f.world.compacted),
				uint64(f.world.revision())).Draw(t, "compact"))
		},
		"": func(*rapid.T) {},
	})
	if rapid.Bool().Draw(f.t, "gone") {
		f.gone()
	}
	f.crashes = false
	for f.stream.Revision() != f.world.revision() {
		f.step(false)
	}
	f.end()
}

// hide ends the stream because the source does not show the resource for a time. Its objects stay. A crash meanwhile is
// followed by another end, or by a list: the resource may be back.
func (f *follower) hide() {
	f.world.hide()
	f.planCrash(12)
	err := f.stream.End(context.Background(), f.world.revision(), keepwatch.GapExpired)
	f.crash.steps = -1
	if err != nil && !errors.Is(err, errCrash) {
		f.t.Fatal(err)
	}
	if err == nil && f.stream.Revision() != 0 {
		f.t.Fatalf("after End a watch would continue at %d", f.stream.Revision())
	}
	if err != nil || rapid.Bool().Draw(f.t, "restart") {
		f.end()
		f.start()
	}
}

// gone ends the stream after the source has deleted every object. A crash meanwhile is followed by another end.
func (f *follower) gone() {
	f.world.deleteAll()
	for ended := false; !ended; {
		f.planCrash(12)
		err := f.stream.End(context.Background(), f.world.revision(), keepwatch.GapExpired)
		f.crash.steps = -1
		if err != nil && !errors.Is(err, errCrash) {
			f.t.Fatal(err)
		}
		if ended = err == nil; !ended {
			f.end()
			f.start()
		}
	}
	if n := f.stream.position.Count; n > 0 {
		f.t.Fatalf("%d objects are left", n)
	}
}

// check folds the output of all runs.
func (f *follower) check() {
	fold := newFold(f.world)
	for _, out := range f.outputs {
		fold.read(out.String())
	}
	fold.compare(f.world.revision())
	if len(fold.errors) > 0 {
		f.t.Fatalf("%s\n\n%s", strings.Join(fold.errors, "\n"), f.transcript())
	}
}

func (f *follower) transcript() string {
	var b strings.Builder
	for _, out := range f.outputs {
		b.WriteString("----\n" + out.String())
	}
	return b.String()
}

// TestCrashes checks that the fold of the output equals the source's state at every SYNCED
// and at the end, and that every deletion was delivered, through crashes at any write.
func TestCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "stream")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		f := &follower{t: t, world: &world{}, crashes: true, open: func() State { return reopen(t, dir) }}
		f.runAtRandom()
		f.check()
	})
}

func reopen(t *rapid.T, dir string) State {
	s, err := Open(dir, testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	disableSync(s.(*disk))
	return s
}

// TestTwins checks that a state in memory and one on disk return the same.
func TestTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "stream")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		state := &twins{t: t, memory: InMemory(), disk: reopen(t, dir)}
		f := &follower{t: t, world: &world{}, open: func() State { return state }}
		f.runAtRandom()
		f.check()
		if err := state.disk.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// twins calls two states, and fails if their results differ.
type twins struct {
	t            *rapid.T
	memory, disk State
}

func (s *twins) Close() error { return nil }

func (s *twins) position() position {
	a, b := s.memory.position(), s.disk.position()
	if a != b {
		s.t.Fatalf("positions differ: %+v, %+v", a, b)
	}
	return a
}

func (s *twins) announced() ([]announcement, error) {
	found, err := s.disk.announced()
	if len(found) > 0 {
		s.t.Fatalf("%d announcements are left", len(found))
	}
	return nil, err
}

func (s *twins) get(key string) (record, bool, error) {
	a, known, err1 := s.memory.get(key)
	b, also, err2 := s.disk.get(key)
	if known != also || err1 != nil || err2 != nil || !bytes.Equal(a.encode(), b.encode()) {
		s.t.Fatalf("%s: %v %v %v, %v %v %v", key, a, known, err1, b, also, err2)
	}
	return a, known, nil
}

func (s *twins) unseen(seen serials, limit int) ([]string, error) {
	a, err1 := s.memory.unseen(seen, limit)
	b, err2 := s.disk.unseen(seen, limit)
	if strings.Join(a, " ") != strings.Join(b, " ") || err1 != nil || err2 != nil {
		s.t.Fatalf("unseen are %v (%v) and %v (%v)", a, err1, b, err2)
	}
	return a, nil
}

func (s *twins) announce(intents []announcement, delivered keepwatch.Revision) error {
	return errors.Join(s.memory.announce(intents, delivered), s.disk.announce(intents, delivered))
}

func (s *twins) commit(c commit) error {
	return errors.Join(s.memory.commit(c), s.disk.commit(c))
}
