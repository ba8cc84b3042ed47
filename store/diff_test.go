package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// naiveDiff compares two states key by key.
func naiveDiff(a, b state, deleted keepwatch.Revision) []keepwatch.Change {
	all := maps.Clone(a)
	maps.Copy(all, b)
	var changes []keepwatch.Change
	for _, o := range all.sorted() {
		before, was := a[o.Key()]
		after, is := b[o.Key()]
		switch {
		case was && is && before == after:
		case was && is && before.UID() == after.UID():
			changes = append(changes, modified(before, after))
		default:
			if was {
				changes = append(changes, removed(before, before, deleted))
			}
			if is {
				changes = append(changes, added(after))
			}
		}
	}
	return changes
}

func TestDiffIsTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			*Snapshot
			state
		}
		versions := []version{{&Snapshot{}, state{}}}
		revision := keepwatch.Revision(0)
		for range rapid.IntRange(1, 8).Draw(t, "versions") {
			last := versions[rapid.IntRange(0, len(versions)-1).Draw(t, "base")]
			ed, twin := last.tree.edit(), maps.Clone(last.state)
			for range rapid.IntRange(0, 40).Draw(t, "edits") {
				revision++
				k := keysOf().Draw(t, "key")
				switch rapid.IntRange(0, 3).Draw(t, "edit") {
				case 0:
					ed.uproot(k)
					delete(twin, k)
				case 1:
					for i := range rapid.IntRange(0, 3*fill).Draw(t, "run") {
						o := &thing{key: key(k.Namespace, fmt.Sprint(k.Name, i)), revision: revision}
						ed.plant(o)
						twin[o.key] = o
					}
				default:
					uid := keepwatch.UID(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid"))
					o := &thing{key: k, uid: uid, revision: revision}
					ed.plant(o)
					twin[k] = o
				}
			}
			versions = append(versions, version{&Snapshot{tree: ed.publish(), revision: revision}, twin})
		}
		for _, a := range versions {
			for _, b := range versions {
				got, want := a.Diff(b.Snapshot), naiveDiff(a.state, b.state, b.revision)
				if !slices.Equal(got, want) {
					t.Fatalf("from\n%vto\n%vdiff is %v\nwant %v", a.state, b.state, changesText(got), changesText(want))
				}
			}
		}
	})
}

// steps counts the nodes that a diff visits.
func steps(a, b tree) (steps, found int) {
	x, y := walkFrom(a), walkFrom(b)
	for len(x) > 0 && len(y) > 0 {
		step(&x, &y, func(_, _ *entry) { found++ })
		steps++
	}
	x.drain(func(*entry) { steps++; found++ })
	y.drain(func(*entry) { steps++; found++ })
	return steps, found
}

func TestDiffSkipsWhatIsShared(t *testing.T) {
	const n = 200_000
	things := nThings(n)
	old := treeOf(things...)
	height := 0
	for node := old.root; !node.leaf(); node = node.children[0] {
		height++
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, changes := range []int{0, 1, 3, 10, 100} {
		for name, change := range map[string]func(*editor, int){
			"modified": func(ed *editor, i int) { ed.plant(things[i].(*thing).at(n + 1)) },
			"deleted":  func(ed *editor, i int) { ed.uproot(things[i].Key()) },
			"added": func(ed *editor, i int) {
				ed.plant(thingAt(things[i].Key().Name+"-more", n+1))
			},
		} {
			ed := old.edit()
			for _, i := range random.Perm(n)[:changes] {
				change(&ed, i)
			}
			// A change is found by opening one node a level on both sides, and perhaps a
			// neighbour of it that was split or joined.
			most := 1 + changes*(height+1)*3*fill
			if got, found := steps(old, ed.publish()); got > most || found != changes {
				t.Errorf("%d %s of %d: %d steps, at most %d are allowed; %d found", changes, name, n, got, most, found)
			}
		}
	}
}

// What was deleted in front of a shared subtree must not make the diff open it.
func TestDiffDoesNotOpenTheNeighbour(t *testing.T) {
	things := nThings(fill * fanout * 4)
	old := treeOf(things...)
	ed := old.edit()
	for i := fill * fanout / 2; i < fill*fanout; i++ { // up to the end of a subtree
		ed.uproot(things[i].Key())
	}
	if got, found := steps(old, ed.publish()); found != fill*fanout/2 || got > fill*fanout {
		t.Fatalf("%d steps for %d changes", got, found)
	}
}

func TestDiffOfTreesThatShareNothing(t *testing.T) {
	things := nThings(1000)
	a, b := &Snapshot{tree: treeOf(things...)}, &Snapshot{tree: treeOf(things...), revision: 7}
	if got := a.Diff(b); len(got) != 0 {
		t.Fatalf("equal objects differ: %s", changesText(got))
	}
	if got := a.Diff(&Snapshot{revision: 9}); len(got) != 1000 || got[0].Type != keepwatch.Deleted ||
		got[0].Revision != 9 {
		t.Fatalf("to nothing: %d changes", len(got))
	}
	if got := (&Snapshot{}).Diff(a); len(got) != 1000 || got[0].Type != keepwatch.Added {
		t.Fatalf("from nothing: %d changes", len(got))
	}
}
