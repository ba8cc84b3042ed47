package machine_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/internal/paging"
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

// bug is a bug of the source or the target, which the search must find.
type bug string

const (
	losesDeletes        bug = "a deletion below a compaction is not sent"
	skipsRevision       bug = "a watch that is opened again begins one revision late"
	hidesExpired        bug = "410 is reported as an unreachable source"
	wrongListRevision   bug = "a list shows an older state than its revision"
	hidesRewind         bug = "a rewound source reports its former revision"
	forgetsInvalidation bug = "a target forgets its invalidation"
	comparesNothing     bug = "a resource is reported as unchanged without a comparison"
	hidesSilence        bug = "a silent watch is reported as an unreachable source"
	acceptsReplay       bug = "a watch that begins from scratch is accepted"
)

// object is a state of a key. A filter selects by blue.
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

// model is a source, the machine, the store that it feeds, and a watcher of the store: a
// reflector without goroutines, clocks and connections.
type model struct {
	scope
	path []move // the moves until now

	epochs     []check.Epoch
	log        []keepwatch.Change // of the newest timeline; Prior is set
	head       keepwatch.Revision
	compacted  keepwatch.Revision
	created    int
	writesDone int
	faultsDone int
	// rewindUnseen: the source was restored, and the machine has not seen it yet.
	rewindUnseen bool

	machine machine.Machine
	action  machine.Action
	store   *store.Store
	ended   bool // the machine has stopped

	replacement keepwatch.Replacement // not committed yet
	page        keepwatch.Page        // read, and not stored yet
	epoch       int                   // of the store's last batch or list
	watchEpochs int                   // the number of epochs when the watch was opened
	watchFrom   keepwatch.Revision    // the revision that the watch was opened at
	muted       bool                  // watches deliver nothing
	delivered   keepwatch.Revision    // the revision that the watch has delivered
	probed      keepwatch.Revision    // the newest revision at the last probe
	watcher     *store.Watcher
	received    []check.Record
	marks       []mark
	violation   string
}

// mark is a cursor at which a consumer may have stopped, and its epoch of the source.
type mark struct {
	cursor store.Cursor
	epoch  int
}

