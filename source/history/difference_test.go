package history_test

import (
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
)

// A state that was read before a list, or while it was under way, is not the one of the history any more: the list may
// have changed it.
func TestMarksAndLists(t *testing.T) {
	database := past()
	pods := &database.status[1]
	read := func(in func(v *history.View)) { t.Helper(); view(t, database, in) }
	var before, during, after history.Mark
	mark := func(m *history.Mark) {
		t.Helper()
		read(func(v *history.View) { *m = v.Mark(streamOf(t, v, "pods"), at(40)) })
	}
	known := func(when string, m history.Mark, want bool) {
		t.Helper()
		read(func(v *history.View) {
			if got, err := v.IsKnown(t.Context(), streamOf(t, v, "pods"), m); got != want || err != nil {
				t.Errorf("%s: %v, %v", when, got, err)
			}
		})
	}
	mark(&before)
	known("before the list", before, true)
	pods.Progress.Gap = keepwatch.GapExpired
	database.gaps = append(database.gaps, database.gaps[1])
	declared := &database.gaps[2]
	declared.From, declared.To, declared.Ended = 45, 50, time.Time{}
	mark(&during)
	known("a state from before, while the list is under way", before, false)
	known("a state from while it is under way, then", during, false)
	pods.Progress.Gap, pods.Progress.Cursor, declared.Ended = "", 50, minute(9)
	mark(&after)
	known("a state from before, after the list", before, false)
	known("a state from while it was under way, after it", during, false)
	known("a state from after it", after, true)
	if before == during || during == after {
		t.Errorf("equal marks: %v, %v, %v", before, during, after)
	}
}
