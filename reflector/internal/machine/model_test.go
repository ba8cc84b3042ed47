package machine_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
	"github.com/keepwatch/keepwatch/store"
)

// scope bounds a search.
type scope struct {
	keys, writes, faults int
	page                 int // objects on a page
	stream               bool
	bug                  bug
}

// bug is something wrong with the source or the target, which the search has to find.
type bug string

const (
	losesDeletes     bug = "a delete behind a compaction is not sent"
	skips            bug = "a watch that is opened again begins one revision late"
	sameRevision     bug = "410 is reported as a broken connection"
	forgetsItsPlace  bug = "a list shows an older state than it says"
	neverNoticesBack bug = "a source that went back says that it did not"
	forgetsTheVoid   bug = "a target forgets that what it holds is void"
)

// object is a state of a key; blue is what a filter looks at.
type object struct {
	key      int
	uid      string
	revision keepwatch.Revision
	blue     bool
}

func (o *object) Key() keepwatch.Key           { return keepwatch.Key{Name: string(rune('a' + o.key))} }
func (o *object) UID() keepwatch.UID           { return keepwatch.UID(o.uid) }
func (o *object) Revision() keepwatch.Revision { return o.revision }
func (o *object) Equal(p keepwatch.Object) bool {
	return o.uid == p.(*object).uid && o.revision == p.(*object).revision && o.blue == p.(*object).blue
}

func blue(o keepwatch.Object) bool { return o.(*object).blue }

// model is a source, the machine, the store that it feeds, and a watcher that
// reads all that the store has to say: everything that a reflector is, without
// goroutines, clocks and connections.
type model struct {
	scope
	path []move // so far

	epochs    []check.Epoch
	log       []keepwatch.Change // of the newest timeline; Prior is set
	head      keepwatch.Revision
	compacted keepwatch.Revision
	born      int
	written   int
	faulty    int
	// unaware: the source was restored, and the machine has not seen it yet.
	unaware bool

	machine machine.Machine
	action  machine.Action
	store   *store.Store
	ended   bool // the machine has stopped

	list    keepwatch.Replacement // on its way
	page    keepwatch.Page        // in hand
	epoch   int                   // of what the store was fed with last
	opened  int                   // the epochs there were when the watch was opened
	shown   keepwatch.Revision    // by the watch
	asked   keepwatch.Revision    // the newest when the source was asked
	watcher *store.Watcher
	told    []check.Record
	marks   []mark
	broken  string
}

// mark is where a consumer can have stopped, and the epoch of the source that
// this was of.
type mark struct {
	cursor store.Cursor
	epoch  int
}

func newModel(s scope) *model {
	m := &model{
		scope: s, epochs: []check.Epoch{{Last: 1}}, head: 1, store: store.New(store.Options{
			Size: func(keepwatch.Object) int { return 100 },
		}),
		machine: machine.Machine{State: machine.Fresh{}, Config: machine.Config{Paged: !s.stream, StartupDeadline: -1}},
	}
	m.watcher = m.store.Watch(store.Cursor{}, store.Filter{})
	m.marks = []mark{{}}
	m.step(machine.Started{})
	return m
}

func (m *model) step(in machine.Input) {
	m.machine, m.action = m.machine.Step(in)
	m.settle()
}

// fail fails; what has a deadline has met it by the second time.
func (m *model) fail(kind keepwatch.FailureKind) {
	m.step(machine.Failed{Kind: kind, Lived: time.Minute, RetryAfter: time.Second, Elapsed: m.machine.Streak.Until})
}

// settle does what can only be done in one way, and sees nothing of the source:
// waiting, and keeping a page.
func (m *model) settle() {
	for {
		switch a := m.action.(type) {
		case machine.Invalidate:
			m.void(a.Reason)
			m.action = a.Then
		case machine.Wait:
			m.machine, m.action = m.machine.Step(machine.Elapsed{})
		case machine.StorePage:
			m.machine, m.action = m.machine.Step(m.keep(a))
		case machine.ConfirmCurrent:
			m.machine, m.action = m.machine.Step(m.prove())
		case machine.Stop:
			m.ended = true
			return
		default:
			m.read()
			return
		}
	}
}

