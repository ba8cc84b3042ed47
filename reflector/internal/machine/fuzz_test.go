package machine

import (
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
)

// FuzzInputs plays a run: each byte says which of the outcomes of the action comes
// of it, or which failure. What is true at one moment is checked by wrong, here
// what only a whole run can show: the backoff of failures without progress never
// becomes shorter, patience ends, and whoever is told nothing but good news ends
// up reading.
func FuzzInputs(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 1, 0, 0, 200, 0, 3, 1})              // pages, and on
	f.Add([]byte{1, 0, 0, 0, 129, 129, 0, 129, 0, 0})             // resumed; silence, and a probe
	f.Add([]byte{2, 0, 1, 0, 0, 130, 0, 134, 0, 136, 0, 0})       // streamed; cut, expired
	f.Add([]byte{1, 1, 0, 3, 0, 3, 0, 255, 254, 253, 252, 251})   // a proof that is owed
	f.Add([]byte{0, 138, 0, 138, 0, 138, 0, 138, 0, 138, 0, 138}) // never the same again
	f.Fuzz(func(t *testing.T, run []byte) {
		if len(run) == 0 {
			return
		}
		at := begin(Config{Paged: run[0]&2 == 0, StartupDeadline: -1}, []keepwatch.Revision{0, 50}[run[0]&1])
		if wrong := at.wrong(place{}); wrong != "" {
			t.Fatalf("at the start: %s", wrong)
		}
		kinds := keepwatch.FailureKinds()
		for i, b := range run[1:] {
			if _, stopped := at.action.(Stop); stopped {
				return
			}
			before := at
			outcomes := at.outcomes()
			_, waits := at.action.(Wait)
			if b < 128 || waits {
				in := outcomes[int(b)%len(outcomes)]
				at = at.goOn(in)
				_, part := in.(Chunk)
				if _, bad := in.(Elapsed); !bad && !part && at.Failure != before.Failure && at.Failure != 0 {
					t.Fatalf("%d: good news %+v is trouble", i, in)
				}
			} else {
				at = at.goOn(Failed{Kind: kinds[int(b)%len(kinds)], RetryAfter: time.Duration(b&1) * time.Second, Lived: time.Duration(b&2) * time.Second})
				if at.Streak.Attempts < before.Streak.Attempts || at.Streak.Until > maxAhead {
					t.Fatalf("%d: after %+v the streak is %+v", i, before.Streak, at.Streak)
				}
				for kind, rule := range Table {
					if rule.MaxRetries > 0 && at.Streak.Failed[kind] >= rule.MaxRetries {
						t.Fatalf("%d: patience has not ended: %+v", i, at.Streak)
					}
				}
			}
			if wrong := at.wrong(before); wrong != "" {
				t.Fatalf("%d: %s: after %+v comes %+v", i, wrong, before, at)
			}
		}
		calm(t, at)
	})
}

// calm lets everything go well from here on.
func calm(t *testing.T, at place) {
	for range 20 {
		switch at.action.(type) {
		case Stop:
			return
		case Read:
			if last := at.goOn(Delivered{Revision: max(at.Revision, at.Newest), Bookmark: true}); last.action != (Read{}) || last.Streak != (Streak{}) || last.Failure != 0 {
				t.Fatalf("reading goes on with %+v", last)
			}
			return
		}
		all := at.outcomes()
		at = at.goOn(all[len(all)-1])
	}
	t.Fatalf("nothing fails, and it does not come to a watch: %+v", at)
}
