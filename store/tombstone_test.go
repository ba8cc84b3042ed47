package store

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// slimmed is the result of these tests' Slim.
type slimmed struct{ *thing }

func slim(o keepwatch.Object) keepwatch.Object { return slimmed{o.(*thing)} }

func TestGraveyardBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Tombstones: 20, Size: func(keepwatch.Object) int { return 100 }}.withDefaults()
		o.TombstoneBytes = 5 * (tombstoneBytes + 100)
		o.SlimBytes = rapid.SampledFrom([]int64{1, 6, 100}).Draw(t, "slim bytes") * (tombstoneBytes + 100)
		if rapid.Bool().Draw(t, "slim") {
			o.Slim = slim
		}
		var g graveyard
		var twin []tombstone
		revision := keepwatch.Revision(1)
		g.horizon = revision
		t.Repeat(map[string]func(*rapid.T){
			"bury": func(t *rapid.T) {
				revision += keepwatch.Revision(rapid.IntRange(0, 2).Draw(t, "ahead"))
				stone := tombstone{object: thingAt("a", revision), created: 1, revision: max(2, revision)}
				old := g
				before := gravesSince(&old, 0)
				g.add(stone, o)
				twin = append(twin, stone)
				if !slices.Equal(gravesSince(&old, 0), before) {
					t.Fatal("an old graveyard has changed")
				}
			},
			"": func(t *rapid.T) {
				if n := g.full.len() + g.slim.len(); n > o.Tombstones {
					t.Fatalf("%d tombstones, at most %d are allowed", n, o.Tombstones)
				}
				if g.full.bytes > o.TombstoneBytes {
					t.Fatalf("%d bytes in full, at most %d are allowed", g.full.bytes, o.TombstoneBytes)
				}
				if size := int64(g.slim.len()) * (tombstoneBytes + 100); size > o.SlimBytes {
					t.Fatalf("%d bytes slim, at most %d are allowed", size, o.SlimBytes)
				}
				if o.Slim == nil && g.slim.len() > 0 {
					t.Fatal("slim tombstones without Slim")
				}
				for r := g.horizon; r <= revision; r++ {
					var want []keepwatch.Revision
					for _, stone := range twin {
						if stone.revision > r {
							want = append(want, stone.revision)
						}
					}
					if got := gravesSince(&g, r); !slices.Equal(got, want) {
						t.Fatalf("since %d (horizon %d): %v, want %v", r, g.horizon, got, want)
					}
				}
			},
		})
	})
}

func gravesSince(g *graveyard, r keepwatch.Revision) (revisions []keepwatch.Revision) {
	g.since(r, func(t tombstone) { revisions = append(revisions, t.revision) })
	return revisions
}

func TestTombstonesBecomeSlim(t *testing.T) {
	o := Options{Slim: slim, Size: func(keepwatch.Object) int { return 100 }, TombstoneBytes: 2 * (100 + tombstoneBytes),
		WindowBytes: 1}
	a, b, c := thingAt("a", 1), thingAt("b", 1), thingAt("c", 1)
	s := listed(t, o, 1, a, b, c)
	w := s.Watch(s.Snapshot().Cursor(), Filter{})
	apply(t, s, 2, del(a, 2))
	apply(t, s, 3, del(b, 3))
	apply(t, s, 4, del(c, 4))
	got := poll(t, w)
	wantLines(t, lines(got...), "gap 1-4 expired; DELETED@2 ns/a a-1@2; DELETED@3 ns/b b-1@3; DELETED@4 ns/c c-1@4")
	for i, c := range got[0].(keepwatch.Gap).Changes {
		if _, thin := c.Object.(slimmed); thin != (i == 0) {
			t.Errorf("%s: slim is %v", c.Object.Key(), thin)
		}
	}
}

// The history within a gap is not known. A cursor there, of another process, must be
// refused: an object may have been created before it and deleted after it.
func TestGraveyardSpans(t *testing.T) {
	g := graveyard{horizon: 5}
	g.addSpan(span{10, 20})
	g.addSpan(span{20, 21})
	g.addSpan(span{30, 40})
	for r, want := range map[keepwatch.Revision]bool{
		4: false, 5: true, 10: true, 11: false, 19: false, 20: true, 21: true, 30: true, 35: false, 40: true, 50: true,
	} {
		if got := g.coversSince(r); got != want {
			t.Errorf("knows(%d) is %v", r, got)
		}
	}
	for i := range keepwatch.Revision(2 * maxSpans) {
		g.addSpan(span{100 + 10*i, 105 + 10*i})
	}
	if len(g.spans) > maxSpans || g.horizon < 100 || g.coversSince(g.horizon-1) || !g.coversSince(g.horizon) {
		t.Fatalf("%d spans, horizon %d", len(g.spans), g.horizon)
	}
	for _, s := range g.spans {
		if s.to <= g.horizon {
			t.Fatalf("a span up to %d is behind the horizon %d", s.to, g.horizon)
		}
	}
}