func newModel(s scope) *model {
	m := &model{
		scope: s, epochs: []check.Epoch{{Last: 1}}, head: 1, store: store.New(store.Options{
			Size: func(keepwatch.Object) int { return 100 },
		}),
		machine: machine.Machine{State: machine.Fresh{}, Config: machine.Config{
			Paged: !s.stream, ProbeAfterOutage: s.stream, StartupDeadline: -1,
		}},
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

// fail applies a failure. The second one of a wait for a revision is at its deadline.
func (m *model) fail(kind keepwatch.FailureKind) {
	in := machine.Failed{Kind: kind, RetryAfter: time.Second, Elapsed: m.machine.Retries.RevisionDeadline}
	if _, open := m.action.(machine.Read); open {
		in.OpenFor = 3 * time.Minute // two such watches are too quiet
	}
	m.step(in)
}

// settle performs the actions that have one outcome and do not involve the source, like
// waiting and storing a page.
func (m *model) settle() {
	for {
		switch a := m.action.(type) {
		case machine.Invalidate:
			m.invalidate(a.Reason)
			m.action = a.Then
		case machine.Wait:
			m.machine, m.action = m.machine.Step(machine.Elapsed{})
		case machine.StorePage:
			m.machine, m.action = m.machine.Step(m.storePage(a))
		case machine.ConfirmCurrent:
			m.machine, m.action = m.machine.Step(m.confirmCurrent())
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
	return machine.Failed{Kind: f.Kind, OpenFor: time.Minute, RetryAfter: f.RetryAfter}
}

func (m *model) storePage(a machine.StorePage) machine.Input {
	ctx := context.Background()
	if a.First {
		list, err := m.store.Replace(ctx, keepwatch.Relist{Reason: a.Reason, To: a.Revision})
		if err != nil {
			return failed(err)
		}
		m.replacement = list
	}
	if err := m.replacement.Put(ctx, m.page.Objects); err != nil {
		return failed(err)
	}
	if a.Last {
		if err := m.replacement.Commit(ctx, a.Revision); err != nil {
			return failed(err)
		}
		m.replacement, m.rewindUnseen = nil, false
	}
	return machine.PageStored{}
}

func (m *model) invalidate(reason keepwatch.GapReason) {
	if m.bug == forgetsInvalidation {
		m.rewindUnseen = false
		return
	}
	if err := m.store.Invalidate(context.Background(), reason); err != nil {
		m.violation = fmt.Sprintf("the store cannot be invalidated: %v", err)
	}
	m.rewindUnseen = m.rewindUnseen && reason != keepwatch.GapRewind
}

func (m *model) confirmCurrent() machine.Input {
	current := m.action.(machine.ConfirmCurrent).To
	if current < m.probed && m.bug == "" {
		m.violation = fmt.Sprintf("the target is confirmed to be current at %d, but the source was at %d", current, m.probed)
	}
	if _, err := m.store.Apply(context.Background(), keepwatch.Batch{From: m.machine.Revision, To: current}); err != nil {
		return failed(err)
	}
	return machine.Confirmed{}
}

// read records all deliveries that the store has for the watcher.
func (m *model) read() {
	for {
		d, _, err := m.watcher.TryNext()
		if err != nil {
			m.violation = fmt.Sprintf("the watcher ended: %v", err)
		}
		if d == nil || err != nil {
			return
		}
		m.received = append(m.received, check.Received{Delivery: d})
		m.marks = append(m.marks, mark{m.watcher.Cursor(), m.epoch})
	}
}

// move is one event of the model.
type move struct {
	what  string // one of the cases of do, or the name of a failure's kind
	fault bool
	n     int // the key that is written, or the number of revisions that a restore loses
}

func (v move) String() string {
	switch v.what {
	case "red", "blue", "delete", "restore":
		return fmt.Sprintf("%s %d", v.what, v.n)
	}
	return v.what
}

// moves returns the moves that are possible next.
func (m *model) moves() []move {
	var all []move
	add := func(what ...string) {
		for _, w := range what {
			all = append(all, move{what: w})
		}
	}
	fault := func(what ...string) {
		if m.faultsDone < m.faults {
			for _, w := range what {
				all = append(all, move{what: w, fault: true})
			}
		}
	}
	if m.ended || m.violation != "" {
		return nil
	}
	if m.writesDone < m.writes && !m.rewindUnseen {
		all = m.writable()
	}
	if m.muted && m.faults > 0 { // otherwise the model is to converge while muted
		add("unmute")
		fault("foreign")
	}
	fault("restart")
	if m.compacted < m.head {
		fault("compact")
	}
	for n := range min(2, int(m.head)-1) {
		if m.faultsDone < m.faults {
			all = append(all, move{what: "restore", fault: true, n: 1 + n})
		}
	}
	switch a := m.action.(type) {
	case machine.List:
		add("list")
		fault("unreachable", "expired", "protocol violation")
		if a.Continue != "" {
			fault("rejected")
		} else if a.NotOlderThan > 1 {
			fault("stale")
		}
		if a.Stream {
			fault("streaming list unsupported")
		}
	case machine.Watch:
		add("open")
		fault("mute", "unreachable", "expired", "storage read error")
	case machine.Probe:
		add("probe")
		fault("unreachable")
	case machine.Compare:
		add("compare")
		fault("unreachable", "expired")
	case machine.Read:
		switch at := m.events(m.delivered, m.head); {
		case m.watchEpochs != len(m.epochs):
			add("reset")
		case m.delivered > m.head, m.muted && m.delivered < m.head:
			add("silence", "quiet end")
		case m.muted:
		case len(at) > 0:
			add("one")
			if at[0].Revision != at[len(at)-1].Revision {
				add("all")
			}
			fault("unreachable", "expired", "undecodable", "protocol violation", "idle")
			if m.replayShows() {
				fault("replay")
			}
		case m.delivered < m.head:
			add("bookmark")
		default:
			fault("unreachable", "repeat", "idle")
		}
	}
	return all
}

// replayShows reports whether a watch that begins from scratch has an object that shows it. One
// without looks like any other watch.
func (m *model) replayShows() bool {
	return m.delivered == m.watchFrom && slices.ContainsFunc(m.objects(m.head), func(o keepwatch.Object) bool {
		return o.Revision() <= m.watchFrom
	})
}

// writable returns the possible writes. Unused keys are equivalent, so it returns only the
// first of them.
func (m *model) writable() []move {
	var all []move
	state := m.state(m.head)
	for k := range m.keys {
		current := state[k]
		switch {
		case current == nil:
			all = append(all, move{what: "red", n: k})
			if !slices.ContainsFunc(m.log, func(c keepwatch.Change) bool { return c.Object.(*object).key == k }) {
				return all
			}
		case current.blue:
			all = append(all, move{what: "red", n: k}, move{what: "delete", n: k})
		default:
			all = append(all, move{what: "blue", n: k}, move{what: "delete", n: k})
		}
	}
	return all
}

// do performs a move.
func (m *model) do(v move) {
	m.path = append(m.path, v)
	if v.fault {
		m.faultsDone++
	}
	switch v.what {
	case "red", "blue":
		m.write(v.n, &object{key: v.n, blue: v.what == "blue"})
	case "delete":
		m.write(v.n, nil)
	case "foreign":
		m.head++
		m.epochs[len(m.epochs)-1].Last = m.head
	case "mute", "unmute":
		m.muted = v.what == "mute"
	case "compare":
		m.compare(m.action.(machine.Compare).To)
	case "compact":
		m.compacted = m.head
	case "restore":
		m.restore(m.head - keepwatch.Revision(v.n))
	case "list", "stale":
		m.list(m.action.(machine.List), v.what == "stale")
	case "open":
		m.openWatch(m.action.(machine.Watch).From)
	case "probe":
		m.probed = m.head
		in := machine.Probed{Revision: m.head}
		if m.bug == hidesRewind {
			in.Revision = max(m.head, m.machine.Revision)
		}
		if f := m.machine.Validate(in); f != nil {
			m.step(failed(f))
		} else {
			m.step(in)
		}
	case "restart":
		m.replacement = nil
		m.machine = machine.Machine{State: machine.Fresh{}, Config: m.machine.Config}
		m.step(machine.Started{Revision: m.store.Revision()})
	case "reset":
		m.fail(keepwatch.Unreachable)
	case "silence":
		m.fail(keepwatch.Idle)
	case "quiet end":
		m.fail(keepwatch.Ended)
	case "one", "all", "bookmark", "repeat", "replay":
		m.frame(v.what)
	default:
		m.fail(kindOf(v.what))
	}
}

// compare compares the resource at the machine's revision with that at to.
func (m *model) compare(to keepwatch.Revision) {
	changed := len(m.events(m.machine.Revision, to)) > 0
	switch {
	case to > m.head: // restored since the probe
		m.fail(keepwatch.RevisionTooLarge)
	case !changed, m.bug == comparesNothing:
		m.step(machine.Unchanged{})
	case m.bug == hidesSilence:
		m.fail(keepwatch.Unreachable)
	default:
		m.fail(keepwatch.Silent)
	}
}

func kindOf(name string) keepwatch.FailureKind {
	for _, kind := range keepwatch.FailureKinds() {
		if kind.String() == name {
			return kind
		}
	}
	panic("unknown failure " + name)
}

// state returns S(r), by key.
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
	m.writesDone++
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
			m.created++
			o.uid = fmt.Sprintf("u%d", m.created)
		}
		c.Object, write.Object = o, o
	}
	epoch.Writes = append(epoch.Writes, write)
	m.log = append(m.log, c)
}

// restore rewinds the source. Writes before the machine has seen the rewind would make the
// source indistinguishable from one that was not restored, so moves allows none.
func (m *model) restore(r keepwatch.Revision) {
	m.log = slices.DeleteFunc(slices.Clone(m.log), func(c keepwatch.Change) bool { return c.Revision > r })
	m.head, m.compacted = r, min(m.compacted, r)
	m.epochs = append(m.epochs, check.Epoch{Base: r, Last: r})
	m.rewindUnseen = true
}

// list reads the page that the machine asks for.
func (m *model) list(a machine.List, stale bool) {
	r, skip := m.head, 0
	if a.Continue != "" {
		if _, err := fmt.Sscanf(a.Continue, "%d+%d", &r, &skip); err != nil {
			panic(err)
		}
	}
	switch {
	case a.Stream:
		m.stream(a)
		return
	case stale:
		r = a.NotOlderThan - 1
	case r < m.compacted:
		m.fail(keepwatch.Expired)
		return
	case r > m.head:
		m.fail(keepwatch.ServerError)
		return
	case r < a.NotOlderThan:
		m.fail(keepwatch.RevisionTooLarge)
		return
	}
	if skip == 0 {
		m.epoch = len(m.epochs) - 1
	}
	shows := r
	if m.bug == wrongListRevision && a.NotOlderThan > 1 {
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
	in := machine.Page{Revision: r, Page: paging.PageOf(m.page.Continue, m.page.Objects)}
	if f := m.machine.Validate(in); f != nil {
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

func (m *model) stream(machine.List) {
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
	m.epoch, m.watchEpochs, m.watchFrom, m.delivered, m.rewindUnseen = len(m.epochs)-1, len(m.epochs), m.head, m.head,
		false
	m.step(machine.Streamed{Revision: m.head})
}

func (m *model) openWatch(from keepwatch.Revision) {
	m.watchFrom = from
	switch {
	case from < m.compacted && m.bug == hidesExpired:
		m.fail(keepwatch.Unreachable)
		return
	case from < m.compacted:
		m.fail(keepwatch.Expired)
		return
	case from < m.head && m.bug == skipsRevision && m.watchEpochs > 0:
		from++
	}
	m.watchEpochs, m.delivered = len(m.epochs), from
	m.rewindUnseen = m.rewindUnseen && from > m.head
	m.step(machine.Opened{})
}

// events returns the source's changes of (from, to].
func (m *model) events(from, to keepwatch.Revision) []keepwatch.Change {
	return slices.DeleteFunc(slices.Clone(m.log), func(c keepwatch.Change) bool {
		return c.Revision <= from ||
			c.Revision > to
	})
}

// frame delivers a batch to the store.
func (m *model) frame(what string) {
	b := keepwatch.Batch{From: m.delivered, To: m.head, Changes: m.events(m.delivered, m.head)}
	switch what {
	case "one":
		b.Changes = b.Changes[:1]
		b.To = b.Changes[0].Revision
	case "repeat":
		if past := m.events(0, m.delivered); len(past) > 0 {
			b.Changes = past[len(past)-1:]
		}
	case "replay": // what exists, as a new watch begins
		b.Changes = nil
		for _, o := range m.objects(m.head) {
			b.Changes = append(b.Changes, keepwatch.Change{Type: keepwatch.Added, Revision: o.Revision(), Object: o})
		}
	}
	if m.bug == losesDeletes && m.compacted > 0 {
		b.Changes = slices.DeleteFunc(b.Changes, func(c keepwatch.Change) bool { return c.Type == keepwatch.Deleted })
	}
	if f := machine.Replayed(b, m.watchFrom); f != nil && m.bug != acceptsReplay {
		m.step(failed(f))
		return
	}
	b.From = min(b.From, m.store.Revision())
	m.epoch, m.delivered = m.watchEpochs-1, b.To
	if _, err := m.store.Apply(context.Background(), b); err != nil {
		m.step(failed(err))
		return
	}
	m.step(machine.Delivered{Revision: m.store.Revision(), Bookmark: b.Bookmark()})
}

// key is equal for two models with the same future. It does not include what was received
// before, which the oracle has judged already.
func (m *model) key() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%v|%v|%d %d %d %d|%d %d %d %v|", m.machine, m.action, m.head, m.compacted, m.writesDone, m.faultsDone,
		m.watchEpochs, m.watchFrom, m.delivered, m.muted)
	for _, c := range m.log {
		o := c.Object.(*object)
		fmt.Fprintf(h, "%d%d%s%v ", c.Type, o.key, o.uid, o.blue)
	}
	s := m.store.Snapshot()
	fmt.Fprintf(h, "|%v %x %d %v", s.Cursor(), s.Digest(), m.store.Revision(), m.rewindUnseen)
	if m.replacement != nil {
		fmt.Fprintf(h, "|%v", m.page.Continue)
	}
	return h.Sum64()
}
