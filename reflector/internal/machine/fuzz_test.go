package machine

import (
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
)

// FuzzInputs plays a run: each byte selects an outcome of the action or a failure. The method
// violation checks each position. The fuzz test checks what only a whole run shows: the
// backoff of failures without progress does not become shorter, retries are limited, and
// without failures the run reaches an open watch.
func FuzzInputs(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 1, 0, 0, 200, 0, 3, 1})              // pages, and a watch
	f.Add([]byte{1, 0, 0, 0, 129, 129, 0, 129, 0, 0})             // resumed; idle, and a probe
	f.Add([]byte{2, 0, 1, 0, 0, 130, 0, 134, 0, 136, 0, 0})       // streamed; unreachable, expired
	f.Add([]byte{1, 1, 0, 3, 0, 3, 0, 255, 254, 253, 252, 251})   // a confirmation that is due
	f.Add([]byte{0, 138, 0, 138, 0, 138, 0, 138, 0, 138, 0, 138}) // failures of different kinds
	f.Fuzz(func(t *testing.T, run []byte) {
		if len(run) == 0 {
			return
		}
		at := start(Config{Paged: run[0]&2 == 0, StartupDeadline: -1}, []keepwatch.Revision{0, 50}[run[0]&1])
		if violation := at.violation(position{}); violation != "" {
			t.Fatalf("at the start: %s", violation)
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
				at = at.after(in)
				_, part := in.(Chunk)
				if _, elapsed := in.(Elapsed); !elapsed && !part && at.Failure != before.Failure && at.Failure != 0 {
					t.Fatalf("%d: the success %+v sets a failure", i, in)
				}
			} else {
				at = at.after(Failed{Kind: kinds[int(b)%len(kinds)], RetryAfter: time.Duration(b&1) * time.Second,
					OpenFor: time.Duration(b&2) * time.Second})
				if at.Retries.Attempts < before.Retries.Attempts || at.Retries.RevisionDeadline > revisionWait {
					t.Fatalf("%d: after %+v the retries are %+v", i, before.Retries, at.Retries)
				}
				for kind, rule := range Table {
					if rule.MaxRetries > 0 && at.Retries.ByKind[kind] >= rule.MaxRetries {
						t.Fatalf("%d: a limit is exceeded: %+v", i, at.Retries)
					}
				}
			}
			if violation := at.violation(before); violation != "" {
				t.Fatalf("%d: %s: %+v leads to %+v", i, violation, before, at)
			}
		}
		finish(t, at)
	})
}

// finish applies successes until a watch is read.
func finish(t *testing.T, at position) {
	for range 20 {
		switch at.action.(type) {
		case Stop:
			return
		case Read:
			if last := at.after(Delivered{Revision: max(at.Revision, at.Newest), Bookmark: true}); last.action != (Read{}) ||
				last.Retries != (Retries{}) || last.Failure != 0 {
				t.Fatalf("the read leads to %+v", last)
			}
			return
		}
		all := at.outcomes()
		at = at.after(all[len(all)-1])
	}
	t.Fatalf("the run does not reach a watch without failures: %+v", at)
}
