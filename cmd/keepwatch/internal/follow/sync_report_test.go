package follow

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// TestExpiredReport checks that deletions by the size and by thinning are printed once an hour, with all of them, and
// those by age never.
func TestExpiredReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newSyncReport(&out, &out, "")
		until := time.Date(2026, 11, 28, 10, 42, 0, 0, time.UTC)
		for _, step := range []struct {
			after  time.Duration
			reason sink.ExpiryReason
			states int
			excess int64
			want   string
		}{
			{0, sink.ExpiredByAge, 9, 0, ""},
			{0, sink.ExpiredBySize, 1200, 0,
				"keepwatch: --max-size is reached: 1,200 states were deleted, which had ended by 2026-11-28T10:42:00Z\n"},
			{time.Minute, sink.ExpiredBySize, 10, 0, ""},
			{time.Minute, sink.ExpiredBySize, 0, 4096,
				"keepwatch: the current states alone are 4,096 bytes more than --max-size: no history is left, and the database grows\n"},
			{time.Minute, sink.ExpiredBySize, 0, 5000, ""},
			{time.Hour, sink.ExpiredBySize, 5, 0,
				"keepwatch: --max-size is reached: 15 states were deleted, which had ended by 2026-11-28T10:42:00Z\n"},
			{0, sink.ExpiredByThinning, 2000, 0,
				"keepwatch: --thin: 2,000 states were deleted, which had ended by 2026-11-28T10:42:00Z\n"},
			{time.Minute, sink.ExpiredByThinning, 10, 0, ""},
			{time.Hour, sink.ExpiredByThinning, 5, 0,
				"keepwatch: --thin: 15 states were deleted, which had ended by 2026-11-28T10:42:00Z\n"},
		} {
			time.Sleep(step.after)
			out.Reset()
			r.expired(sink.Expiry{Reason: step.reason, States: step.states, Until: until, Excess: step.excess})
			if out.String() != step.want {
				t.Errorf("%+v: %q", step, out.String())
			}
		}
	})
}

// TestClockBehindReport checks that a clock behind the newest transaction is printed once an hour, and by sync status,
// unless it is the difference of two machines.
func TestClockBehindReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // from 2000-01-01 on
		const want = "the clock shows 2000-01-01T00:00:00Z, and the newest transaction is of 2000-01-03T00:00:00Z"
		var out bytes.Buffer
		r := newSyncReport(&out, &out, "")
		future := time.Now().Add(48 * time.Hour)
		r.committed(sink.Batch{Time: time.Now().Add(time.Minute)})
		if out.Len() > 0 {
			t.Errorf("a minute: %q", out.String())
		}
		r.committed(sink.Batch{Time: future})
		time.Sleep(time.Minute)
		r.committed(sink.Batch{Time: future})
		if out.String() != "keepwatch: "+want+": until then, all transactions have that time\n" {
			t.Errorf("two days: %q", out.String())
		}
		time.Sleep(time.Hour)
		r.committed(sink.Batch{Time: future})
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Errorf("an hour later: %q", out.String())
		}
		out.Reset()
		r.onCut = func(transfer.Status, int, sink.Cut, bool) {} // the output of watch has no times
		time.Sleep(time.Hour)
		r.committed(sink.Batch{Time: future})
		if out.Len() > 0 {
			t.Errorf("watch: %q", out.String())
		}
		if err := printSyncStatus(&out, []sink.Status{{Time: future}}, future.Add(-48*time.Hour)); err != nil ||
			!strings.Contains(out.String(), "\n"+want+"\n") {
			t.Errorf("status: %q, %v", out.String(), err)
		}
	})
}
