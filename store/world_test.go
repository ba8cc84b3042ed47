package store

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// world is a source's true history and the store that follows it. Its histories follow the
// definition: it has every state as a whole.
type world struct {
	store *Store
	*branch
	// branches are the true histories by the store's epoch. The store follows the
	// last; the world is ahead of it after a restore, until the store has listed.
	branches []*branch
	restored bool
	lives    int
	gaps     []span             // of the store's epoch
	listed   keepwatch.Revision // by the newest list
}

// branch is one history.
type branch struct {
	now    keepwatch.Revision
	state  state
	states map[keepwatch.Revision]state // at each revision that changed something
	log    []keepwatch.Change           // as the source gives it
}

func newWorld(o Options) *world {
	b := &branch{now: 1, state: state{}, states: map[keepwatch.Revision]state{1: {}}}
	return &world{store: New(o), branch: b, branches: []*branch{b}}
}

// at is the true state at a revision.
func (b *branch) at(r keepwatch.Revision) state {
	for ; r > 0; r-- {
		if s, ok := b.states[r]; ok {
			return s
		}
	}
	return state{}
}

// between returns a view's events in the history (from, to], by the definition: the
// changes of each revision.
func (b *branch) between(from, to keepwatch.Revision, f Filter) (seen []keepwatch.Change) {
	for r := from + 1; r <= to; r++ {
		before, after := b.at(r-1).through(f), b.at(r).through(f)
		for _, c := range b.log {
			k := c.Object.Key()
			if c.Revision != r {
				continue
			}
			was, is := before[k], after[k]
			switch {
			case was == nil && is == nil:
			case is == nil && c.Type == keepwatch.Deleted:
				seen = append(seen, c)
			case is == nil:
				seen = append(seen, keepwatch.Change{Type: keepwatch.Deleted, Revision: r, Object: was})
			case was == nil:
				seen = append(seen, keepwatch.Change{Type: keepwatch.Added, Revision: r, Object: is})
			case was.UID() != is.UID():
				seen = append(seen, keepwatch.Change{Type: keepwatch.Deleted, Revision: r, Object: was},
					keepwatch.Change{Type: keepwatch.Added, Revision: r, Object: is})
			default:
				seen = append(seen, keepwatch.Change{Type: keepwatch.Modified, Revision: r, Object: is})
			}
		}
	}
	return seen
}

var worldKeys = []keepwatch.Key{
	key("ns", "a"), key("ns", "b"), key("ns", "c"), key("ns1", "a"), key("ns1", "b"), key("ns-a", "a"), key("ns11", "a"),
}

// commit makes the next revision: a transaction on some keys.
func (w *world) commit(t *rapid.T) {
	w.now += keepwatch.Revision(rapid.IntRange(1, 3).Draw(t, "revisions of others"))
	w.state = maps.Clone(w.state)
	for _, k := range rapid.SliceOfNDistinct(rapid.SampledFrom(worldKeys), 1, 3, rapid.ID).Draw(t, "keys") {
		next := &thing{key: k, revision: w.now, color: rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "color")}
		current, known := w.state[k]
		c := keepwatch.Change{Type: keepwatch.Added, Revision: w.now, Object: next}
		switch what := rapid.IntRange(0, 7).Draw(t, "what"); {
		case !known || what == 0: // created, or another with the delete unseen
			w.lives++
			next.uid = keepwatch.UID(fmt.Sprint("life-", w.lives))
			if rapid.Bool().Draw(t, "sent as modified") && known {
				c.Type = keepwatch.Modified
			}
		case what <= 2:
			next = current.(*thing).at(w.now)
			c = keepwatch.Change{Type: keepwatch.Deleted, Revision: w.now, Object: next}
		default:
			next.uid, c.Type = current.UID(), keepwatch.Modified
		}
		w.log = append(w.log, c)
		if c.Type == keepwatch.Deleted {
			delete(w.state, k)
		} else {
			w.state[k] = next
		}
	}
	w.states[w.now] = w.state
}

