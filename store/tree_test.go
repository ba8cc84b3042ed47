package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// Namespaces and names that are prefixes of each other and continue with bytes below and
// above the slash: the order of keys differs from that of the pairs.
var (
	namespaces = []string{"", "n", "ns", "ns-a", "ns.a", "ns0", "ns1", "ns11", "ns-a-b"}
	names      = []string{"a", "a-b", "a.b", "a0", "aa", "b", "deployment-1-abcdef01", "deployment-1-abcdef02",
		"deployment-1"}
)

func keysOf() *rapid.Generator[keepwatch.Key] {
	return rapid.Custom(func(t *rapid.T) keepwatch.Key {
		name := rapid.SampledFrom(names).Draw(t, "name")
		if rapid.Bool().Draw(t, "numbered") {
			name += fmt.Sprint(rapid.IntRange(0, 999).Draw(t, "number"))
		}
		return key(rapid.SampledFrom(namespaces).Draw(t, "namespace"), name)
	})
}

// plant puts an object into a tree under construction.
func (ed *editor) plant(o keepwatch.Object) {
	ed.put(ed.seek(o.Key()), o.Key(), &entry{object: o, created: o.Revision(), stored: o.Revision()})
}

// uproot removes a key that may not be there.
func (ed *editor) uproot(k keepwatch.Key) {
	if p := ed.seek(k); p.entry != nil {
		ed.remove(p)
	}
}

func treeOf(objects ...keepwatch.Object) tree {
	ed := tree{}.edit()
	for _, o := range objects {
		ed.plant(o)
	}
	return ed.publish()
}

// nThings returns n things in key order.
func nThings(n int) []keepwatch.Object {
	things := make([]keepwatch.Object, n)
	for i := range things {
		things[i] = thingAt(fmt.Sprintf("%06d", i), keepwatch.Revision(i+1))
	}
	return things
}

// inspect checks the invariants of a tree, and that its content equals the twin's.
func inspect(t fataler, tr tree, twin state) {
	t.Helper()
	var current []keepwatch.Object
	if tr.root != nil {
		depth := -1
		visit(t, tr.root, 0, &depth, true, true, &current)
	}
	if want := twin.sorted(); !slices.Equal(current, want) {
		t.Fatalf("the tree contains\n%v\nthe twin\n%v", current, want)
	}
	if tr.len() != len(twin) {
		t.Fatalf("len is %d, want %d", tr.len(), len(twin))
	}
}

func visit(t fataler, n *node, level int, depth *int, root, edge bool, current *[]keepwatch.Object) {
	t.Helper()
	size := max(len(n.entries), len(n.children))
	switch {
	case len(n.entries) > 0 && len(n.children) > 0:
		t.Fatalf("a node has entries and children")
	case len(n.keys.list) != size || size == 0 || size > n.room():
		t.Fatalf("a node has %d keys for %d items", len(n.keys.list), size)
	case !edge && size < n.room()/4:
		t.Fatalf("an inner node is only %d full", size)
	case root && len(n.children) == 1:
		t.Fatalf("the root has one child")
	}
	before := len(*current)
	newest := keepwatch.Revision(0)
	for i, e := range n.entries {
		if n.keys.list[i] != e.object.Key() {
			t.Fatalf("key %s over object %s", n.keys.list[i], e.object.Key())
		}
		newest = max(newest, e.stored)
		*current = append(*current, e.object)
	}
	for i, c := range n.children {
		if n.keys.list[i] != c.low() {
			t.Fatalf("key %s over a child from %s on", n.keys.list[i], c.low())
		}
		newest = max(newest, c.newest)
		visit(t, c, level+1, depth, false, edge && i == len(n.children)-1, current)
	}
	if n.leaf() {
		if *depth >= 0 && *depth != level {
			t.Fatalf("segments at depth %d and %d", *depth, level)
		}
		*depth = level
	}
	if got := len(*current) - before; got != n.count {
		t.Fatalf("count is %d, want %d", n.count, got)
	}
	if n.newest < newest {
		t.Fatalf("newest is %d, but %d is below", n.newest, newest)
	}
}

func TestTreeIsAnOrderedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		twin := state{}
		type version struct {
			tree tree
			twin state
		}
		versions := []version{{tree{}, state{}}}
		ed := tree{}.edit()
		revision := keepwatch.Revision(0)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				revision++
				o := &thing{key: keysOf().Draw(t, "key"), revision: revision}
				ed.plant(o)
				twin[o.key] = o
			},
			"put many": func(t *rapid.T) {
				prefix := rapid.SampledFrom(names).Draw(t, "prefix")
				for i := range rapid.IntRange(1, 300).Draw(t, "n") {
					revision++
					o := &thing{key: key("ns1", fmt.Sprintf("%s%03d", prefix, i)), revision: revision}
					ed.plant(o)
					twin[o.key] = o
				}
			},
			"remove": func(t *rapid.T) {
				k := keysOf().Draw(t, "key")
				ed.uproot(k)
				delete(twin, k)
			},
			"remove many": func(t *rapid.T) {
				sorted := twin.sorted()
				if len(sorted) == 0 {
					return
				}
				from := rapid.IntRange(0, len(sorted)-1).Draw(t, "from")
				to := rapid.IntRange(from, len(sorted)).Draw(t, "to")
				for _, o := range sorted[from:to] {
					ed.uproot(o.Key())
					delete(twin, o.Key())
				}
			},
			"get": func(t *rapid.T) {
				k := keysOf().Draw(t, "key")
				var got keepwatch.Object
				if e := (tree{ed.root}).get(k); e != nil {
					got = e.object
				}
				if want := twin[k]; got != want {
					t.Fatalf("get %s: %v, want %v", k, got, want)
				}
				rank, ok := tree{ed.root}.rank(k)
				lower := 0
				for o := range twin {
					if o.Compare(k) < 0 {
						lower++
					}
				}
				if _, want := twin[k]; rank != lower || ok != want {
					t.Fatalf("rank of %s is %d, %v; want %d, %v", k, rank, ok, lower, want)
				}
			},
			"count": func(t *rapid.T) {
				from, end := keysOf().Draw(t, "from"), keysOf().Draw(t, "end")
				prefix := rapid.SampledFrom(namespaces).Draw(t, "prefix")
				for name, within := range map[string]func(keepwatch.Key) bool{
					"before":    func(k keepwatch.Key) bool { return k.Compare(end) < 0 },
					"namespace": func(k keepwatch.Key) bool { return k.Namespace == from.Namespace },
					"all":       func(keepwatch.Key) bool { return true },
					"none":      func(keepwatch.Key) bool { return false },
					"prefix": func(k keepwatch.Key) bool {
						return strings.HasPrefix(from.String(), prefix) && strings.HasPrefix(k.String(), prefix)
					},
				} {
					want := 0
					for k := range twin {
						if k.Compare(from) >= 0 && within(k) {
							want++
						}
					}
					if got := (tree{ed.root}).count(from, within); got != want {
						t.Fatalf("count from %s, %s: %d, want %d", from, name, got, want)
					}
				}
			},
			"publish": func(*rapid.T) {
				published := ed.publish()
				versions = append(versions, version{published, maps.Clone(twin)})
				ed = published.edit()
			},
			"": func(t *rapid.T) { inspect(t, tree{ed.root}, twin) },
		})
		for _, v := range versions {
			inspect(t, v.tree, v.twin)
		}
	})
}

// An append creates a lone entry on the right edge; its removal must not leave an empty
// node. (It panicked.)
func TestRemoveTheLastAfterAppends(t *testing.T) {
	for _, n := range []int{fill + 1, fanout*fill + 1, fanout*fill + fill + 1, fanout*fanout*fill + 1} {
		things := nThings(n)
		ed := treeOf(things...).edit()
		twin := state{}
		for _, o := range things {
			twin[o.Key()] = o
		}
		for i := n - 1; i > n-1-2*fill && i >= 0; i-- {
			ed.uproot(things[i].Key())
			delete(twin, things[i].Key())
			if i > n-4 || i%fill == 0 {
				inspect(t, tree{ed.root}, twin)
			}
		}
		inspect(t, tree{ed.root}, twin)
	}
}

