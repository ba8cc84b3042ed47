package history_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// lived are the states of four pods. IDs are the order of revisions.
func lived() *tables {
	t := &tables{
		status: []sink.Status{followed("pods", 10, 100)},
		gaps: []sink.StoredGap{{Resource: "pods", From: 40, To: 50, Reason: keepwatch.GapDowntime, Seen: minute(50),
			Began: minute(35), Ended: minute(51)}},
		states: []sink.State{
			state("old", 5, 0, 0, 0), state("a", 10, 20, 0, 20), state("b", 15, -18, 15, 18), state("a", 20, 50, 20, 50),
			state("c", 30, -60, 30, 60), state("a", 50, 0, 50, 0),
		},
	}
	t.status[0].Time = minute(70)
	for i := range t.states {
		t.states[i].ID = int64(i + 1)
	}
	return t
}

// A timeline has the changes after one moment and up to another, by object, and the times of which nothing is known.
func TestTimeline(t *testing.T) {
	for name, row := range map[string]struct {
		from, to history.Moment
		want     []string
	}{
		"everything": {history.Moment{Time: minute(-30)}, history.Moment{}, []string{
			"ns/c: ADDED 30, DELETED 60", "ns/a: EXISTED 10, MODIFIED 20, MODIFIED 50 in a gap", "ns/b: ADDED 15, DELETED 18",
			"ns/old: EXISTED 5",
			"-30 to 0: before the history", "35 to 51: downtime"}},
		"a part": {history.Moment{Time: minute(16)}, history.Moment{Time: minute(45)}, []string{
			"ns/c: ADDED 30", "ns/a: MODIFIED 20", "ns/b: DELETED 18", "35 to 45: downtime"}},
		"by revisions": {history.Moment{Revision: 15}, history.Moment{Revision: 30}, []string{"ns/c: ADDED 30",
			"ns/a: MODIFIED 20", "ns/b: DELETED 18"}},
		"nothing": {history.Moment{Time: minute(61)}, history.Moment{Time: minute(65)}, nil},
		"the future": {history.Moment{Time: minute(61)}, history.Moment{Time: minute(90)},
			[]string{"70 to 90: not known yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := history.New(lived(), history.Options{}).View(t.Context(), func(v *history.View) error {
				found, err := v.Timeline(t.Context(), history.Objects{Resource: "pods"}, row.from, row.to, 100)
				if err != nil {
					return err
				}
				for _, l := range found.Lanes {
					text := l.Key.String() + ":"
					for i, e := range l.Events {
						text += fmt.Sprintf("%s %s %d", []string{"", ","}[min(i, 1)], e.Type, e.Point.Revision)
						if e.Gap != nil {
							text += " in a gap"
						}
						if e.State.Object != nil {
							t.Errorf("%s has its object", l.Key)
						}
					}
					got = append(got, text)
				}
				for _, u := range found.Unknown {
					got = append(got, fmt.Sprintf("%v to %v: %s", u.From.Sub(began).Minutes(), u.To.Sub(began).Minutes(), u.Reason))
				}
				return nil
			})
			if err != nil || !slices.Equal(got, row.want) {
				t.Errorf("%v\n%q\nwant\n%q", err, got, row.want)
			}
		})
	}
	err := history.New(lived(), history.Options{}).View(t.Context(), func(v *history.View) error {
		one, err := v.Timeline(t.Context(), history.Objects{Resource: "pods", Name: "a"}, history.Moment{Revision: 15},
			history.Moment{Revision: 30}, 100)
		if err != nil || len(one.Lanes) != 1 || len(one.Lanes[0].Events) != 1 ||
			one.Lanes[0].Events[0].Type != history.Modified {
			t.Errorf("one object: %+v, %v", one, err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	err = history.New(lived(), history.Options{}).View(t.Context(), func(v *history.View) error {
		_, err := v.Timeline(t.Context(), history.Objects{Resource: "pods"}, history.Moment{Time: minute(-30)},
			history.Moment{}, 5)
		return err
	})
	if !errors.Is(err, history.ErrTooMany) {
		t.Error(err)
	}
}

// AtMost has the first objects of a list, and counts all.
func TestAtMost(t *testing.T) {
	database := lived()
	for i := range 50 {
		database.states = append(database.states, state(fmt.Sprintf("n%02d", 49-i), 70, 0, 65, 0))
	}
	err := history.New(database, history.Options{}).View(t.Context(), func(v *history.View) error {
		all, count, err := v.AtMost(t.Context(), history.Objects{Resource: "pods"}, at(70), 3)
		if len(all) != 3 || count != 52 || all[0].Key.Name != "a" || all[1].Key.Name != "n00" || all[2].Key.Name != "n01" {
			t.Errorf("%d of %d: %+v", len(all), count, all)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
