package store

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// consumer is a watcher with the fold of its deliveries, which are judged by the promises
// of package keepwatch.
type consumer struct {
	*Watcher
	filter   Filter
	fold     state
	foldedTo Cursor // up to which the fold goes
	deleted  map[keepwatch.UID]keepwatch.Revision
	exact    bool // gaps have exactly the objects that left and entered the view
}

// newConsumer returns a consumer with its view's state at a cursor.
func newConsumer(w *world, f Filter, from Cursor, current state) *consumer {
	return &consumer{
		Watcher: w.store.Watch(from, f), filter: f, foldedTo: from, fold: current.through(f),
		deleted: map[keepwatch.UID]keepwatch.Revision{}, exact: f.Match == nil || w.store.options.Attributes != nil,
	}
}

// pull judges the next delivery. It returns false if there is none.
func (c *consumer) pull(t *rapid.T, w *world) bool {
	t.Helper()
	d, _, err := c.TryNext()
	switch d := d.(type) {
	case keepwatch.Batch:
		c.contiguous(t, d.From)
		c.complete(t, w.branches[c.Cursor().Epoch], d)
		c.apply(t, d.Changes, true)
	case keepwatch.Gap:
		c.contiguous(t, d.From)
		if c.Cursor().Epoch != c.foldedTo.Epoch {
			clear(c.deleted) // a deleted object may exist again
		}
		c.apply(t, d.Changes, c.Cursor().Epoch == c.foldedTo.Epoch)
		c.judgeGap(t, w, d)
	case nil:
		if err != nil {
			c.expire(t, w, err)
			return true
		}
		c.currentAt(t, w, c.Cursor())
		return false
	}
	if to := toOf(d); c.Cursor().Revision != to {
		t.Fatalf("the cursor is at %v after a delivery up to %d", c.Cursor(), to)
	}
	c.foldedTo = c.Cursor()
	c.currentAt(t, w, c.foldedTo)
	return true
}

func toOf(d keepwatch.Delivery) keepwatch.Revision {
	if b, ok := d.(keepwatch.Batch); ok {
		return b.To
	}
	return d.(keepwatch.Gap).To
}

// contiguous is P1.
func (c *consumer) contiguous(t *rapid.T, from keepwatch.Revision) {
	t.Helper()
	if from != c.foldedTo.Revision {
		t.Fatalf("P1: a delivery from %d to a consumer at %v", from, c.foldedTo)
	}
}

// complete is P2, and with it P8 and P10; for a bookmark P9.
func (c *consumer) complete(t *rapid.T, b *branch, d keepwatch.Batch) {
	t.Helper()
	want := b.between(d.From, d.To, c.filter)
	if changesText(d.Changes) != changesText(want) {
		t.Fatalf("P2: (%d, %d] is%s\nwant%s", d.From, d.To, changesText(d.Changes), changesText(want))
	}
}

// judgeGap checks that a gap has the objects that left the view as deleted, whether they came
// back or not, at the revision at which they first left it and in a state that was in the view,
// unless only a list showed their deletion.
func (c *consumer) judgeGap(t *rapid.T, w *world, d keepwatch.Gap) {
	t.Helper()
	listed := slices.ContainsFunc(w.gaps, func(s span) bool { return s.from < d.To && s.to > d.From })
	now := w.store.Snapshot().Cursor().Epoch
	if !c.exact || listed || c.foldedTo.Revision == 0 || c.foldedTo.Epoch != now || c.Cursor().Epoch != now {
		return
	}
	b := w.branches[now]
	in := func(o keepwatch.Object, at keepwatch.Revision) bool {
		current := b.at(at).through(c.filter)[o.Key()]
		return current != nil && current.UID() == o.UID()
	}
	for key, o := range b.at(d.From).through(c.filter) {
		deleted := slices.ContainsFunc(d.Changes, func(change keepwatch.Change) bool {
			return change.Type == keepwatch.Deleted && change.Object.Key() == key && change.Object.UID() == o.UID()
		})
		left := false
		for r := d.From + 1; r <= d.To; r++ {
			left = left || !in(o, r)
		}
		if left != deleted {
			t.Fatalf("a gap from %d shows %v as deleted: %t, but that it left the view is %t", d.From, o, deleted, left)
		}
	}
	for _, change := range d.Changes {
		o := change.Object
		if change.Type != keepwatch.Deleted {
			continue
		}
		left := d.From + 1
		for left < d.To && in(o, left) {
			left++
		}
		if change.Revision != left {
			t.Fatalf("a gap from %d shows %v as deleted at %d, but it left the view at %d", d.From, o, change.Revision, left)
		}
		if slim := o.(*thing).color == ""; c.filter.Match != nil && !c.filter.Match(o) && !slim {
			t.Fatalf("a gap from %d shows %v, which its filter hides", d.From, o)
		}
	}
}

