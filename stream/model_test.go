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

// fuse ends a life at a random point of a random piece.
type fuse struct {
	steps int  // until the crash; negative is never
	late  bool // the last step is done, but nobody learns of it
	part  int  // of what is written in the last step, in percent
}

func (f *fuse) burn() bool {
	if f.steps < 0 {
		return false
	}
	f.steps--
	return f.steps < 0
}

// fragile is a state whose process may end before or after each write.
type fragile struct {
	State
	fuse *fuse
}

func (s fragile) announce(intents []announcement, told keepwatch.Revision) error {
	return s.write(func() error { return s.State.announce(intents, told) })
}

func (s fragile) commit(piece commit) error {
	return s.write(func() error { return s.State.commit(piece) })
}

func (s fragile) write(do func() error) error {
	if !s.fuse.burn() {
		return do()
	}
	if s.fuse.late {
		if err := do(); err != nil {
			return err
		}
	}
	return errCrash
}

// pipe is an output whose process may end while it writes.
type pipe struct {
	bytes.Buffer
	fuse *fuse
}

func (p *pipe) Write(text []byte) (int, error) {
	if !p.fuse.burn() {
		return p.Buffer.Write(text)
	}
	p.Buffer.Write(text[:len(text)*p.fuse.part/100])
	return 0, errCrash
}

// follower drives streams as a reflector does, one life after the other.
type follower struct {
	t       *rapid.T
	world   *world
	open    func() State // the state as the last life left it
	crashes bool

	state      State
	stream     *Stream
	fuse       fuse
	lives      []*pipe
	consistent bool // the next list must be of the newest state
}

func (f *follower) start() {
	out := &pipe{fuse: &f.fuse}
	f.lives = append(f.lives, out)
	f.fuse.steps = -1
	f.state = f.open()
	stream, err := New(NDJSON(out, "things"), fragile{f.state, &f.fuse}, Options{Bookmarks: true})
	if err != nil {
		f.t.Fatal(err)
	}
	f.stream, f.consistent = stream, stream.Revision() == 0
}

