package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// file has records as a file has them: it is brought up to date by differences.
type file struct {
	head    Records // without Objects and Deleted
	objects map[keepwatch.Key]Record
	deleted []Record
	seen    *Snapshot
}

func newFile() *file { return &file{objects: map[keepwatch.Key]Record{}, seen: &Snapshot{}} }

func (f *file) write(s *Store) {
	delta, now, _ := s.RecordsSince(f.seen)
	if delta.Reset {
		*f = *newFile()
	}
	f.seen, f.head = now, Records{Revision: delta.Revision, Horizon: delta.Horizon, Gaps: delta.Gaps}
	for _, o := range delta.Objects {
		f.objects[o.Key] = o
	}
	for _, k := range delta.Gone {
		delete(f.objects, k)
	}
	f.deleted = append(f.deleted, delta.Deleted...)
	f.deleted = slices.DeleteFunc(f.deleted, func(r Record) bool { return r.Stored <= delta.Horizon })
}

func (f *file) open() *Store {
	r := f.head
	r.Objects, r.Deleted = slices.Collect(maps.Values(f.objects)), f.deleted
	f.seen = &Snapshot{} // of the other store
	return New(Options{Records: &r, Tombstones: 40, Deleted: func(r Record) keepwatch.Object {
		return &thing{key: r.Key, uid: r.UID, revision: r.Revision, color: "deleted"}
	}})
}

// Over any number of restarts, a watcher that can resume receives the difference to the state that it has seen. One
// that has seen what was written last can always resume.
func TestRecordsOverRestarts(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		history := map[keepwatch.Revision]state{1: {}}
		now, revision := state{}, keepwatch.Revision(1)
		write := func() (c keepwatch.Change) {
			revision += 1 + keepwatch.Revision(random.IntN(3))
			k := fmt.Sprint(random.IntN(12))
			old, found := now[key("ns", k)]
			next := maps.Clone(now)
			switch {
			case found && random.IntN(3) == 0:
				c = del(old.(*thing), revision)
				delete(next, old.Key())
			case found:
				c = modify(old.(*thing).at(revision))
			default:
				c = add(thingAt(k, revision).withUID(keepwatch.UID(fmt.Sprint("u", revision))))
			}
			if c.Type != keepwatch.Deleted {
				next[c.Object.Key()] = c.Object
			}
			now = next
			history[revision] = now
			return c
		}
		f := newFile()
		for range 4 {
			s := f.open()
			last := f.head.Revision
			for range random.IntN(4) {
				write() // while no store runs
			}
			if s.Revision() != 0 || s.Snapshot().Len() != 0 {
				t.Fatalf("seed %d: a store without a list has a state", seed)
			}
			relist(t, s, "", revision, now.sorted()...)
			if last > 0 && !s.CanResume(last, Filter{}) {
				t.Fatalf("seed %d: nobody can resume from %d, which was written", seed, last)
			}
			if last > 0 && last < revision && s.CanResume(last, Filter{Match: func(keepwatch.Object) bool { return true }}) {
				t.Fatalf("seed %d: a watcher that selects by content can resume from before the start", seed)
			}
			for r, seen := range history {
				if s.CanResume(r, Filter{}) {
					wantDifference(t, seed, s, r, seen, now)
				}
			}
			for range random.IntN(20) {
				c := write()
				apply(t, s, revision, c)
				if random.IntN(3) == 0 {
					f.write(s)
				}
			}
			if random.IntN(4) > 0 {
				f.write(s) // a clean end
			}
		}
	}
}

// wantDifference fails unless a watcher from a revision receives the difference of two states.
func wantDifference(t *testing.T, seed uint64, s *Store, r keepwatch.Revision, seen, now state) {
	t.Helper()
	got := maps.Clone(seen)
	w := s.Watch(Cursor{s.Snapshot().epoch, r}, Filter{})
	for _, d := range poll(t, w) {
		for _, c := range changesOf(d) {
			k := c.Object.Key()
			old, found := got[k]
			switch {
			case c.Type == keepwatch.Deleted && (!found || old.UID() != c.Object.UID()),
				c.Type == keepwatch.Added && found, c.Type == keepwatch.Modified && (!found || old.UID() != c.Object.UID()),
				c.Type == keepwatch.Modified && old.Revision() == c.Object.Revision():
				t.Fatalf("seed %d: from %d: %s %v, but the watcher has %v", seed, r, c.Type, c.Object, old)
			}
			if got[k] = c.Object; c.Type == keepwatch.Deleted {
				delete(got, k)
			}
		}
	}
	if !got.equal(now) {
		t.Fatalf("seed %d: from %d the watcher has %v, want %v", seed, r, got, now)
	}
}