// restore restores the world to an earlier revision, where a different history begins.
func (w *world) restore(t *rapid.T) {
	then := keepwatch.Revision(rapid.IntRange(1, int(w.now)).Draw(t, "restored"))
	old := w.branch
	w.branch = &branch{now: then, state: old.at(then), states: map[keepwatch.Revision]state{}}
	for r, s := range old.states {
		if r <= then {
			w.states[r] = s
		}
	}
	for _, c := range old.log {
		if c.Revision <= then {
			w.log = append(w.log, c)
		}
	}
	w.restored = true
}

// reason returns why the store cannot continue from the history.
func (w *world) reason() keepwatch.GapReason {
	if w.restored {
		return keepwatch.GapRewind
	}
	return keepwatch.GapExpired
}

// send applies the next n changes of the history to the store, in whole revisions, perhaps
// with a repetition, and perhaps with a bookmark.
func (w *world) send(t *rapid.T, n int) {
	current := w.store.Revision()
	from := current - min(current, keepwatch.Revision(rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "again")))
	// An object that was created and deleted before that is not distinguished from a new one,
	// and refused.
	_, difference := w.store.Bounds()
	from = max(from, w.listed, difference)
	b := keepwatch.Batch{From: from, To: current}
	for _, c := range w.log {
		switch {
		case c.Revision <= from:
		case c.Revision <= b.To || n > 0:
			if c.Revision > b.To {
				n--
			}
			b.Changes = append(b.Changes, c)
			b.To = max(b.To, c.Revision)
		}
	}
	if rapid.Bool().Draw(t, "bookmark") && (len(w.log) == 0 || b.To >= w.log[len(w.log)-1].Revision) {
		b.To = w.now
	}
	dropped, err := w.store.Apply(context.Background(), b)
	again := 0
	for _, c := range b.Changes {
		if c.Revision <= current {
			again++
		}
	}
	if err != nil || dropped != again {
		t.Fatalf("apply %q: %d dropped, want %d; %v", lines(b), dropped, again, err)
	}
}

// list gives the store the newest state as a list, in any order, some of it
// twice, and in pages.
func (w *world) list(t *rapid.T, reason keepwatch.GapReason) {
	current := w.store.Snapshot().Cursor()
	var objects []keepwatch.Object
	for _, o := range w.state {
		decoded := *o.(*thing)
		objects = append(objects, &decoded)
	}
	seed := rapid.Uint64().Draw(t, "order")
	random := rand.New(rand.NewPCG(seed, seed))
	slices.SortFunc(objects, func(a, b keepwatch.Object) int { return a.Key().Compare(b.Key()) })
	random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	if n := len(objects); n > 0 {
		objects = append(objects, objects[:random.IntN(n)]...)
	}
	r, err := w.store.Replace(context.Background(), keepwatch.Relist{Reason: reason, To: w.now})
	if err != nil {
		t.Fatalf("replace: %v", err)
	}
	for len(objects) > 0 {
		n := 1 + random.IntN(len(objects))
		if err := r.Put(context.Background(), objects[:n]); err != nil {
			t.Fatalf("put: %v", err)
		}
		objects = objects[n:]
	}
	if rapid.IntRange(0, 5).Draw(t, "discard") == 0 {
		r.Discard()
		w.list(t, reason)
		return
	}
	if err := r.Commit(context.Background(), w.now); err != nil {
		t.Fatalf("commit: %v", err)
	}
	w.listed = w.now
	switch now := w.store.Snapshot().Cursor(); {
	case now.Epoch != current.Epoch:
		w.branches = append(w.branches, w.branch)
		w.gaps, w.restored = nil, false
	case now.Revision > current.Revision && current.Revision > 0:
		w.gaps = append(w.gaps, span{current.Revision, now.Revision})
	}
}

// within reports whether a revision lies in a part of history that the store has
// not seen.
func (w *world) within(r keepwatch.Revision) bool {
	return slices.ContainsFunc(w.gaps, func(s span) bool { return s.from < r && r < s.to })
}