func failed(err error) machine.Input {
	f, ok := err.(*keepwatch.Failure)
	if !ok {
		panic(fmt.Sprintf("no failure: %v", err))
	}
	return machine.Failed{Kind: f.Kind, Lived: time.Minute, RetryAfter: f.RetryAfter}
}

func (m *model) keep(a machine.StorePage) machine.Input {
	ctx := context.Background()
	if a.First {
		list, err := m.store.Replace(ctx, keepwatch.Relist{Reason: a.Reason, To: a.Revision})
		if err != nil {
			return failed(err)
		}
		m.list = list
	}
	if err := m.list.Put(ctx, m.page.Objects); err != nil {
		return failed(err)
	}
	if a.Last {
		if err := m.list.Commit(ctx, a.Revision); err != nil {
			return failed(err)
		}
		m.list, m.unaware = nil, false
	}
	return machine.PageStored{}
}

func (m *model) void(reason keepwatch.GapReason) {
	if m.bug == forgetsTheVoid {
		m.unaware = false
		return
	}
	if err := m.store.Invalidate(context.Background(), reason); err != nil {
		m.broken = fmt.Sprintf("the store can't be told that it is void: %v", err)
	}
	m.unaware = m.unaware && reason != keepwatch.GapRewind
}

func (m *model) prove() machine.Input {
	held := m.machine.Revision
	if held < m.asked && m.bug == "" {
		m.broken = fmt.Sprintf("the target is told that it is current at %d, but the source had %d", held, m.asked)
	}
	if _, err := m.store.Apply(context.Background(), keepwatch.Batch{From: held, To: held}); err != nil {
		return failed(err)
	}
	return machine.Confirmed{}
}

// read takes what the store has for the watcher.
func (m *model) read() {
	for {
		d, _, err := m.watcher.TryNext()
		if err != nil {
			m.broken = fmt.Sprintf("the watcher ended: %v", err)
		}
		if d == nil || err != nil {
			return
		}
		m.told = append(m.told, check.Received{Delivery: d})
		m.marks = append(m.marks, mark{m.watcher.Cursor(), m.epoch})
	}
}

// move is one thing that can happen.
type move struct {
	what  string // one of the below, or a failure's kind
	fault bool
	n     int // the key that is written, or how far a restore goes back
}

func (v move) String() string {
	switch v.what {
	case "red", "blue", "delete", "restore":
		return fmt.Sprintf("%s %d", v.what, v.n)
	}
	return v.what
}

// moves are what can happen next.
func (m *model) moves() []move {
	var all []move
	add := func(what ...string) {
		for _, w := range what {
			all = append(all, move{what: w})
		}
	}
	fault := func(what ...string) {
		if m.faulty < m.faults {
			for _, w := range what {
				all = append(all, move{what: w, fault: true})
			}
		}
	}
	if m.ended || m.broken != "" {
		return nil
	}
	if m.written < m.writes && !m.unaware {
		all = m.writable()
	}
	fault("restart")
	if m.compacted < m.head {
		fault("compact")
	}
	for n := range min(2, int(m.head)-1) {
		if m.faulty < m.faults {
			all = append(all, move{what: "restore", fault: true, n: 1 + n})
		}
	}
	switch a := m.action.(type) {
	case machine.List:
		add("list")
		fault("unreachable", "expired", "protocol violation")
		if a.Continue != "" {
			fault("rejected")
		} else if a.Floor > 1 {
			fault("stale")
		}
		if a.Stream {
			fault("streaming list unsupported")
		}
	case machine.Watch:
		add("open")
		fault("unreachable", "expired", "storage read error")
	case machine.Probe:
		add("probe")
		fault("unreachable")
	case machine.Read:
		switch at := m.events(m.shown, m.head); {
		case m.opened != len(m.epochs):
			add("reset")
		case m.shown > m.head:
			add("silence")
		case len(at) > 0:
			add("one")
			if at[0].Revision != at[len(at)-1].Revision {
				add("all")
			}
			fault("unreachable", "expired", "undecodable", "protocol violation", "idle")
		case m.shown < m.head:
			add("bookmark")
		default:
			fault("unreachable", "repeat", "idle")
		}
	}
	return all
}

