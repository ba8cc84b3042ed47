package conform

import (
	"testing"

	"github.com/keepwatch/keepwatch"
)

// TestUnseenDeletion checks the revision of a deletion that all watchers learn of by a list. Revisions of other
// resources are free: one that a watcher had passed with the object is not the deletion's.
func TestUnseenDeletion(t *testing.T) {
	state := func(name, uid string, revision keepwatch.Revision) *object {
		return &object{key: keepwatch.Key{Namespace: "ns", Name: name}, uid: keepwatch.UID(uid), revision: revision}
	}
	for name, c := range map[string]struct {
		gaps  []interval
		again keepwatch.Revision // of another object with the name; 0: none
		want  keepwatch.Revision
	}{
		"no list":                    {nil, 0, 12},
		"one list":                   {[]interval{{20, 40}}, 0, 21},
		"two lists":                  {[]interval{{20, 40}, {25, 35}}, 0, 26},
		"created again in the gap":   {[]interval{{20, 40}}, 30, 21},
		"created again before a gap": {[]interval{{20, 40}}, 15, 12},
	} {
		t.Run(name, func(t *testing.T) {
			h, received := newHistory(), newDeletions()
			gone := state("gone", "1", 10)
			h.wrote(gone)
			h.removed(gone)
			h.wrote(state("other", "2", 11))
			if c.again > 0 {
				h.wrote(state("gone", "3", c.again))
			}
			for _, in := range c.gaps {
				received.gap("1", in)
			}
			writes, facts := h.writes(received)
			for _, w := range writes {
				if w.Object == nil && w.Revision == c.want {
					return
				}
			}
			t.Errorf("the writes are %v, facts %q, without a deletion at %d", writes, facts, c.want)
		})
	}
}
