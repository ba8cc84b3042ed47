package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// jumped is a history whose clock was set a day ahead after minute 2, and back: a changes at 12, 15, 18 and 20.
func jumped() *tables {
	const day = 24 * 60
	states := []sink.State{
		state("a", 5, 12, 0, 1), state("a", 12, 15, 1, 2), state("a", 15, 18, 2, day), state("a", 18, 20, day, day),
		state("a", 20, 0, day, 0),
	}
	for i := range states {
		states[i].ID = int64(i) + 1
	}
	return &tables{states: states, status: []sink.Status{
		{ID: stream.Identity{Resource: "configmaps"}, Line: 1, Active: true, First: at(3), FirstSeen: minute(0),
			Progress: sink.Progress{Cursor: 7, Since: 3}, Time: minute(day)},
		{ID: stream.Identity{Resource: "pods"}, Active: true, First: at(10), FirstSeen: minute(0),
			Progress: sink.Progress{Cursor: 20, Since: 10}, Time: minute(day)},
	}}
}

// After the clock was ahead, no time after the last transaction before that is known, until the clock has come there.
func TestClockWasAhead(t *testing.T) {
	const ahead = "pods: the clock was ahead: times after 2026-11-28T10:02:00Z are not known; " +
		"the last known moment is revision 15 at 2026-11-28T10:02:00Z"
	for name, row := range map[string]struct {
		now    time.Time
		moment history.Moment
		want   string
	}{
		"before":                   {minute(30), history.Moment{Time: minute(1)}, "12"},
		"the last one before":      {minute(30), history.Moment{Time: minute(2)}, "15"},
		"after it":                 {minute(30), history.Moment{Time: sec(2, 1)}, ahead},
		"just now":                 {minute(30), history.Moment{Time: minute(30)}, ahead},
		"a revision":               {minute(30), history.Moment{Revision: 18}, "18"},
		"the newest state":         {minute(30), history.Moment{}, "20"},
		"more than a minute":       {minute(24*60 - 2), history.Moment{Time: minute(30)}, ahead},
		"less than a minute":       {minute(24*60 - 1), history.Moment{Time: minute(30)}, "15"},
		"the clock has come there": {minute(25 * 60), history.Moment{Time: minute(24 * 60)}, "20"},
	} {
		h := history.New(jumped(), history.Options{})
		history.SetNow(h, row.now)
		if err := h.View(t.Context(), func(v *history.View) error {
			pods := streamOf(t, v, "pods")
			for by, read := range map[string]func() (*history.Points, error){
				"Points":   func() (*history.Points, error) { return v.Points(t.Context(), row.moment, false, pods) },
				"PointsOf": func() (*history.Points, error) { return v.PointsOf(t.Context(), row.moment, false, pods) },
				"CheckAt": func() (*history.Points, error) {
					points, err := v.Points(t.Context(), row.moment, true, pods)
					if err == nil {
						err = v.CheckAt(t.Context(), pods, points)
					}
					return points, err
				},
			} {
				points, err := read()
				got := fmt.Sprint(err)
				if err == nil {
					got = points.Of(pods).Revision.String()
				}
				if got != row.want {
					t.Errorf("%s, %s: %s, want %s", name, by, got, row.want)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// What belongs together by its time only is not known at a revision whose time is that of the clock.
func TestClockWasAheadOfAnotherLine(t *testing.T) {
	h := history.New(jumped(), history.Options{})
	history.SetNow(h, minute(30))
	for revision, want := range map[int]string{
		15: "<nil>",
		18: "configmaps: the clock was ahead: times after 2026-11-28T10:02:00Z are not known; the last known moment is " +
			"revision 3 at 2026-11-28T10:02:00Z",
	} {
		if err := h.View(t.Context(), func(v *history.View) error {
			_, err := v.Points(t.Context(), history.Moment{Revision: at(revision).Revision}, false, streamOf(t, v, "pods"),
				streamOf(t, v, "configmaps"))
			if got := fmt.Sprint(err); got != want {
				t.Errorf("revision %d: %s, want %s", revision, got, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A timeline shades what is not known since.
func TestTimelineOfAClockThatWasAhead(t *testing.T) {
	h := history.New(jumped(), history.Options{})
	history.SetNow(h, minute(30))
	if err := h.View(t.Context(), func(v *history.View) error {
		line, err := v.Timeline(t.Context(), pods, history.Moment{Time: minute(1)}, history.Moment{}, 10, 10)
		if err != nil {
			return err
		}
		want := []history.Span{{From: minute(2), To: minute(24 * 60), Reason: "the clock was ahead"}}
		if !slices.Equal(line.Unknown, want) {
			t.Errorf("%v, want %v", line.Unknown, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A replay does not wait until the clock has come there: no pause was recorded.
func TestReplayOfAClockThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h := history.New(jumped(), history.Options{})
		history.SetNow(h, minute(30))
		watch, err := h.Source(history.SourceOptions{Resource: "pods", At: at(10), Onward: true, Speed: 1}).
			Watch(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		var got []string
		for reached := 10; reached < 20; {
			batch, err := watch.Next()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range batch.Changes {
				got = append(got, fmt.Sprint(c.Revision, " ", time.Since(began)))
			}
			reached = int(batch.To)
		}
		if got, want := strings.Join(got, ", "), "12 1m0s, 15 2m0s, 18 2m0s, 20 2m0s"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