// writable are the next writes. Keys are alike until they are used, so that only
// the first of the unused may be.
func (m *model) writable() []move {
	var all []move
	state := m.state(m.head)
	for k := range m.keys {
		held := state[k]
		switch {
		case held == nil:
			all = append(all, move{what: "red", n: k})
			if !slices.ContainsFunc(m.log, func(c keepwatch.Change) bool { return c.Object.(*object).key == k }) {
				return all
			}
		case held.blue:
			all = append(all, move{what: "red", n: k}, move{what: "delete", n: k})
		default:
			all = append(all, move{what: "blue", n: k}, move{what: "delete", n: k})
		}
	}
	return all
}

// do does one move.
func (m *model) do(v move) {
	m.path = append(m.path, v)
	if v.fault {
		m.faulty++
	}
	switch v.what {
	case "red", "blue":
		m.write(v.n, &object{key: v.n, blue: v.what == "blue"})
	case "delete":
		m.write(v.n, nil)
	case "compact":
		m.compacted = m.head
	case "restore":
		m.restore(m.head - keepwatch.Revision(v.n))
	case "list", "stale":
		m.lists(m.action.(machine.List), v.what == "stale")
	case "open":
		m.open(m.action.(machine.Watch).From)
	case "probe":
		m.asked = m.head
		in := machine.Probed{Revision: m.head}
		if m.bug == neverNoticesBack {
			in.Revision = max(m.head, m.machine.Revision)
		}
		if f := m.machine.Judge(in); f != nil {
			m.step(failed(f))
		} else {
			m.step(in)
		}
	case "restart":
		m.list = nil
		m.machine = machine.Machine{State: machine.Fresh{}, Config: m.machine.Config}
		m.step(machine.Started{Revision: m.store.Revision()})
	case "reset":
		m.fail(keepwatch.Unreachable)
	case "silence":
		m.fail(keepwatch.Idle)
	case "one", "all", "bookmark", "repeat":
		m.frame(v.what)
	default:
		m.fail(kindOf(v.what))
	}
}

func kindOf(name string) keepwatch.FailureKind {
	for _, kind := range keepwatch.FailureKinds() {
		if kind.String() == name {
			return kind
		}
	}
	panic("no failure is called " + name)
}

// state is S(r), by key.
func (m *model) state(r keepwatch.Revision) map[int]*object {
	state := map[int]*object{}
	for _, c := range m.log {
		o := c.Object.(*object)
		if c.Revision > r {
			break
		}
		if delete(state, o.key); c.Type != keepwatch.Deleted {
			state[o.key] = o
		}
	}
	return state
}

func (m *model) write(k int, o *object) {
	m.written++
	m.head++
	c := keepwatch.Change{Type: keepwatch.Deleted, Revision: m.head}
	prior := m.state(m.head)[k]
	epoch := &m.epochs[len(m.epochs)-1]
	epoch.Last = m.head
	write := check.Write{Revision: m.head, Key: (&object{key: k}).Key()}
	switch {
	case o == nil:
		last := *prior
		last.revision = m.head
		c.Object = &last
	default:
		o.revision = m.head
		if c.Type = keepwatch.Added; prior != nil {
			c.Type, o.uid = keepwatch.Modified, prior.uid
		} else {
			m.born++
			o.uid = fmt.Sprintf("u%d", m.born)
		}
		c.Object, write.Object = o, o
	}
	epoch.Writes = append(epoch.Writes, write)
	m.log = append(m.log, c)
}

// restore goes back. A source that is written to before the machine has seen that
// can't be told from one that was not restored; so nothing is, see moves.
func (m *model) restore(r keepwatch.Revision) {
	m.log = slices.DeleteFunc(slices.Clone(m.log), func(c keepwatch.Change) bool { return c.Revision > r })
	m.head, m.compacted = r, min(m.compacted, r)
	m.epochs = append(m.epochs, check.Epoch{Base: r, Last: r})
	m.unaware = true
}

