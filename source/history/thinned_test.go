package history_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// thinned is a history with two ranges that were thinned out, from 11 to 18 and from 30 to 33: in the first one, states
// of a between 5 and 18 were deleted, b was deleted at 15, and c was added and deleted. d did not change. It has a gap
// from 20 to 25, and its gaps were stored in another order.
func thinned() *tables {
	states := []sink.State{
		state("a", 5, 18, 0, 8), state("b", 7, -15, 0, 5), state("d", 8, 40, 0, 30), state("c", 13, -14, 3, 4),
		state("a", 18, 33, 8, 23),
		state("a", 33, 0, 23, 0), state("d", 40, 0, 30, 0),
	}
	for i := range states {
		states[i].ID = int64(i) + 1
	}
	return &tables{
		states: states,
		gaps: []sink.StoredGap{
			{Resource: "pods", From: 20, To: 25, Reason: keepwatch.GapExpired, Seen: minute(15), Began: minute(10),
				Ended: minute(15)},
			{Resource: "pods", From: 11, To: 18, Reason: sink.GapThinned, Seen: minute(8), Began: minute(1), Ended: minute(8)},
			{Resource: "pods", From: 30, To: 33, Reason: sink.GapThinned, Seen: minute(23), Began: minute(20),
				Ended: minute(23)},
		},
		status: []sink.Status{{
			ID: stream.Identity{Resource: "pods"}, Active: true, First: at(10), FirstSeen: minute(0),
			Progress: sink.Progress{Cursor: 45, Since: 25}, Time: minute(40),
		}},
	}
}

// TestThinnedEvents shows the ranges in which an object may have changed more often, and no others, and deletions as
// they were.
func TestThinnedEvents(t *testing.T) {
	view(t, thinned(), func(v *history.View) {
		for name, want := range map[string]string{
			"a": "EXISTED 5, GAP 11 thinned, MODIFIED 18 thinned, GAP 20 expired, GAP 30 thinned, MODIFIED 33 thinned",
			"b": "EXISTED 7, DELETED 15, GAP 20 expired",
			"c": "GAP 11 thinned, ADDED 13 thinned, DELETED 14, GAP 20 expired",
			"d": "EXISTED 8, GAP 20 expired, MODIFIED 40",
		} {
			var all []string
			for _, e := range eventsOf(t, v, name, sink.Point{}, sink.Point{}) {
				text := fmt.Sprintf("%s %d", e.Type, e.Point.Revision)
				if e.Gap != nil {
					text += " " + string(e.Gap.Reason)
				}
				all = append(all, text)
			}
			if got := strings.Join(all, ", "); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	})
}

// asked counts the queries for states.
type asked struct {
	*tables
	queries int
	named   int // of them: for objects by their names
}

func (a *asked) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(a) }

func (a *asked) States(ctx context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	a.queries++
	if q.Name != "" || len(q.Names) > 0 {
		a.named++
	}
	return a.tables.States(ctx, q, yield)
}

// TestEventsAfterThinnedRanges reads nothing of the ranges that end before the events.
func TestEventsAfterThinnedRanges(t *testing.T) {
	database := &asked{tables: thinned()}
	view(t, database, func(v *history.View) {
		for e, err := range v.Events(t.Context(), history.Objects{Resource: "pods"}, at(35), sink.Point{}) {
			if err != nil || e.Point != at(40) {
				t.Errorf("%v at %v, %v", e.Type, e.Point, err)
			}
		}
	})
	if database.queries != 1 {
		t.Errorf("%d queries for the states of one part", database.queries)
	}
}

// TestThinnedMoments refuses moments in a range that was thinned out, and names the known ones.
func TestThinnedMoments(t *testing.T) {
	moved := thinned()
	moved.status[0].First, moved.status[0].FirstSeen = at(14), minute(4) // by a retention
	for name, row := range map[string]struct {
		database *tables
		moment   history.Moment
		want     string
	}{
		"before it":       {thinned(), history.Moment{Revision: 11}, "<nil>"},
		"a time before":   {thinned(), history.Moment{Time: minute(1)}, "<nil>"},
		"after it":        {thinned(), history.Moment{Revision: 18}, "<nil>"},
		"a time after it": {thinned(), history.Moment{Time: minute(8)}, "<nil>"},
		"in it": {thinned(), history.Moment{Revision: 12}, "pods: the states between revisions 11 and 18 were thinned out; " +
			"the nearest known moments are revision 11 at 2026-11-28T10:00:00Z and revision 18 at 2026-11-28T10:08:00Z"},
		"a time in it": {thinned(), history.Moment{Time: sec(1, 1)},
			"pods: the states between revisions 11 and 18 were thinned out; " +
				"the nearest known moments are revision 11 at 2026-11-28T10:00:00Z and revision 18 at 2026-11-28T10:08:00Z"},
		"before a beginning in it": {moved, history.Moment{Revision: 12}, "pods: the history begins after revision 12; " +
			"the first known moment is revision 18 at 2026-11-28T10:08:00Z"},
	} {
		view(t, row.database, func(v *history.View) {
			_, err := v.Points(t.Context(), row.moment, false, streamOf(t, v, "pods"))
			if fmt.Sprint(err) != row.want {
				t.Errorf("%s: %v, want %s", name, err, row.want)
			}
		})
	}
}

// TestBesideAnEventInAThinnedRange doubts a state only if its successor may have been deleted.
func TestBesideAnEventInAThinnedRange(t *testing.T) {
	for name, row := range map[string]struct {
		states []sink.State
		doubt  bool
	}{
		"its end is in the range":      {[]sink.State{state("web", 5, 85, 1, 40), state("web", 85, 0, 40, 0)}, true},
		"its end is behind it":         {[]sink.State{state("web", 5, 91, 1, 50), state("web", 91, 0, 50, 0)}, false},
		"it has no end":                {[]sink.State{state("web", 81, 0, 35, 0)}, false},
		"it ends by a later deletion":  {[]sink.State{state("web", 81, -86, 35, 42)}, false},
		"it has ended by a deletion":   {[]sink.State{state("web", 5, -81, 1, 35)}, false},
		"its last successor is known":  {[]sink.State{state("web", 5, 82, 1, 36), state("web", 82, 95, 36, 60)}, false},
		"it begins where it is listed": {[]sink.State{state("web", 5, 84, 1, 37), state("web", 84, 95, 37, 60)}, false},
	} {
		for i := range row.states {
			row.states[i].ID = int64(i) + 2
		}
		e := eventState(1, "e", "R", 1, 84, 0, 84, 0)
		database := &tables{
			status: []sink.Status{followed("events", 2, 500), followed("pods", 2, 100)}, states: append(row.states, e),
			gaps: []sink.StoredGap{{Resource: "pods", From: 80, To: 90, Reason: sink.GapThinned, Began: minute(30),
				Seen: minute(48), Ended: minute(48)}},
		}
		reported(t, database, aboutWeb, func(v *history.View, all []history.Reported) {
			b, err := v.Beside(t.Context(), &all[0], all[0].Subject, "pods", row.states)
			if err != nil || (b.Doubt != "") != row.doubt {
				t.Errorf("%s: doubt %q, %v", name, b.Doubt, err)
			}
		})
	}
}
