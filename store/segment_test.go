package store

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// namesIn returns the names of a segment, which All and At must agree on.
func namesIn(t *testing.T, s Segment) []string {
	t.Helper()
	var at []string
	for i := range s.Len() {
		at = append(at, s.At(i).Key().String())
	}
	if all := namesOf(s.All()); len(at) > 0 && !slices.Equal(all, at) {
		t.Fatalf("All returns %q, At %q", all, at)
	}
	return at
}

func TestSegmentsHoldWhatTheSnapshotHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		twin := state{}
		for _, k := range rapid.SliceOfN(keysOf(), 0, 400).Draw(t, "keys") {
			twin[k] = &thing{key: k, revision: 1}
		}
		s := listed(t, Options{}, 1, twin.sorted()...).Snapshot()
		namespace := rapid.SampledFrom(namespaces).Draw(t, "namespace")
		from := keysOf().Draw(t, "from")
		for name, current := range map[string]struct {
			segments func(func(Segment) bool)
			objects  func(func(keepwatch.Object) bool)
		}{
			"all":       {s.Segments(), s.All()},
			"from":      {s.SegmentsFrom(from), s.From(from)},
			"namespace": {s.SegmentsIn(namespace), s.Namespace(namespace)},
		} {
			var got []keepwatch.Object
			for segment := range current.segments {
				if segment.Len() == 0 || segment.Len() > fill {
					t.Fatalf("%s: a segment of %d", name, segment.Len())
				}
				got = slices.AppendSeq(got, segment.All())
			}
			if want := slices.Collect(current.objects); !slices.Equal(got, want) {
				t.Fatalf("%s: the segments contain %v, want %v", name, got, want)
			}
		}
	})
}

func TestSegmentParts(t *testing.T) {
	s := listed(t, Options{}, 1, thingAt("a", 1), thingAt("b", 1), thingAt("c", 1)).Snapshot()
	for segment := range s.Segments() {
		part := segment.Part(1, 3)
		wantLines(t, namesIn(t, part), "ns/b", "ns/c")
		wantLines(t, namesIn(t, part.Part(0, 1)), "ns/b")
		wantLines(t, namesIn(t, part.Part(1, 1)))
		if !segment.Whole() || !segment.Part(0, 3).Whole() || part.Whole() {
			t.Error("a part is not the whole")
		}
		for _, beyond := range [][2]int{{-1, 1}, {2, 1}, {0, 3}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("there is a part %v of %d objects", beyond, part.Len())
					}
				}()
				part.Part(beyond[0], beyond[1])
			}()
		}
	}
}

// A write must cost the derivation of one segment, and no other.
func TestMemoIsDerivedOnceForEachSegment(t *testing.T) {
	var derived atomic.Int64
	names := NewMemo(func(s Segment) []string {
		derived.Add(1)
		return namesOf(s.All())
	})
	things := nThings(20 * fill)
	s := listed(t, Options{}, 1_000, things...)
	read := func(snapshot *Snapshot) []string {
		var all []string
		for segment := range snapshot.Segments() {
			all = append(all, names.Of(segment)...)
		}
		return all
	}
	before := s.Snapshot()
	for range 3 {
		wantLines(t, read(before), namesOf(before.All())...)
	}
	if n := derived.Load(); n != 20 {
		t.Fatalf("derived %d times for 20 segments", n)
	}
	apply(t, s, 1_001, modify(things[77].(*thing).at(1_001)))
	apply(t, s, 1_002, del(things[300].(*thing), 1_002))
	after := s.Snapshot()
	wantLines(t, read(after), namesOf(after.All())...)
	wantLines(t, read(before), namesOf(before.All())...)
	if n := derived.Load(); n != 22 {
		t.Fatalf("derived %d times after two writes to 20 segments", n)
	}
	// A part shares no memo values with the whole.
	for segment := range after.Segments() {
		wantLines(t, names.Of(segment.Part(0, 1)), namesOf(segment.Part(0, 1).All())...)
		wantLines(t, names.Of(segment), namesOf(segment.All())...)
		if known, ok := names.Known(segment); !ok {
			t.Error("nothing is known of a segment")
		} else {
			wantLines(t, known, names.Of(segment)...)
		}
		if _, ok := names.Known(segment.Part(0, 1)); ok {
			t.Error("something is known of a part")
		}
		if _, ok := NewMemo(func(Segment) int { return 1 }).Known(segment); ok {
			t.Error("a value is cached that was not requested")
		}
		break
	}
}

// A write must invalidate the values that were derived from the state before, whatever the
// editor does with the segment.
func TestMemoIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memo := NewMemo(func(s Segment) []keepwatch.Object { return slices.Collect(s.All()) })
		count := NewMemo(func(s Segment) int { return s.Len() })
		ed := tree{}.edit()
		revision := keepwatch.Revision(0)
		for range rapid.IntRange(1, 20).Draw(t, "transactions") {
			for range rapid.IntRange(0, 50).Draw(t, "edits") {
				revision++
				if k := keysOf().Draw(t, "key"); rapid.IntRange(0, 3).Draw(t, "edit") == 0 {
					ed.uproot(k)
				} else {
					ed.plant(&thing{key: k, revision: revision})
				}
			}
			tr := ed.publish()
			tr.all(func(s Segment) bool {
				if got, want := memo.Of(s), slices.Collect(s.All()); !slices.Equal(got, want) || count.Of(s) != len(want) {
					t.Fatalf("memo is %v, want %v", got, want)
				}
				return true
			})
			ed = tr.edit()
		}
	})
}

func TestMemoIsDerivedOnceForMany(t *testing.T) {
	var derived atomic.Int64
	begun, proceed := make(chan struct{}), make(chan struct{})
	slow := NewMemo(func(Segment) int64 {
		if derived.Add(1) == 1 {
			close(begun)
		}
		<-proceed
		return 7
	})
	quick := NewMemo(func(s Segment) error { return nil })
	for segment := range listed(t, Options{}, 1, thingAt("a", 1)).Snapshot().Segments() {
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() {
				if got := slow.Of(segment); got != 7 {
					t.Errorf("got %d", got)
				}
			})
		}
		<-begun
		if quick.Of(segment) != nil { // a caller for another value does not wait
			t.Error("nil is not nil")
		}
		close(proceed)
		readers.Wait()
	}
	if n := derived.Load(); n != 1 {
		t.Fatalf("derived %d times", n)
	}
}

func TestMemoPanicsEveryTime(t *testing.T) {
	bad := NewMemo(func(Segment) int { panic("bad") })
	for segment := range listed(t, Options{}, 1, thingAt("a", 1)).Snapshot().Segments() {
		for range 2 {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("a value that could not be derived was given out")
					}
				}()
				bad.Of(segment)
			}()
		}
	}
}