// take folds changes, and is P5, P6 and P7.
func (c *consumer) apply(t *rapid.T, changes []keepwatch.Change, sameEpoch bool) {
	t.Helper()
	for _, change := range changes {
		o := change.Object
		current, known := c.fold[o.Key()]
		if !c.filter.covers(o.Key()) {
			t.Fatalf("%s of another key:%s", change.Type, changesText(changes))
		}
		if change.Type == keepwatch.Deleted {
			if known && current.UID() != o.UID() || !known && c.exact {
				t.Fatalf("P6: DELETED %v while the consumer has %v", o, current)
			}
			delete(c.fold, o.Key())
			c.deleted[o.UID()] = change.Revision
			continue
		}
		if known && current.UID() != o.UID() {
			t.Fatalf("P6: %s %v while the consumer has %v", change.Type, o, current)
		}
		if known && sameEpoch && o.Revision() <= current.Revision() {
			t.Fatalf("P5: %v after %v", o, current)
		}
		if r, deleted := c.deleted[o.UID()]; deleted && o.Revision() <= r {
			t.Fatalf("P7: %v after its deletion at %d", o, r)
		}
		if known != (change.Type == keepwatch.Modified) && c.exact {
			t.Fatalf("%s %v while the consumer has %v", change.Type, o, current)
		}
		c.fold[o.Key()] = o
	}
}

// currentAt is P4 (and with it P3): the fold is the view's true state.
func (c *consumer) currentAt(t *rapid.T, w *world, at Cursor) {
	t.Helper()
	if at.Revision == 0 {
		return
	}
	if want := w.branches[at.Epoch].at(at.Revision).through(c.filter); !c.fold.equal(want) {
		t.Fatalf("P4: at %v the fold is\n%vwant\n%v", at, c.fold, want)
	}
}

// expire checks that the end was due, and begins anew.
func (c *consumer) expire(t *rapid.T, w *world, err error) {
	t.Helper()
	_, difference := w.store.Bounds()
	at := c.Cursor()
	due := at.Epoch != w.store.Snapshot().Cursor().Epoch || at.Revision < difference || w.within(at.Revision) ||
		c.filter.Match != nil && !w.store.view.Load().attributes.coversSince(at.Revision)
	if failure(err) != keepwatch.Expired || !due || at.Revision == 0 {
		t.Fatalf("a consumer at %v ends with %v; the store goes back to %d", at, err, difference)
	}
	*c = *newConsumer(w, c.filter, Cursor{}, state{})
}

// colors returns the color of a state whose successor has another one.
func colors(prior, next keepwatch.Object) keepwatch.Object {
	if next != nil && next.(*thing).color == prior.(*thing).color {
		return nil
	}
	return prior
}

func filters() *rapid.Generator[Filter] {
	return rapid.Custom(func(t *rapid.T) Filter {
		f := Filter{Namespace: rapid.SampledFrom([]string{"", "ns", "ns1", "ns-a"}).Draw(t, "namespace")}
		if rapid.IntRange(0, 3).Draw(t, "named") == 0 {
			f.Name = "a"
		}
		if rapid.Bool().Draw(t, "red") {
			f.Match = red
			if rapid.Bool().Draw(t, "by term") {
				f.Term = &Term{"color", "red"}
			}
		}
		return f
	})
}