func (f *follower) end() {
	if err := f.state.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// endanger lets the process crash within so many writes, perhaps.
func (f *follower) endanger(steps int) {
	if f.crashes && rapid.Bool().Draw(f.t, "crash") {
		f.fuse = fuse{
			steps: rapid.IntRange(0, steps).Draw(f.t, "steps"), late: rapid.Bool().Draw(f.t, "late"),
			part: rapid.IntRange(0, 100).Draw(f.t, "part"),
		}
	}
}

// void says that what was told can't be gone on from. Who learns that it was written
// down finds it so, also in the next life.
func (f *follower) void() {
	f.endanger(0)
	listed := f.stream.position.Cursor > 0
	err := f.stream.Invalidate(context.Background(), keepwatch.GapExpired)
	f.fuse.steps = -1
	if err != nil && !errors.Is(err, errCrash) {
		f.t.Fatal(err)
	}
	if err != nil || rapid.Bool().Draw(f.t, "restart") {
		f.end()
		f.start()
	}
	if err == nil && f.stream.Revision() != 0 {
		f.t.Fatalf("void, and held is %d", f.stream.Revision())
	}
	if err == nil && listed && f.stream.position.Void != keepwatch.GapExpired {
		f.t.Fatalf("void, and the position is %+v", f.stream.position)
	}
}

// step takes some history or a list, and perhaps crashes while doing so.
func (f *follower) step(forced bool) {
	f.endanger(12)
	var err error
	if held := f.stream.Revision(); held == 0 || held < f.world.compacted || forced {
		err = f.list()
	} else {
		err = f.watch(held)
	}
	switch kindOf(err) {
	case keepwatch.Rewound, keepwatch.ProtocolViolation:
		f.consistent = true
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
	f.fuse.steps = -1
}

// watch takes the next piece of history, perhaps with repetitions before it.
func (f *follower) watch(held keepwatch.Revision) error {
	to := keepwatch.Revision(rapid.Uint64Range(uint64(held), uint64(f.world.revision())).Draw(f.t, "to"))
	from := keepwatch.Revision(rapid.Uint64Range(uint64(max(f.world.compacted, held-min(held, 2))), uint64(held)).Draw(f.t, "from"))
	_, err := f.stream.Apply(context.Background(), keepwatch.Batch{From: from, To: to, Changes: f.world.history[from:to]})
	return err
}

// list takes a list, or the first part of one.
func (f *follower) list() error {
	to := f.world.revision()
	if !f.consistent {
		to = keepwatch.Revision(rapid.Uint64Range(uint64(f.stream.position.Cursor), uint64(to)).Draw(f.t, "list at"))
	}
	relist := keepwatch.Relist{Reason: rapid.SampledFrom([]keepwatch.GapReason{keepwatch.GapExpired, ""}).Draw(f.t, "reason"), To: to}
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
	f.consistent = false
	return nil
}

// live is a random life of a source and its followers.
func (f *follower) live() {
	f.world.write(f.t)
	f.start()
	f.t.Repeat(map[string]func(*rapid.T){
		"write":   f.world.write,
		"step":    func(*rapid.T) { f.step(false) },
		"relist":  func(*rapid.T) { f.step(true) },
		"restart": func(*rapid.T) { f.end(); f.start() },
		"void":    func(*rapid.T) { f.void() },
		"compact": func(t *rapid.T) {
			f.world.compacted = keepwatch.Revision(rapid.Uint64Range(uint64(f.world.compacted), uint64(f.world.revision())).Draw(t, "compact"))
		},
		"": func(*rapid.T) {},
	})
	f.crashes = false
	for f.stream.Revision() != f.world.revision() {
		f.step(false)
	}
	f.end()
}

// check folds everything that was told.
func (f *follower) check() {
	fold := newFold(f.world)
	for _, out := range f.lives {
		fold.read(out.String())
	}
	fold.compare(f.world.revision())
	if len(fold.wrong) > 0 {
		f.t.Fatalf("%s\n\n%s", strings.Join(fold.wrong, "\n"), f.transcript())
	}
}

func (f *follower) transcript() string {
	var b strings.Builder
	for _, out := range f.lives {
		b.WriteString("----\n" + out.String())
	}
	return b.String()
}

// TestCrashes: whatever happens, the fold of what was told is the source's state
// at every SYNCED and at the end, and every deletion is in it.
func TestCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "stream")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		f := &follower{t: t, world: &world{}, crashes: true, open: func() State { return reopen(t, dir) }}
		f.live()
		f.check()
	})
}

func reopen(t *rapid.T, dir string) State {
	s, err := Open(dir, testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	unsynced(s.(*disk))
	return s
}

// TestTwins: a state in memory and one on disk lead to the same words.
func TestTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "stream")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		state := &twins{t: t, memory: InMemory(), disk: reopen(t, dir)}
		f := &follower{t: t, world: &world{}, open: func() State { return state }}
		f.live()
		f.check()
		if err := state.disk.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// twins answers from both of two states, and insists on one answer.
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

func (s *twins) unseen(seen serials) ([]string, error) {
	a, err1 := s.memory.unseen(seen)
	b, err2 := s.disk.unseen(seen)
	if strings.Join(a, " ") != strings.Join(b, " ") || err1 != nil || err2 != nil {
		s.t.Fatalf("unseen are %v (%v) and %v (%v)", a, err1, b, err2)
	}
	return a, nil
}

func (s *twins) announce(intents []announcement, told keepwatch.Revision) error {
	return errors.Join(s.memory.announce(intents, told), s.disk.announce(intents, told))
}

func (s *twins) commit(piece commit) error {
	return errors.Join(s.memory.commit(piece), s.disk.commit(piece))
}
