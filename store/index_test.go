package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// byColors indexes a thing by the words of its color: none, one, several, some of
// them twice.
func byColors(o keepwatch.Object) []string { return strings.Fields(o.(*thing).color) }

func byNamespace(o keepwatch.Object) []string { return []string{o.Key().Namespace} }

// naiveIndex returns the keys by value that an index must have.
func naiveIndex(s state, values IndexFunc) map[string][]string {
	found := map[string][]string{}
	for _, o := range s.sorted() {
		of := slices.Clone(values(o))
		slices.Sort(of)
		for _, value := range slices.Compact(of) {
			found[value] = append(found[value], o.Key().String())
		}
	}
	return found
}

// checkIndex compares an index of a snapshot with the naive one.
func checkIndex(t fataler, s *Snapshot, name string, values IndexFunc) {
	t.Helper()
	x, ok := s.Index(name)
	if !ok {
		t.Fatalf("there is no index %q at %v", name, s.Cursor())
	}
	want := naiveIndex(stateOf(s), values)
	got := slices.Sorted(x.Values())
	if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("%s has the values %q, want %v", name, got, want)
	}
	for value, keys := range want {
		if got := namesOf(x.Objects(value)); !slices.Equal(got, keys) {
			t.Fatalf("%s %q finds %q, want %q", name, value, got, keys)
		}
		var got []string
		for key := range x.Keys(value) {
			got = append(got, key.String())
		}
		if !slices.Equal(got, keys) {
			t.Fatalf("%s %q finds the keys %q, want %q", name, value, got, keys)
		}
		checkIndexFrom(t, s, x, value, keys)
	}
	if postings := slices.Concat(slices.Collect(maps.Values(want))...); x.Len() != len(postings) {
		t.Fatalf("%s has %d values of objects, want %d", name, x.Len(), len(postings))
	}
	for _, nobody := range []string{"nobody", "b", "re", "red/", "", "/"} {
		if got := namesOf(x.Objects(nobody)); !slices.Equal(got, append([]string{}, want[nobody]...)) {
			t.Fatalf("%s %q finds %q, want %q", name, nobody, got, want[nobody])
		}
	}
}

// checkIndexFrom compares what an index finds from some keys on, and in their namespaces, with what it finds from the
// first.
func checkIndexFrom(t fataler, s *Snapshot, x Index, value string, keys []string) {
	t.Helper()
	for i, o := range slices.Collect(s.All()) {
		if i%5 > 0 {
			continue // it is quadratic
		}
		from, namespace := o.Key(), o.Key().Namespace
		within := func(k keepwatch.Key) bool { return k.Namespace == namespace }
		want := slices.DeleteFunc(slices.Collect(x.Keys(value)), func(k keepwatch.Key) bool { return k.Compare(from) < 0 })
		if got := slices.Collect(x.KeysFrom(value, from)); !slices.Equal(got, want) {
			t.Fatalf("%s %q finds %v from %v on, want %v", x.name, value, got, from, want)
		}
		if namespace == "" {
			continue // an index has keys without a namespace before all others
		}
		inside := slices.DeleteFunc(slices.Clone(want), func(k keepwatch.Key) bool { return !within(k) })
		if got := x.CountFrom(value, from, within); got != len(inside) {
			t.Fatalf("%s %q counts %d from %v on in its namespace, want %d of %v", x.name, value, got, from, len(inside), keys)
		}
	}
}

func TestIndexes(t *testing.T) {
	a, b, c := thingAt("a", 1), thingAt("b", 1).in("").painted("red"), thingAt("c", 1).painted("red blue red")
	s := New(Options{})
	if err := s.AddIndexes(map[string]IndexFunc{"colors": byColors}); err != nil {
		t.Fatal(err)
	}
	relist(t, s, "", 1, a, b, c)
	first := s.Snapshot()
	find := func(s *Snapshot, value string) []string {
		x, _ := s.Index("colors")
		return namesOf(x.Objects(value))
	}
	wantLines(t, find(first, "red"), "b", "ns/c")
	wantLines(t, find(first, "blue"), "ns/c")
	wantLines(t, find(first, ""))
	apply(t, s, 2, modify(a.at(2).painted("red")))
	apply(t, s, 3, modify(c.at(3).painted("green blue")))
	apply(t, s, 4, del(b, 4))
	wantLines(t, find(s.Snapshot(), "red"), "ns/a")
	wantLines(t, find(s.Snapshot(), "blue"), "ns/c")
	wantLines(t, find(first, "red"), "b", "ns/c") // as it was
	relist(t, s, keepwatch.GapExpired, 9, a.at(2).painted("red"), thingAt("d", 8).painted("red"))
	wantLines(t, find(s.Snapshot(), "red"), "ns/a", "ns/d")
	wantLines(t, find(s.Snapshot(), "blue"))
	past, err := s.At(3)
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, find(past, "red"), "b", "ns/a")
	x, _ := s.Snapshot().Index("colors")
	wantLines(t, x.Of(c), "red", "blue", "red")
	if err := s.AddIndexes(map[string]IndexFunc{"new": byColors, "colors": byColors}); err == nil {
		t.Error("two indexes have one name")
	}
	if _, ok := s.Snapshot().Index("new"); ok {
		t.Error("an index was added by a call that failed")
	}
}

