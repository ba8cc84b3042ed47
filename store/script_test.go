package store

import (
	"fmt"
	"maps"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// model is a store in maps: it has every state and every deletion. Where it refuses a batch or list, the store must.
type model struct {
	now        Cursor
	invalid    keepwatch.GapReason
	state      state
	states     map[Cursor]state // at the end of each revision that was shown
	tombstones map[keepwatch.Key][]tombstone
	// known is the revision from which on deletions are known, except within spans.
	known keepwatch.Revision
	spans []span
}

func newModel() *model {
	return &model{state: state{}, states: map[Cursor]state{}, tombstones: map[keepwatch.Key][]tombstone{}}
}

// apply returns how many changes are old, and whether the batch is refused.
func (l *model) apply(b keepwatch.Batch) (old int, refused bool) {
	if l.now.Revision == 0 || l.invalid != "" || b.From > l.now.Revision || b.To < b.From || b.To < l.now.Revision &&
		len(b.Changes) == 0 {
		return 0, true
	}
	next, last := l.copy(), l.now.Revision+1
	for _, c := range b.Changes {
		k := c.Object.Key()
		current, known := next.state[k]
		switch {
		case c.Revision > b.To:
			return 0, true
		case known && c.Revision <= current.Revision() || !known && next.old(c):
			old++
			continue
		case c.Revision < last, !known && c.Type != keepwatch.Added,
			c.Type == keepwatch.Deleted && current.UID() != c.Object.UID():
			return 0, true
		}
		last = c.Revision
		if known && current.UID() != c.Object.UID() || c.Type == keepwatch.Deleted {
			next.bury(current, c.Revision)
			delete(next.state, k)
		}
		if c.Type != keepwatch.Deleted {
			next.state[k] = c.Object
		}
		next.states[Cursor{l.now.Epoch, c.Revision}] = maps.Clone(next.state)
	}
	next.now.Revision = max(l.now.Revision, b.To)
	next.states[next.now] = next.state
	*l = *next
	return old, false
}

// old reports whether a change of an unknown object is one of before its deletion.
func (l *model) old(c keepwatch.Change) bool {
	for _, t := range l.tombstones[c.Object.Key()] {
		if t.revision > c.Revision || t.revision == c.Revision && (c.Type == keepwatch.Deleted ||
			t.object.UID() == c.Object.UID()) {
			return true
		}
	}
	return c.Type == keepwatch.Deleted && !l.reaches(c.Revision-1)
}

// reaches reports whether every deletion since a revision is known.
func (l *model) reaches(r keepwatch.Revision) bool {
	for _, s := range l.spans {
		if s.from < r && r < s.to {
			return false
		}
	}
	return r >= l.known
}

func (l *model) bury(o keepwatch.Object, at keepwatch.Revision) {
	l.tombstones[o.Key()] = append(l.tombstones[o.Key()][:len(l.tombstones[o.Key()]):len(l.tombstones[o.Key()])],
		tombstone{object: o, revision: at})
}

func (l *model) copy() *model {
	c := *l
	c.state, c.states, c.tombstones = maps.Clone(l.state), maps.Clone(l.states), maps.Clone(l.tombstones)
	return &c
}

// replace reports whether the list is refused.
func (l *model) replace(relist keepwatch.Relist, to keepwatch.Revision, objects []keepwatch.Object) (refused bool) {
	rewind := l.now.Revision > 0 && (relist.Reason == keepwatch.GapRewind || l.invalid == keepwatch.GapRewind)
	if to < l.now.Revision && !rewind || to == 0 {
		return true
	}
	list := state{}
	for _, o := range objects {
		before, known := list[o.Key()]
		if !known {
			before, known = l.state[o.Key()]
		}
		switch {
		case o.Revision() > to, known && !rewind && o.Revision() < before.Revision(),
			known && !rewind && o.Revision() == before.Revision() && o.UID() != before.UID():
			return true
		case known && *o.(*thing) == *before.(*thing):
			list[o.Key()] = before
		default:
			list[o.Key()] = o
		}
	}
	next := l.copy()
	switch {
	case l.now.Revision == 0:
		next.known = to
	case rewind || to == l.now.Revision && !list.equal(l.state) || list.contradicts(l.state):
		next.now.Epoch++
		next.tombstones, next.spans, next.known = map[keepwatch.Key][]tombstone{}, nil, to
	case to > l.now.Revision:
		next.spans = append(next.spans[:len(next.spans):len(next.spans)], span{l.now.Revision, to})
		for k, o := range l.state {
			if list[k] == nil || list[k].UID() != o.UID() {
				next.bury(o, to)
			}
		}
	}
	next.now.Revision, next.state, next.invalid = to, list, ""
	next.states[next.now] = list
	*l = *next
	return false
}

// contradicts reports whether an object has another content than before at the same revision.
func (s state) contradicts(before state) bool {
	for k, o := range s {
		b := before[k]
		if b != nil && b.UID() == o.UID() && b.Revision() == o.Revision() && *b.(*thing) != *o.(*thing) {
			return true
		}
	}
	return false
}

// at returns the state at a cursor, which may be above the change that made it.
func (l *model) at(c Cursor) state {
	for ; c.Revision > 0; c.Revision-- {
		if s, ok := l.states[c]; ok {
			return s
		}
	}
	return state{}
}

// FuzzStoreAgainstHistory reads a script of batches and lists, good and bad, and
// compares the store with the model after each; consumers follow.
func FuzzStoreAgainstHistory(f *testing.F) {
	f.Add([]byte("\x05\x00\x00\x00\x11\x22\x06\x40\x00\x33"))
	f.Add([]byte{5, 0, 0, 17, 4, 64, 0, 33, 4, 64, 1, 70, 4, 128, 7, 0, 6, 34, 7, 1, 5, 77})
	f.Add([]byte{3, 16, 5, 0, 15, 128, 3, 17, 5, 16, 23, 128, 5, 16, 6, 48}) // invalidated, and repaired
	f.Add([]byte("any text is a script, most of them bad ones; but some are not"))
	f.Fuzz(func(t *testing.T, script []byte) {
		bytes := int64(2 * (logEntryBytes + changeBytes + 1))
		s := New(Options{WindowBytes: bytes, Size: func(keepwatch.Object) int { return 1 }})
		l := newModel()
		type follower struct {
			*Watcher
			fold state
		}
		var followers []*follower
		var objects []keepwatch.Object
		var changes []keepwatch.Change
		for script = script[:min(len(script), 300)]; len(script) >= 2; script = script[2:] {
			a, b := script[0], script[1]
			// A revision from three below the current one to four above, never below 1.
			revision := max(4, l.now.Revision+1) - 3 + keepwatch.Revision(b>>4&7)
			switch o := objectOf(b, revision); a & 7 {
			case 0, 1, 2:
				changes = append(changes, keepwatch.Change{Type: keepwatch.ChangeType(a&7) + 1, Revision: revision, Object: o})
			case 3:
				objects = append(objects, o)
			case 4: // the list has the current state, perhaps twice
				objects = append(objects, l.state.sorted()[min(len(l.state), int(a>>6)):]...)
			case 5:
				relist := keepwatch.Relist{Reason: keepwatch.GapExpired, To: revision}
				switch {
				case a>>3 == 31:
					relist.Reason = keepwatch.GapRewind
				case l.invalid != "" && a&64 != 0:
					relist.Reason = "" // another run, without the reason
				}
				before := s.Snapshot()
				refused := l.replace(relist, revision, objects)
				if err := replace(s, relist.Reason, revision, objects...); (err != nil) != refused {
					t.Fatalf("list %v at %d: refused %v, want %v", objects, revision, err, refused)
				}
				if refused && s.Snapshot() != before {
					t.Fatal("a refused list has changed the state")
				}
				objects = nil
			case 6:
				batch := keepwatch.Batch{From: max(l.now.Revision+2, keepwatch.Revision(a>>5)) - keepwatch.Revision(a>>5),
					To: revision, Changes: changes}
				if a&16 == 0 {
					batch.From = min(batch.From, l.now.Revision)
				}
				before := s.Snapshot()
				old, refused := l.apply(batch)
				dropped, err := s.Apply(t.Context(), batch)
				if (err != nil) != refused || !refused && dropped != old {
					t.Fatalf("apply %q: %d dropped, %v; want %d, refused %v", lines(batch), dropped, err, old, refused)
				}
				if refused && s.Snapshot() != before {
					t.Fatal("a refused batch has changed the state")
				}
				changes = nil
			case 7:
				if reason := []keepwatch.GapReason{"", keepwatch.GapExpired, keepwatch.GapRewind}[a>>3%3]; reason != "" && b > 127 {
					if l.invalid = reason; l.now.Revision == 0 {
						l.invalid = ""
					}
					invalidate(t, s, reason)
				}
				followers = append(followers, &follower{s.Watch(Cursor{}, Filter{}), state{}})
			}
			now := s.Snapshot()
			if current := s.Revision(); (current == 0) != (l.invalid != "" || l.now.Revision == 0) {
				t.Fatalf("current is %d at %v, invalidated by %q", current, l.now, l.invalid)
			}
			if now.Cursor() != l.now || !stateOf(now).equal(l.state) || digest(now.Digest()) != recomputed(now) {
				t.Fatalf("the store is at %v with\n%vthe model at %v with\n%v", now.Cursor(), stateOf(now), l.now, l.state)
			}
			inspect(t, now.tree, stateOf(now))
			for i, c := range followers {
				if len(script)%(i+1) == 0 {
					follow(t, l, c.Watcher, c.fold)
				}
			}
		}
		readBack(t, s, l)
	})
}

// objectOf returns one of four names with one of four UIDs; a UID and a revision have one
// content.
func objectOf(b byte, r keepwatch.Revision) *thing {
	name := fmt.Sprint("name-", b&3)
	return &thing{key: key("ns", name), uid: keepwatch.UID(fmt.Sprint(name, "-", b>>2&3)), revision: r}
}

// follow folds a watcher's deliveries, and compares the fold with the model.
func follow(t *testing.T, l *model, w *Watcher, fold state) {
	t.Helper()
	for {
		d, _, err := w.TryNext()
		if err != nil {
			if now := l.now; w.Cursor().Epoch == now.Epoch && l.reaches(w.Cursor().Revision) {
				t.Fatalf("a follower at %v of %v ends with %v", w.Cursor(), now, err)
			}
			return
		}
		if d == nil {
			return
		}
		for _, c := range (logEntry{delivery: d}).changes() {
			if c.Type == keepwatch.Deleted {
				delete(fold, c.Object.Key())
			} else {
				fold[c.Object.Key()] = c.Object
			}
		}
		if want := l.at(w.Cursor()); !fold.equal(want) {
			t.Fatalf("after %q the fold is\n%vwant\n%v", lines(d), fold, want)
		}
	}
}

// readBack compares every state that the store can still show.
func readBack(t *testing.T, s *Store, l *model) {
	t.Helper()
	history, _ := s.Bounds()
	for r := history; r > 0 && r <= l.now.Revision; r++ {
		past, err := s.At(r)
		if err != nil {
			t.Fatalf("at %d, since %d: %v", r, history, err)
		}
		if want := l.at(Cursor{l.now.Epoch, r}); !stateOf(past).equal(want) {
			t.Fatalf("at %d it was\n%vwant\n%v", r, stateOf(past), want)
		}
	}
}