func TestTreeGrowsAndShrinksToNothing(t *testing.T) {
	for name, order := range map[string]func([]keepwatch.Object){
		"in order":  func([]keepwatch.Object) {},
		"backwards": slices.Reverse[[]keepwatch.Object],
		"shuffled": func(things []keepwatch.Object) {
			rand.New(rand.NewPCG(1, 1)).Shuffle(len(things), func(i, j int) { things[i], things[j] = things[j], things[i] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			things := nThings(6 * fanout * fill)
			order(things)
			ed := tree{}.edit()
			twin := state{}
			for i, o := range things {
				ed.plant(o)
				twin[o.Key()] = o
				if i%997 == 0 {
					inspect(t, tree{ed.root}, twin)
				}
			}
			full := ed.publish()
			ed = full.edit()
			for i, o := range things {
				ed.uproot(o.Key())
				delete(twin, o.Key())
				if i%997 == 0 {
					inspect(t, tree{ed.root}, twin)
				}
			}
			if ed.root != nil {
				t.Fatal("something is left")
			}
			inspect(t, full, stateOf(&Snapshot{tree: full}))
			if full.len() != len(things) {
				t.Fatal("an old version has changed")
			}
		})
	}
}

// Lists arrive in key order; segments must then be full, not half empty.
func TestAppendsFillSegments(t *testing.T) {
	segments := 0
	treeOf(nThings(100 * fill)...).all(func(Segment) bool { segments++; return true })
	if segments != 100 {
		t.Fatalf("%d segments, want 100", segments)
	}
}

func TestEditingSharesWhatItDoesNotTouch(t *testing.T) {
	old := treeOf(nThings(fill * fanout * 4)...)
	ed := old.edit()
	ed.plant(thingAt("000777", 1_000_000))
	next := ed.publish()
	count := func(tr tree) map[*node]bool {
		nodes := map[*node]bool{}
		var walk func(*node)
		walk = func(n *node) {
			nodes[n] = true
			for _, c := range n.children {
				walk(c)
			}
		}
		walk(tr.root)
		return nodes
	}
	shared, all := 0, count(next)
	for n := range count(old) {
		if all[n] {
			shared++
		}
	}
	if height := 3; len(all)-shared != height {
		t.Fatalf("%d of %d nodes are new, want one a level", len(all)-shared, len(all))
	}
}

// A namespace's difference must not look at the others'.
func TestNewerLooksAtOneNamespaceOnly(t *testing.T) {
	ed := tree{}.edit()
	for _, namespace := range []string{"a", "b", "c"} {
		for _, o := range nThings(5 * fill) {
			ed.plant(o.(*thing).in(namespace))
		}
	}
	root := ed.publish().root
	for i, c := range root.children {
		// The last one before the namespace may have its first key.
		if i+1 < len(root.children) && root.children[i+1].low().Namespace == "a" || c.low().Namespace == "c" {
			root.children[i] = &node{newest: c.newest} // cannot be read
		}
	}
	found := 0
	root.newer(0, "b", func(*entry) { found++ })
	if found != 5*fill {
		t.Fatalf("%d entries, want %d", found, 5*fill)
	}
}

func TestIterationCanStop(t *testing.T) {
	s := &Snapshot{tree: treeOf(nThings(5 * fill)...)}
	for stop := range 4 * fill {
		seen := 0
		for range s.All() {
			if seen++; seen > stop {
				break
			}
		}
		for range s.From(key("ns", "000010")) {
			if seen++; seen > 2*stop {
				break
			}
		}
		for range s.Namespace("ns") {
			if seen++; seen > 3*stop {
				break
			}
		}
	}
}
