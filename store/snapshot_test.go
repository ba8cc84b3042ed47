package store

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

func namesOf(seq func(func(keepwatch.Object) bool)) []string {
	names := []string{}
	for o := range seq {
		names = append(names, o.Key().String())
	}
	return names
}

// Namespaces that are prefixes of each other (kubernetes #25342), and that sort before and
// after each other's slash.
func TestSnapshotOrderAndNamespaces(t *testing.T) {
	a := thingAt("a", 1)
	b := thingAt("b", 1)
	s := listed(t, Options{}, 1, b.in("ns11"), a.in("ns1"), b.in("ns"), a.in("ns-a"), a.in("ns11"), b.in("ns1"),
		a.in("ns"), b.in("ns-a"), a.in("ns.x"), b.in("ns0"), a.in("m"), b.in("zz")).Snapshot()
	wantLines(t, namesOf(s.All()),
		"m/a", "ns-a/a", "ns-a/b", "ns.x/a", "ns/a", "ns/b", "ns0/b", "ns1/a", "ns1/b", "ns11/a", "ns11/b", "zz/b")
	for namespace, want := range map[string][]string{
		"ns": {"ns/a", "ns/b"}, "ns-a": {"ns-a/a", "ns-a/b"}, "ns1": {"ns1/a", "ns1/b"}, "ns11": {"ns11/a", "ns11/b"},
		"ns0": {"ns0/b"}, "ns.x": {"ns.x/a"}, "m": {"m/a"}, "zz": {"zz/b"}, "n": {}, "zzz": {}, "a": {}, "": {},
	} {
		wantLines(t, namesOf(s.Namespace(namespace)), want...)
	}
	wantLines(t, namesOf(s.From(key("ns1", "b"))), "ns1/b", "ns11/a", "ns11/b", "zz/b")
	wantLines(t, namesOf(s.From(key("ns1", "c"))), "ns11/a", "ns11/b", "zz/b")
	wantLines(t, namesOf(s.From(key("zz", "c"))))
}

func TestSnapshotOfClusterScopedObjects(t *testing.T) {
	s := listed(t, Options{}, 1, thingAt("b", 1).in(""), thingAt("a", 1).in("")).Snapshot()
	wantLines(t, namesOf(s.All()), "a", "b")
	wantLines(t, namesOf(s.Namespace("")), "a", "b")
	wantLines(t, namesOf(s.From(key("", "b"))), "b")
}

func TestSnapshotRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		twin := state{}
		for _, k := range rapid.SliceOfN(keysOf(), 0, 400).Draw(t, "keys") {
			twin[k] = &thing{key: k, revision: 1}
		}
		s := listed(t, Options{}, 1, twin.sorted()...).Snapshot()
		namespace := rapid.SampledFrom(append(namespaces, "x", "a")).Draw(t, "namespace")
		want := twin.through(Filter{Namespace: namespace})
		if namespace == "" {
			want = state{}
			for k, o := range twin {
				if k.Namespace == "" {
					want[k] = o
				}
			}
		}
		if got := slices.Collect(s.Namespace(namespace)); !slices.Equal(got, want.sorted()) {
			t.Fatalf("namespace %q is %v, want %v", namespace, got, want)
		}
		from := keysOf().Draw(t, "from")
		later := state{}
		for k, o := range twin {
			if k.Compare(from) >= 0 {
				later[k] = o
			}
		}
		if got := slices.Collect(s.From(from)); !slices.Equal(got, later.sorted()) {
			t.Fatalf("from %s on: %v, want %v", from, got, later)
		}
	})
}

func TestSnapshotNeverChanges(t *testing.T) {
	a, b, c := thingAt("a", 1), thingAt("b", 2), thingAt("c", 3)
	s := listed(t, Options{}, 3, a, b, c)
	old := s.Snapshot()
	apply(t, s, 9, modify(a.at(4)), del(b, 5), add(thingAt("d", 6)))
	relist(t, s, keepwatch.GapExpired, 12)
	wantLines(t, namesOf(old.All()), "ns/a", "ns/b", "ns/c")
	if o, ok := old.Get(b.key); !ok || o != b || old.Revision() != 3 || old.Len() != 3 ||
		digest(old.Digest()) != recomputed(old) {
		t.Fatal("an old snapshot has changed")
	}
	if o, ok := s.Snapshot().Get(b.key); ok || o != nil || s.Snapshot().Len() != 0 || s.Snapshot().Digest() != 0 {
		t.Fatal("the new one is not empty")
	}
}

// A snapshot of another one has the objects of a list at its revision, whichever of the two is older, and a store that
// begins with it delivers what follows.
func TestSnapshotWith(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		twin, s := state{}, &Snapshot{}
		for range rapid.IntRange(1, 5).Draw(t, "moments") {
			revision := rapid.Uint64Range(100, 200).Draw(t, "revision")
			before, digestBefore := slices.Collect(s.All()), s.Digest()
			var removed []keepwatch.Key
			var put []keepwatch.Object
			for _, k := range rapid.SliceOfN(keysOf(), 0, 200).Draw(t, "removed") {
				removed = append(removed, k)
				delete(twin, k)
			}
			for k, o := range twin { // what is newer
				if o.Revision() > keepwatch.Revision(revision) {
					removed = append(removed, k)
					delete(twin, k)
				}
			}
			for _, k := range rapid.SliceOfN(keysOf(), 0, 200).Draw(t, "put") {
				o := &thing{key: k, uid: keepwatch.UID(fmt.Sprint(len(put) % 3)), revision: keepwatch.Revision(revision) -
					keepwatch.Revision(len(put)%90)}
				put = append(put, o)
				twin[k] = o
			}
			next := s.With(keepwatch.Revision(revision), removed, put)
			inspect(t, next.tree, twin)
			if next.Revision() != keepwatch.Revision(revision) || digest(next.Digest()) != recomputed(next) {
				t.Fatalf("the state at %d has revision %d and another digest than its objects", revision, next.Revision())
			}
			if !slices.Equal(slices.Collect(s.All()), before) || s.Digest() != digestBefore {
				t.Fatal("the state before has changed")
			}
			began := NewAt(next, Options{WindowBytes: 1}) // so that the difference is looked for in the tree
			first, second := thingAt("first", keepwatch.Revision(revision)+1), thingAt("second", keepwatch.Revision(revision)+2)
			apply(t, began, first.revision, add(first))
			apply(t, began, second.revision, add(second))
			d, _, err := began.Watch(next.Cursor(), Filter{}).TryNext()
			gap, ok := d.(keepwatch.Gap)
			if err != nil || !ok || len(gap.Changes) != 2 || gap.Changes[0].Object != first || gap.Changes[1].Object != second {
				t.Fatalf("a watcher from %d receives %v, %v", revision, d, err)
			}
			s = next
		}
	})
}
