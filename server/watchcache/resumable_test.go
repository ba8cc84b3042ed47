package watchcache

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// version is an object of a history.
type version struct {
	name     string
	uid      keepwatch.UID
	revision keepwatch.Revision
}

func (v version) Key() keepwatch.Key           { return keepwatch.Key{Name: v.name} }
func (v version) UID() keepwatch.UID           { return v.uid }
func (v version) Revision() keepwatch.Revision { return v.revision }

type objects map[string]version

func (o objects) fold(c keepwatch.Change) {
	if c.Type == keepwatch.Deleted {
		delete(o, c.Object.Key().Name)
	} else {
		o[c.Object.Key().Name] = c.Object.(version)
	}
}

// TestGapsResumeAnywhere: a client that is cut off behind any event of a gap, and resumes at its revision at a server
// that has the whole history, has the same state in the end as one that received the whole gap.
func TestGapsResumeAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, state := keepwatch.Revision(0), objects{}
		write := func() keepwatch.Change {
			now++
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
			old, exists := state[name]
			c := keepwatch.Change{Type: keepwatch.Added, Revision: now,
				Object: version{name, keepwatch.UID(fmt.Sprint(name, now)), now}}
			switch {
			case exists && rapid.Bool().Draw(t, "delete"):
				c.Type, c.Object = keepwatch.Deleted, old
			case exists:
				c.Type, c.Object = keepwatch.Modified, version{name, old.uid, now}
			}
			state.fold(c)
			return c
		}
		for range rapid.IntRange(0, 10).Draw(t, "writes before the gap") {
			write()
		}
		before, from := maps.Clone(state), now
		var history []keepwatch.Change
		for range rapid.IntRange(1, 20).Draw(t, "writes in the gap") {
			history = append(history, write())
		}
		gap := keepwatch.Gap{From: from, To: now, Changes: naiveDifference(before, state, now)}
		events := resumable(gap)
		for n := range len(events) + 1 {
			client, reached := maps.Clone(before), from
			for _, c := range events[:n] {
				client.fold(c)
				reached = max(reached, c.Revision)
			}
			for _, c := range history {
				if c.Revision > reached {
					client.fold(c)
				}
			}
			if !maps.Equal(client, state) {
				t.Fatalf("behind %d of %v a client resumes from %d behind %v and has %v, want %v", n, text(events), reached,
					text(history), client, state)
			}
		}
		if last := len(events) - 1; last >= 0 && events[last].Revision == from {
			t.Fatalf("%v leaves the client at %d", text(events), from)
		}
	})
}

// naiveDifference is the naive one. The revisions of deletions are not known.
func naiveDifference(before, after objects, to keepwatch.Revision) (changes []keepwatch.Change) {
	for name, old := range before {
		if o, ok := after[name]; !ok || o.uid != old.uid {
			changes = append(changes, keepwatch.Change{Type: keepwatch.Deleted, Revision: to, Object: old})
		}
	}
	for name, o := range after {
		old, ok := before[name]
		switch {
		case ok && old == o:
		case ok && old.uid == o.uid:
			changes = append(changes, keepwatch.Change{Type: keepwatch.Modified, Revision: o.revision, Object: o})
		default:
			changes = append(changes, keepwatch.Change{Type: keepwatch.Added, Revision: o.revision, Object: o})
		}
	}
	return changes
}

func text(changes []keepwatch.Change) (all []string) {
	for _, c := range changes {
		all = append(all, fmt.Sprintf("%v %s@%d", c.Type, c.Object.UID(), c.Revision))
	}
	return all
}

// TestRevisionsResumeAnywhere: a client that is cut off behind any event of a batch, and resumes at its revision, has
// the same state in the end as one that received the whole batch, although leases of etcd's delete several objects at
// one revision.
func TestRevisionsResumeAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, state := keepwatch.Revision(0), objects{}
		create := func() keepwatch.Change {
			now++
			name := fmt.Sprint(now)
			c := keepwatch.Change{Type: keepwatch.Added, Revision: now, Object: version{name, keepwatch.UID(name), now}}
			state.fold(c)
			return c
		}
		for range rapid.IntRange(1, 10).Draw(t, "writes before the batch") {
			create()
		}
		before, from := maps.Clone(state), now
		var batch []keepwatch.Change
		for range rapid.IntRange(1, 10).Draw(t, "revisions of the batch") {
			write := create()
			var deleted []keepwatch.Change
			for _, name := range slices.Sorted(maps.Keys(state)) {
				if old := state[name]; name != write.Object.Key().Name && rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
					deleted = append(deleted, keepwatch.Change{Type: keepwatch.Deleted, Revision: now, Object: old})
				}
			}
			for _, c := range deleted {
				state.fold(c)
			}
			batch = append(append(batch, write), deleted...)
		}
		events := separate(batch, from)
		for n := range len(events) + 1 {
			client, reached := maps.Clone(before), from
			for _, c := range events[:n] {
				if c.Revision < reached {
					t.Fatalf("%v goes back behind %d", text(events), reached)
				}
				client.fold(c)
				reached = c.Revision
			}
			for _, c := range batch {
				if c.Revision > reached {
					client.fold(c)
				}
			}
			if !maps.Equal(client, state) {
				t.Fatalf("behind %d of %v a client resumes from %d and has %v, want %v", n, text(events), reached, client, state)
			}
		}
		if separated := text(events); len(separated) != len(batch) || events[len(events)-1].Revision != now {
			t.Fatalf("%v of %v", separated, text(batch))
		}
	})
}

// A batch whose revisions have one change each is not copied.
func TestRevisionsAreNotCopied(t *testing.T) {
	batch := []keepwatch.Change{{Type: keepwatch.Deleted, Revision: 1}, {Type: keepwatch.Added, Revision: 2},
		{Type: keepwatch.Added, Revision: 2}}
	if &separate(batch, 0)[0] != &batch[0] {
		t.Error("the batch is copied")
	}
}
