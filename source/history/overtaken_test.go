package history_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// nextChanges returns the next batch with changes.
func nextChanges(t *testing.T, watch keepwatch.Watch) string {
	t.Helper()
	for {
		batch, err := watch.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(batch.Changes) > 0 {
			return short(batch)
		}
	}
}

// mustExpire fails unless a watch ends as one from an expired revision, and the source then lists another one.
func mustExpire(t *testing.T, source *history.Source, watch keepwatch.Watch, why, objects string,
	want keepwatch.Revision) keepwatch.Watch {
	t.Helper()
	batch, err := watch.Next()
	failure, ok := errors.AsType[*keepwatch.Failure](err)
	if !ok || failure.Kind != keepwatch.Expired || !strings.Contains(err.Error(), why) {
		t.Fatalf("%+v, %v", batch, err)
	}
	page, err := source.List(t.Context(), keepwatch.ListRequest{NotOlderThan: batch.To})
	var names []string
	for _, o := range page.Objects {
		names = append(names, o.Key().Name)
	}
	if err != nil || page.Revision != want || strings.Join(names, " ") != objects {
		t.Fatalf("the list at %d: %q, %v", page.Revision, names, err)
	}
	if watch, err = source.Watch(t.Context(), page.Revision); err != nil {
		t.Fatal(err)
	}
	return watch
}

// TestRetentionOvertakesAReplay deletes what a slow replay has not reached: it says so, and goes on where the history
// begins then, at the time of that.
func TestRetentionOvertakesAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database, before := &changing{}, past()
		before.gaps, before.status[1].Progress.Cursor = nil, 20
		database.current.Store(before)
		source := opened(database).Source(history.SourceOptions{Resource: "pods", At: at(10),
			Onward: true, Speed: 1})
		watch, err := source.Watch(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		later := past()
		later.gaps = nil
		later.states = append(later.states[4:], state("e", 47, 0, 9, 0))
		later.status[1].First, later.status[1].FirstSeen = at(41), minute(6)
		later.status[1].Progress.Cursor, later.status[1].Time = 50, minute(10)
		began := time.Now()
		if got := nextChanges(t, watch); got != "10-12: MODIFIED a@12" {
			t.Errorf("before: %s", got)
		}
		database.current.Store(later)
		if got := nextChanges(t, watch) + nextChanges(t, watch); got != "12-15: DELETED b@1515-20: ADDED c@18" {
			t.Errorf("what was read before: %s", got)
		}
		watch = mustExpire(t, source, watch,
			"the history after revision 20 was deleted by retention: it begins at revision 41", "a d", 41)
		defer watch.Close()
		got := nextChanges(t, watch)
		// e was stored three minutes after the beginning
		if took := time.Since(began); !strings.Contains(got, "ADDED e@47") || took != 6*time.Minute {
			t.Errorf("after: %s at %v", got, took)
		}
	})
}

// TestRetentionOvertakesAList refuses a moment that was deleted since it was found.
func TestRetentionOvertakesAList(t *testing.T) {
	database := past()
	database.status[1].First = at(41)
	source := opened(database).Source(history.SourceOptions{Resource: "pods", At: at(12)})
	_, err := source.List(t.Context(), keepwatch.ListRequest{})
	if failure, ok := errors.AsType[*keepwatch.Failure](err); !ok || failure.Kind != keepwatch.Expired {
		t.Error(err)
	}
}

// TestRetentionOvertakesAListInAGap lists nothing while the history begins in a gap whose end is not known yet: of the
// source's point objects are deleted.
func TestRetentionOvertakesAListInAGap(t *testing.T) {
	database := past()
	pods := &database.status[1]
	pods.First, pods.Progress.Cursor, pods.Progress.Gap = at(41), 40, keepwatch.GapExpired
	database.gaps = []sink.StoredGap{{Resource: "pods", From: 40, To: 50, Reason: keepwatch.GapExpired, Seen: minute(6)}}
	source := opened(database).Source(history.SourceOptions{Resource: "pods", At: at(12),
		Onward: true})
	page, err := source.List(t.Context(), keepwatch.ListRequest{})
	if failure, ok := errors.AsType[*keepwatch.Failure](err); !ok || failure.Kind != keepwatch.ServerError {
		t.Errorf("%d objects at %d, %v", len(page.Objects), page.Revision, err)
	}
}

// TestThinningOvertakesAReplay thins out the range that a replay has reached a part of: it does not pass over the
// rest in silence, unless it began there.
func TestThinningOvertakesAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := &changing{}
		before := thinned()
		before.gaps, before.status[0].Progress.Cursor = nil, 14
		before.states = []sink.State{state("a", 5, 12, 0, 2), state("a", 12, 0, 2, 0), state("d", 8, 0, 0, 0)}
		database.current.Store(before)
		source := opened(database).Source(history.SourceOptions{Resource: "pods", At: at(10),
			Onward: true})
		watch, err := source.Watch(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		if got := nextChanges(t, watch); got != "10-14: MODIFIED a@12" {
			t.Errorf("before: %s", got)
		}
		database.current.Store(thinned())
		watch = mustExpire(t, source, watch, "the states between revisions 11 and 18 were thinned out", "d a", 18)
		watch.Close()
		within := opened(database).Source(history.SourceOptions{Resource: "pods", At: at(14),
			Onward: true})
		if watch, err = within.Watch(t.Context(), 14); err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		if got := nextChanges(t, watch); !strings.Contains(got, "14-20: DELETED b@15") {
			t.Errorf("from within: %s", got)
		}
	})
}