// lists reads the page that the machine asks for.
func (m *model) lists(a machine.List, stale bool) {
	r, skip := m.head, 0
	if a.Continue != "" {
		if _, err := fmt.Sscanf(a.Continue, "%d+%d", &r, &skip); err != nil {
			panic(err)
		}
	}
	switch {
	case a.Stream:
		m.streams(a)
		return
	case stale:
		r = a.Floor - 1
	case r < m.compacted:
		m.fail(keepwatch.Expired)
		return
	case r > m.head:
		m.fail(keepwatch.ServerError)
		return
	case r < a.Floor:
		m.fail(keepwatch.RevisionTooLarge)
		return
	}
	if skip == 0 {
		m.epoch = len(m.epochs) - 1
	}
	shows := r
	if m.bug == forgetsItsPlace && a.Floor > 1 {
		shows = r - 1
	}
	objects := m.objects(shows)
	objects = objects[min(skip, len(objects)):]
	m.page = keepwatch.Page{Revision: r}
	if len(objects) > m.scope.page {
		m.page.Continue = fmt.Sprintf("%d+%d", r, skip+m.scope.page)
		objects = objects[:m.scope.page]
	}
	m.page.Objects = objects
	in := machine.Page{Revision: r, Continue: m.page.Continue}
	if f := m.machine.Judge(in); f != nil {
		m.step(failed(f))
		return
	}
	m.step(in)
}

func (m *model) objects(r keepwatch.Revision) []keepwatch.Object {
	state := m.state(r)
	var all []keepwatch.Object
	for k := range m.keys {
		if o := state[k]; o != nil {
			all = append(all, o)
		}
	}
	return all
}

func (m *model) streams(machine.List) {
	ctx := context.Background()
	list, err := m.store.Replace(ctx, keepwatch.Relist{})
	if err != nil {
		m.step(failed(err))
		return
	}
	for _, o := range m.objects(m.head) {
		m.machine, _ = m.machine.Step(machine.Chunk{})
		if err := list.Put(ctx, []keepwatch.Object{o}); err != nil {
			m.step(failed(err))
			return
		}
	}
	if err := list.Commit(ctx, m.head); err != nil {
		m.step(failed(err))
		return
	}
	m.epoch, m.opened, m.shown, m.unaware = len(m.epochs)-1, len(m.epochs), m.head, false
	m.step(machine.Streamed{Revision: m.head})
}

func (m *model) open(from keepwatch.Revision) {
	switch {
	case from < m.compacted && m.bug == sameRevision:
		m.fail(keepwatch.Unreachable)
		return
	case from < m.compacted:
		m.fail(keepwatch.Expired)
		return
	case from < m.head && m.bug == skips && m.opened > 0:
		from++
	}
	m.opened, m.shown = len(m.epochs), from
	m.unaware = m.unaware && from > m.head
	m.step(machine.Opened{})
}

// events are the source's changes of (from, to].
func (m *model) events(from, to keepwatch.Revision) []keepwatch.Change {
	return slices.DeleteFunc(slices.Clone(m.log), func(c keepwatch.Change) bool { return c.Revision <= from || c.Revision > to })
}

// frame hands a batch to the store.
func (m *model) frame(what string) {
	b := keepwatch.Batch{From: m.shown, To: m.head, Changes: m.events(m.shown, m.head)}
	switch what {
	case "one":
		b.Changes = b.Changes[:1]
		b.To = b.Changes[0].Revision
	case "repeat":
		if past := m.events(0, m.shown); len(past) > 0 {
			b.Changes = past[len(past)-1:]
		}
	}
	if m.bug == losesDeletes && m.compacted > 0 {
		b.Changes = slices.DeleteFunc(b.Changes, func(c keepwatch.Change) bool { return c.Type == keepwatch.Deleted })
	}
	b.From = min(b.From, m.store.Revision())
	m.epoch, m.shown = m.opened-1, b.To
	if _, err := m.store.Apply(context.Background(), b); err != nil {
		m.step(failed(err))
		return
	}
	m.step(machine.Delivered{Revision: m.store.Revision(), Bookmark: b.Bookmark()})
}

// key is the same for two models that go on in the same way. What was told
// before is left out: it is judged on the way.
func (m *model) key() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%v|%v|%d %d %d %d|%d %d|", m.machine, m.action, m.head, m.compacted, m.written, m.faulty, m.opened, m.shown)
	for _, c := range m.log {
		o := c.Object.(*object)
		fmt.Fprintf(h, "%d%d%s%v ", c.Type, o.key, o.uid, o.blue)
	}
	s := m.store.Snapshot()
	fmt.Fprintf(h, "|%v %x %d %v", s.Cursor(), s.Digest(), m.store.Revision(), m.unaware)
	if m.list != nil {
		fmt.Fprintf(h, "|%v", m.page.Continue)
	}
	return h.Sum64()
}