// Values with slashes, and with their escapes.
func TestIndexValuesAreAnyStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringOfN(rapid.RuneFrom([]rune("ab/\x01\x02-.\u00ff ")), 0, 6, -1)
		values := map[keepwatch.Key][]string{}
		of := func(o keepwatch.Object) []string { return values[o.Key()] }
		things := nThings(rapid.IntRange(0, 100).Draw(t, "n"))
		for _, o := range things {
			values[o.Key()] = rapid.SliceOfN(value, 0, 3).Draw(t, "values")
		}
		s := listed(t, Options{}, 1_000, things...)
		if err := s.AddIndexes(map[string]IndexFunc{"values": of}); err != nil {
			t.Fatalf("%v", err)
		}
		checkIndex(t, s.Snapshot(), "values", of)
		for _, o := range things {
			for _, v := range values[o.Key()] {
				if unescape(escape(v)) != v || strings.Contains(escape(v), "/") {
					t.Fatalf("%q is spelt %q and read %q", v, escape(v), unescape(escape(v)))
				}
			}
		}
	})
}

// Whatever is written, and whenever indexes are added, they are true of every
// snapshot, also of those of the past.
func TestIndexesAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(Options{})
		functions, added := map[string]IndexFunc{}, []string{}
		var list keepwatch.Replacement
		var snapshots []*Snapshot
		revision := keepwatch.Revision(1)
		some := func(t *rapid.T) *thing {
			revision++
			k := keysOf().Draw(t, "key")
			return &thing{
				key: k, uid: keepwatch.UID(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid")), revision: revision,
				color: rapid.SampledFrom([]string{"", "red", "blue", "red blue", "blue red red", "bl/ue"}).Draw(t, "color"),
			}
		}
		relist(t, s, "", revision, thingAt("a", 1).painted("red"))
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				if list != nil {
					t.Skip("a list is on its way")
				}
				var changes []keepwatch.Change
				for range rapid.IntRange(0, 20).Draw(t, "n") {
					changes = append(changes, add(some(t)))
				}
				apply(t, s, revision, changes...)
			},
			"delete": func(t *rapid.T) {
				current := stateOf(s.Snapshot()).sorted()
				if list != nil || len(current) == 0 {
					t.Skip("there is nothing to delete now")
				}
				revision++
				apply(t, s, revision, del(rapid.SampledFrom(current).Draw(t, "victim").(*thing), revision))
			},
			"list": func(t *rapid.T) {
				if list == nil {
					relist := keepwatch.Relist{Reason: keepwatch.GapRewind, To: revision + 100}
					revision += 100
					list, _ = s.Replace(context.Background(), relist)
					return
				}
				var objects []keepwatch.Object
				for range rapid.IntRange(0, 50).Draw(t, "n") {
					o := some(t)
					o.revision = 50
					objects = append(objects, o)
				}
				if err := list.Put(context.Background(), objects); err != nil {
					t.Fatalf("%v", err)
				}
				if err := list.Commit(context.Background(), list.(*replacement).relist.To); err != nil {
					t.Fatalf("%v", err)
				}
				list = nil
			},
			"add": func(t *rapid.T) {
				if len(added) == 3 {
					t.Skip("these will do")
				}
				name := fmt.Sprint("index-", len(functions))
				added = append(added, name)
				functions[name] = rapid.SampledFrom([]IndexFunc{byColors, byNamespace}).Draw(t, "function")
				if err := s.AddIndexes(map[string]IndexFunc{name: functions[name]}); err != nil {
					t.Fatalf("%v", err)
				}
			},
			"remove": func(t *rapid.T) {
				if len(added) == 0 {
					t.Skip("there is none")
				}
				i := rapid.IntRange(0, len(added)-1).Draw(t, "i")
				s.RemoveIndex(added[i])
				if _, ok := s.Snapshot().Index(added[i]); ok {
					t.Fatalf("%s was removed", added[i])
				}
				added = slices.Delete(added, i, i+1)
			},
			"keep": func(t *rapid.T) {
				snapshots = append(snapshots, s.Snapshot())
				if past, err := s.At(revision - min(revision-1, 15)); err == nil {
					snapshots = append(snapshots, past)
				}
			},
		})
		for _, snapshot := range append(snapshots, s.Snapshot()) {
			for _, x := range snapshot.indexes {
				checkIndex(t, snapshot, x.name, functions[x.name])
			}
		}
	})
}