// TestPromises is the master property: whatever the history, however it reaches
// the store, and however slowly it is read, every consumer can fold what it got
// to the true state of its view.
func TestPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// the revisions of objects that have no term
		unjudged := rapid.SampledFrom([]keepwatch.Revision{3, 1 << 40}).Draw(t, "unjudged")
		w := newWorld(Options{
			Size:           func(keepwatch.Object) int { return 100 },
			WindowBytes:    int64(rapid.IntRange(1, 20).Draw(t, "window")) * (logEntryBytes + changeBytes + 100),
			Tombstones:     rapid.IntRange(1, 20).Draw(t, "tombstones"),
			TombstoneBytes: int64(rapid.IntRange(1, 20).Draw(t, "full")) * (tombstoneBytes + 100),
			Slim: rapid.SampledFrom([]func(keepwatch.Object) keepwatch.Object{
				nil, func(o keepwatch.Object) keepwatch.Object { return o.(*thing).painted("") },
			}).Draw(t, "slim"),
			Attributes: rapid.SampledFrom([]func(_, _ keepwatch.Object) keepwatch.Object{nil, colors}).Draw(t, "attributes"),
			Term: func(o keepwatch.Object, _ string) (string, bool) {
				t, ok := o.(*thing)
				return t.color, ok && t.revision%unjudged != 0
			},
			AttributeBytes: int64(rapid.IntRange(1, 20).Draw(t, "attribute bytes")) * (replacedBytes + 100),
		})
		var consumers []*consumer
		one := func(t *rapid.T) *consumer {
			if len(consumers) == 0 {
				t.Skip("there is no watcher")
			}
			return consumers[rapid.IntRange(0, len(consumers)-1).Draw(t, "consumer")]
		}
		listed := func(t *rapid.T) {
			if w.store.Revision() == 0 || w.restored {
				t.Skip("there is nothing to follow")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"commit":  w.commit,
			"commit2": w.commit,
			"send":    func(t *rapid.T) { listed(t); w.send(t, rapid.IntRange(0, 4).Draw(t, "n")) },
			"send2":   func(t *rapid.T) { listed(t); w.send(t, rapid.IntRange(0, 4).Draw(t, "n")) },
			"list": func(t *rapid.T) {
				if w.store.Revision() == 0 && rapid.Bool().Draw(t, "by another run") {
					w.list(t, "")
					return
				}
				w.list(t, w.reason())
			},
			"invalidate": func(t *rapid.T) {
				listed := w.store.Snapshot()
				if err := w.store.Invalidate(t.Context(), w.reason()); err != nil || w.store.Revision() != 0 ||
					w.store.Snapshot() != listed {
					t.Fatalf("invalidated: Revision is %d, %v", w.store.Revision(), err)
				}
			},
			"restore": func(t *rapid.T) { listed(t); w.restore(t) },
			"watch": func(t *rapid.T) {
				consumers = append(consumers, newConsumer(w, filters().Draw(t, "f"), Cursor{}, state{}))
			},
			"watch from now": func(t *rapid.T) {
				s := w.store.Snapshot()
				consumers = append(consumers, newConsumer(w, filters().Draw(t, "f"), s.Cursor(), stateOf(s)))
			},
			"watch from elsewhere": func(t *rapid.T) {
				listed(t)
				now := w.store.Snapshot().Cursor()
				from := Cursor{now.Epoch, keepwatch.Revision(rapid.IntRange(1, int(now.Revision)).Draw(t, "from"))}
				consumers = append(consumers, newConsumer(w, filters().Draw(t, "f"), from, w.at(from.Revision)))
			},
			"restart": func(t *rapid.T) {
				c := one(t)
				c.Watcher, c.foldedTo = w.store.Watch(c.Cursor(), c.filter), c.Cursor()
			},
			"pull": func(t *rapid.T) { one(t).pull(t, w) },
			"pull all": func(t *rapid.T) {
				for c := one(t); c.pull(t, w); {
				}
			},
			"": func(t *rapid.T) {
				now := w.store.Snapshot()
				if now.revision == 0 {
					return
				}
				inspect(t, now.tree, stateOf(now))
				if digest(now.Digest()) != recomputed(now) {
					t.Fatal("the digest is not that of the content")
				}
				if at := now.Cursor(); !stateOf(now).equal(w.branches[at.Epoch].at(at.Revision)) {
					t.Fatalf("the store contains\n%vwant\n%v", stateOf(now), w.branches[at.Epoch].at(at.Revision))
				}
				if history, difference := w.store.Bounds(); history > now.revision || difference > now.revision {
					t.Fatalf("bounds %d, %d beyond %d", history, difference, now.revision)
				}
			},
		})
		// P11, as far as it concerns the store: all watchers reach the end.
		for _, c := range consumers {
			for c.pull(t, w) {
			}
			if now := w.store.Snapshot().Cursor(); c.Cursor() != now && now.Revision > 0 && !now.before(c.Cursor()) {
				t.Fatalf("P11: a consumer stays at %v, the store is at %v", c.Cursor(), now)
			}
		}
	})
}