func changesOf(d keepwatch.Delivery) []keepwatch.Change {
	switch d := d.(type) {
	case keepwatch.Batch:
		return d.Changes
	case keepwatch.Gap:
		return d.Changes
	}
	return nil
}

// A source that was restored from a backup, or is another one, has another history: the records are dropped.
func TestRecordsOfAnotherHistory(t *testing.T) {
	for name, list := range map[string]struct {
		to      keepwatch.Revision
		objects []keepwatch.Object
		refused bool // once
	}{
		"an older revision":      {to: 5, objects: []keepwatch.Object{thingAt("a", 4)}},
		"an older object":        {to: 50, objects: []keepwatch.Object{thingAt("a", 4)}, refused: true},
		"another UID, as old":    {to: 50, objects: []keepwatch.Object{thingAt("a", 9).withUID("other")}, refused: true},
		"another UID, and newer": {to: 50, objects: []keepwatch.Object{thingAt("a", 20).withUID("other")}},
	} {
		f := newFile()
		f.write(listed(t, Options{}, 10, thingAt("a", 9)))
		s := f.open()
		err := replace(s, "", list.to, list.objects...)
		if (err != nil) != list.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			relist(t, s, "", list.to, list.objects...)
		}
		if o, _ := s.Snapshot().Get(key("ns", "a")); o != list.objects[0] {
			t.Errorf("%s: the state has %v", name, o)
		}
		if resumes := s.CanResume(10, Filter{}); list.to > 10 && resumes != (name == "another UID, and newer") {
			t.Errorf("%s: a watcher can resume: %v", name, resumes)
		}
	}
}

// Nothing has changed: the first list shows the objects, and no watcher receives anything.
func TestRecordsEqualTheList(t *testing.T) {
	f := newFile()
	f.write(listed(t, Options{}, 10, thingAt("a", 9), thingAt("b", 3)))
	s := f.open()
	relist(t, s, "", 10, thingAt("a", 9), thingAt("b", 3))
	if got := stateOf(s.Snapshot()); len(got) != 2 || fmt.Sprintf("%T", got[key("ns", "a")]) != "*store.thing" {
		t.Errorf("the state is %v", got)
	}
	if s.Revision() != 10 {
		t.Errorf("the revision is %d", s.Revision())
	}
	apply(t, s, 11, modify(thingAt("a", 11)))
	wantDifference(t, 0, s, 10, state{key("ns", "a"): thingAt("a", 9), key("ns", "b"): thingAt("b", 3)},
		stateOf(s.Snapshot()))
}

// A list that shows another content than the one of which the record is the hash: nobody resumes from before it. A
// record without a hash, as earlier versions have written them, is compared by UID and revision.
func TestRecordsOfAnotherContent(t *testing.T) {
	for name, row := range map[string]struct {
		forget bool // the hash
		now    *thing
		epoch  uint64
	}{
		"the same":        {false, thingAt("a", 3), 0},
		"another":         {false, thingAt("a", 3).painted("red"), 1},
		"another, no sum": {true, thingAt("a", 3).painted("red"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile()
			f.write(listed(t, Options{}, 10, thingAt("a", 3), thingAt("b", 5)))
			for k, r := range f.objects {
				if r.Sum == 0 {
					t.Fatalf("the record of %s has no hash", k)
				}
				if row.forget {
					r.Sum = 0
					f.objects[k] = r
				}
			}
			s := f.open()
			relist(t, s, "", 12, row.now, thingAt("b", 5))
			if c := s.Snapshot().Cursor(); c != (Cursor{row.epoch, 12}) {
				t.Fatalf("the store is at %v", c)
			}
			if can := s.CanResume(10, Filter{}); can != (row.epoch == 0) {
				t.Fatalf("a watcher can resume from before the list: %v", can)
			}
			if o, _ := s.Snapshot().Get(row.now.key); o != row.now {
				t.Fatalf("the store has %v", o)
			}
			f.write(s)
			if r := f.objects[row.now.key]; r.Sum != row.now.Sum() {
				t.Fatalf("the record is %v", r)
			}
		})
	}
}