// An update that changes no value must not touch the index.
func TestIndexIsSharedWhereNoValueChanges(t *testing.T) {
	a := thingAt("a", 1).painted("red")
	s := listed(t, Options{}, 1, a)
	if err := s.AddIndexes(map[string]IndexFunc{"colors": byColors}); err != nil {
		t.Fatal(err)
	}
	before := s.Snapshot()
	apply(t, s, 2, modify(a.at(2)))
	if s.Snapshot().indexes[0].postings != before.indexes[0].postings {
		t.Error("the index was copied")
	}
}

// An index may be added while a list is on its way, and while a writer writes.
func TestAddIndexesBesideAWriter(t *testing.T) {
	s := listed(t, Options{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 50 {
			if err := s.AddIndexes(map[string]IndexFunc{fmt.Sprint(i): byColors}); err != nil {
				t.Error(err)
			}
		}
	}()
	herd(t, s, 2000)
	<-done
	for _, x := range s.Snapshot().indexes {
		checkIndex(t, s.Snapshot(), x.name, byColors)
	}
	if n := len(s.Snapshot().indexes); n != 50 {
		t.Fatalf("%d indexes, want 50", n)
	}
}

// A panic of an index function reaches the writer only.
func TestAPanickingIndexDoesNotChangeTheStore(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a)
	err := s.AddIndexes(map[string]IndexFunc{"bad": func(o keepwatch.Object) []string {
		if o.(*thing).color == "bad" {
			panic("bad")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	before := s.Snapshot()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no watcher received it")
			}
		}()
		apply(t, s, 2, modify(a.at(2).painted("bad")))
	}()
	if s.Snapshot() != before {
		t.Error("the state has changed")
	}
	apply(t, s, 2, modify(a.at(2)))
}

// TestReindex checks that an object is found under its values once the function can judge
// it, and no longer under unknown, unless it was replaced meanwhile.
func TestReindex(t *testing.T) {
	known := false
	color := func(o keepwatch.Object) []string {
		if !known {
			return []string{"unknown"}
		}
		return []string{"unknown", o.(*thing).color}
	}
	a, b := thingAt("a", 1).painted("red"), thingAt("b", 2).painted("red")
	s := listed(t, Options{}, 5, a, b)
	if err := s.AddIndexes(map[string]IndexFunc{"color": color}); err != nil {
		t.Fatal(err)
	}
	known = true
	s.Reindex([]keepwatch.Object{a, b.at(1), thingAt("c", 3)}, "unknown")
	x, _ := s.Snapshot().Index("color")
	for value, want := range map[string]string{"red": "[ns/a]", "unknown": "[ns/b]"} {
		if got := fmt.Sprint(slices.Collect(x.Keys(value))); got != want {
			t.Errorf("%s are %s, want %s", value, got, want)
		}
	}
	if s.Revision() != 5 {
		t.Errorf("current %d", s.Revision())
	}
}

// TestAJudgedStateIsReplaced checks that a write finds its place in an index if the state before it was indexed as
// unknown, and can be judged by now.
func TestAJudgedStateIsReplaced(t *testing.T) {
	a := thingAt("a", 1).painted("red")
	known := false
	color := func(o keepwatch.Object) []string {
		switch {
		case o != keepwatch.Object(a):
			return []string{o.(*thing).color}
		case !known:
			return []string{"unknown"}
		}
		return []string{a.color, "unknown"}
	}
	s := listed(t, Options{}, 5, a)
	if err := s.AddIndexes(map[string]IndexFunc{"color": color}); err != nil {
		t.Fatal(err)
	}
	known = true
	apply(t, s, 6, modify(a.at(6)))
	x, _ := s.Snapshot().Index("color")
	for value, want := range map[string]string{"red": "[ns/a]", "unknown": "[]"} {
		if got := fmt.Sprint(slices.Collect(x.Keys(value))); got != want {
			t.Errorf("%s are %s, want %s", value, got, want)
		}
	}
}
