package machine_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
	"github.com/keepwatch/keepwatch/store"
)

// defaults is the scope of the exhaustive search.
var defaults = scope{keys: 2, writes: 3, faults: 2, page: 1}

var (
	keys   = flag.Int("search.keys", 0, "how many keys the exhaustive search writes")
	writes = flag.Int("search.writes", 0, "how many revisions it writes")
	faults = flag.Int("search.faults", 0, "how many faults it injects")
	walks  = flag.Int("search.walks", 300, "how many random walks follow it")
	first  = flag.Uint64("search.seed", 1, "the seed of the first walk")
)

// replay performs a path from the initial state.
func replay(s scope, path []move) *model {
	m := newModel(s)
	for _, v := range path {
		m.do(v)
	}
	return m
}

// node is a state that was found: the state before it, the move from there, and the moves that are possible next.
type node struct {
	from int32
	by   move
	next []move
}

// path returns the moves from the first node to a node.
func path(nodes []node, i int32) []move {
	var all []move
	for ; i > 0; i = nodes[i].from {
		all = append(all, nodes[i].by)
	}
	slices.Reverse(all)
	return all
}

// TestExhaustiveSearch performs all moves within a scope, breadth first, so that the first
// path to a problem is a shortest one. It visits equal states once.
func TestExhaustiveSearch(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			t.Parallel()
			s := defaults
			s.stream = stream
			if testing.Short() {
				s.writes = 2
			}
			s.keys, s.writes, s.faults = cmp.Or(*keys, s.keys), cmp.Or(*writes, s.writes), cmp.Or(*faults, s.faults)
			nodes, moves, problem := search(s)
			t.Logf("%d keys, %d writes, %d faults: %d states, %d moves", s.keys, s.writes, s.faults, nodes, moves)
			if problem != "" {
				t.Error(problem)
			}
		})
	}
}

func search(s scope) (states, moves int, problem string) {
	start := newModel(s)
	seen := map[uint64]bool{start.key(): true}
	nodes := []node{{next: start.moves()}}
	for i := int32(0); int(i) < len(nodes); i++ {
		here := path(nodes, i)
		for _, v := range nodes[i].next {
			next := replay(s, here)
			next.do(v)
			moves++
			key := next.key()
			if next.violation == "" && seen[key] {
				continue
			}
			seen[key] = true
			found := node{i, v, next.moves()}
			if problem := next.problem(); problem != "" {
				return len(nodes), moves, fmt.Sprintf("%s\nafter %v", problem, append(here, v))
			}
			nodes = append(nodes, found)
		}
		nodes[i].next = nil
	}
	return len(nodes), moves, ""
}

// TestSearchFindsBugs checks that the search finds a bug of the source or the target.
func TestSearchFindsBugs(t *testing.T) {
	for _, b := range []bug{losesDeletes, skipsRevision, hidesExpired, wrongListRevision, hidesRewind, forgetsInvalidation,
		comparesNothing, hidesSilence, acceptsReplay} {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			s := scope{keys: 2, writes: 3, faults: 2, page: 1, bug: b}
			if testing.Short() && b == forgetsInvalidation {
				s.keys = 1 // with two, it is found after 40,000 states
			}
			states, _, problem := search(s)
			if problem == "" {
				t.Errorf("not found in %d states", states)
			}
			t.Logf("found after %d states: %s", states, problem)
		})
	}
}

// TestRandomWalks performs longer random paths in a larger scope.
func TestRandomWalks(t *testing.T) {
	for n := range uint64(*walks) {
		s := scope{keys: 5, writes: 40, faults: 12, page: 2, stream: n%2 == 0}
		if problem := walk(s, *first+n); problem != "" {
			t.Fatalf("seed %d: %s", *first+n, problem)
		}
	}
}

func walk(s scope, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 0))
	m := newModel(s)
	for range 150 {
		all := m.moves()
		if random.IntN(10) > 0 {
			all = slices.DeleteFunc(all, func(v move) bool { return v.fault })
		}
		if len(all) == 0 {
			break
		}
		m.do(all[random.IntN(len(all))])
	}
	after := m.path
	if problem := m.problem(); problem != "" {
		return fmt.Sprintf("%s\nafter %v", problem, after)
	}
	return ""
}

// problem returns what is wrong with the model's state, "" if nothing is. The model converges meanwhile.
func (m *model) problem() string {
	if m.violation != "" {
		return m.violation
	}
	if m.ended {
		return fmt.Sprintf("the machine has stopped: %+v", m.machine.State)
	}
	if p := m.judge(check.Transcript{Records: m.received}, nil); p != "" {
		return "the watcher: " + p
	}
	for _, mark := range m.marks {
		for _, f := range []store.Filter{{}, {Match: blue}} {
			if p := m.resumeAt(mark, f); p != "" {
				return fmt.Sprintf("a watcher from %v, filtered %v: %s", mark.cursor, f.Match != nil, p)
			}
		}
	}
	return m.converge()
}

// resumeAt judges a consumer that stopped at a mark and resumes now.
func (m *model) resumeAt(from mark, f store.Filter) string {
	var received []check.Record
	w := m.store.Watch(from.cursor, f)
	for {
		d, _, err := w.TryNext()
		if err != nil {
			return err.Error()
		}
		if d == nil {
			return m.judge(check.Transcript{From: from.cursor.Revision, Epoch: from.epoch, Records: received}, f.Match)
		}
		received = append(received, check.Received{Delivery: d})
	}
}

// judge applies the oracle to a transcript followed by the store's final state.
func (m *model) judge(t check.Transcript, f check.Filter) string {
	shown := check.Shown{Revision: m.store.Snapshot().Revision()}
	for o := range m.store.Snapshot().All() {
		if f == nil || f(o) {
			shown.Objects = append(shown.Objects, o)
		}
	}
	if len(t.Records) > 0 {
		t.Records = append(slices.Clip(t.Records), shown)
	}
	history := check.History{Epochs: m.epochs, Content: func(o keepwatch.Object) string { return fmt.Sprint(blue(o)) }}
	for _, v := range check.Judge(history, f, t) {
		return v.String()
	}
	return ""
}

// converge continues without faults and writes, and returns why that does not lead to an
// open watch at the newest revision (P11).
func (m *model) converge() string {
	m.faults, m.writes = 0, 0
	for range 60 {
		all := m.moves()
		if _, live := m.action.(machine.Read); live && len(all) == 0 {
			break
		}
		m.do(all[len(all)-1])
	}
	if _, live := m.action.(machine.Read); !live || m.machine.Revision != m.head {
		return fmt.Sprintf("the model does not converge: %+v, at %d of %d", m.action, m.machine.Revision, m.head)
	}
	if p := m.judge(check.Transcript{Records: m.received}, nil); p != "" {
		return "after converging: " + p
	}
	return ""
}
