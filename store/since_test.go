package store

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// applied applies changes, each in a batch of its own.
func applied(t fataler, s *Store, changes ...keepwatch.Change) {
	t.Helper()
	for _, c := range changes {
		apply(t, s, c.Revision, c)
	}
}

func deltas(changes []keepwatch.Change) (lines []string) {
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %s@%d at %d", c.Type, c.Object.Key().Name, c.Object.Revision(), c.Revision))
	}
	return lines
}

func TestSinceIsExactWithinItsBound(t *testing.T) {
	s := listed(t, Options{}, 10, thingAt("a", 1), thingAt("b", 2))
	seen := s.Snapshot()
	applied(t, s, modify(thingAt("a", 11)), modify(thingAt("a", 12)), del(thingAt("b", 2), 13), add(thingAt("c", 14)),
		del(thingAt("c", 14), 15))
	for most, want := range map[int][]string{
		5: {"MODIFIED a@11 at 11", "MODIFIED a@12 at 12", "DELETED b@13 at 13", "ADDED c@14 at 14", "DELETED c@15 at 15"},
		4: {"MODIFIED a@12 at 12", "DELETED b@13 at 13"},
	} {
		changes, now, _ := s.Since(seen, most)
		if got := deltas(changes); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("at most %d: %q, want %q", most, got, want)
		}
		if now != s.Snapshot() {
			t.Errorf("now is at %d", now.Revision())
		}
	}
}

func TestSinceTheBeginningIsTheWholeState(t *testing.T) {
	s := listed(t, Options{}, 10, thingAt("a", 1))
	applied(t, s, add(thingAt("b", 11)))
	changes, _, _ := s.Since(&Snapshot{}, 1000)
	if got, want := fmt.Sprint(deltas(changes)), "[ADDED a@1 at 1 ADDED b@11 at 11]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSinceAGapReportsUnknownFinalStates(t *testing.T) {
	s := listed(t, Options{}, 10, thingAt("a", 1), thingAt("b", 2))
	seen := s.Snapshot()
	relist(t, s, keepwatch.GapExpired, 20, thingAt("b", 2))
	for _, most := range []int{0, 1000} {
		changes, _, _ := s.Since(seen, most)
		if got, want := fmt.Sprint(deltas(changes)), "[DELETED a@1 at 20]"; got != want {
			t.Errorf("at most %d: %s, want %s", most, got, want)
		}
	}
}

func TestSinceClosesNewer(t *testing.T) {
	s := listed(t, Options{}, 10)
	_, now, newer := s.Since(s.Snapshot(), 10)
	select {
	case <-newer:
		t.Fatal("closed before anything happened")
	default:
	}
	applied(t, s, add(thingAt("a", 11)))
	<-newer
	if changes, _, _ := s.Since(now, 10); len(changes) != 1 {
		t.Errorf("%d changes", len(changes))
	}
}

// For any limit and any window, the fold of the changes is the state, each change begins
// at the consumer's state, and deletions that were observed have their final state.
func TestSinceFoldsToTheState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := listed(t, Options{WindowBytes: rapid.SampledFrom([]int64{1, 5 << 10, 0}).Draw(t, "window")}, 1)
		seen, fold := &Snapshot{}, map[keepwatch.Key]keepwatch.Object{}
		gapped := false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key, at := fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "key")), s.Revision()+1
			current, ok := s.Snapshot().Get(thingAt(key, 1).key)
			switch action := rapid.IntRange(0, 9).Draw(t, "action"); {
			case action < 3 && ok:
				applied(t, s, modify(current.(*thing).at(at)))
			case action < 5 && ok:
				applied(t, s, del(current.(*thing), at))
			case action < 6 && !ok:
				applied(t, s, add(thingAt(key, at).withUID(keepwatch.UID(fmt.Sprint(key, "-", at)))))
			case action < 7:
				var listed []keepwatch.Object
				for o := range s.Snapshot().All() {
					if rapid.Bool().Draw(t, "listed") {
						listed = append(listed, o)
					}
				}
				relist(t, s, keepwatch.GapExpired, at, listed...)
				gapped = true
			case action > 7:
				changes, now, _ := s.Since(seen, rapid.SampledFrom([]int{0, 3, 1000}).Draw(t, "most"))
				for _, c := range changes {
					k := c.Object.Key()
					if fold[k] != c.Prior {
						t.Fatalf("%s %s at %d follows %v, but %v was delivered", c.Type, k, c.Revision, c.Prior, fold[k])
					}
					if c.Type == keepwatch.Deleted {
						if c.Object.Revision() != c.Revision && !gapped {
							t.Fatalf("the final state of %s is lost", k)
						}
						delete(fold, k)
					} else {
						fold[k] = c.Object
					}
				}
				seen, gapped = now, false
				if len(fold) != now.Len() {
					t.Fatalf("%d objects were delivered, %d are there", len(fold), now.Len())
				}
				for o := range now.All() {
					if fold[o.Key()] != o {
						t.Fatalf("%v was delivered, %v is there", fold[o.Key()], o)
					}
				}
			}
		}
	})
}
