package store

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// TestSelectionBehindTheWindow: a consumer of a gap that receives only the changes up to some revision has no object
// that was not in its view then: a watcher from that revision would never delete it.
func TestSelectionBehindTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Options{WindowBytes: 1, Attributes: colors})
		w.list(t, "")
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			w.commit(t)
			w.send(t, 1)
		}
		f := Filter{Match: red}
		for r := keepwatch.Revision(1); r < w.now; r++ {
			from := Cursor{0, r}
			for c := newConsumer(w, f, from, w.at(r)); c.pull(t, w); {
			}
			d, _, err := w.store.Watch(from, f).TryNext()
			gap, ok := d.(keepwatch.Gap)
			if err != nil {
				t.Fatal(err)
			}
			for at := r; ok && at <= gap.To; at++ {
				fold, view := w.at(r).through(f), w.at(at).through(f)
				for _, c := range gap.Changes {
					if c.Revision <= at && c.Type == keepwatch.Deleted {
						delete(fold, c.Object.Key())
					} else if c.Revision <= at {
						fold[c.Object.Key()] = c.Object
					}
				}
				for key, o := range fold {
					if in := view[key]; in == nil || in.UID() != o.UID() {
						t.Fatalf("after the changes up to %d of the gap%s\nthe consumer has %v, which is not in its view", at,
							changesText(gap.Changes), o)
					}
				}
			}
		}
	})
}
