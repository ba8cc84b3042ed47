package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
			err := opened(lived()).View(t.Context(), func(v *history.View) error {
				found, err := v.Timeline(t.Context(), history.Objects{Resource: "pods"}, row.from, row.to, 100, 1000)
				if err != nil {
					return err
				}
				for _, l := range found.Lanes {
					text := l.Key.String() + ":"
					for i, run := range l.Runs {
						e := run.First
						if run.Count != 1 || run.Last.Point != e.Point {
							t.Errorf("%s: %d changes are one", l.Key, run.Count)
						}
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
	err := opened(lived()).View(t.Context(), func(v *history.View) error {
		one, err := v.Timeline(t.Context(), history.Objects{Resource: "pods", Name: "a"}, history.Moment{Revision: 15},
			history.Moment{Revision: 30}, 100, 1000)
		if err != nil || len(one.Lanes) != 1 || len(one.Lanes[0].Runs) != 1 ||
			one.Lanes[0].Runs[0].First.Type != history.Modified {
			t.Errorf("one object: %+v, %v", one, err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A timeline of many changes has the lanes that changed last, and runs of changes, the same whether its states fit into
// the memory or not.
func TestTimelineOfManyChanges(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	database := grown(r)
	view(t, database, func(v *history.View) {
		for range 10 {
			from := history.Moment{Revision: keepwatch.Revision(r.IntN(1000) + 1)}
			to := history.Moment{Revision: from.Revision + keepwatch.Revision(r.IntN(2000)+1)}
			get := func(lanes, parts, held int) *history.Timeline {
				found, err := history.TimelineOf(v, t.Context(), history.Objects{Resource: "pods"}, from, to, lanes, parts, held)
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			all := get(1000, 1_000_000, 1_000_000)
			changes := map[string]int{}
			for _, e := range eventsOf(t, v, "", all.After, all.UpTo) {
				if e.Type != history.Missing {
					changes[e.State.Key.Name]++
				}
			}
			if all.Objects != len(changes) || len(all.Lanes) != len(changes) {
				t.Fatalf("%v to %v: %d objects, %d lanes, want %d", from, to, all.Objects, len(all.Lanes), len(changes))
			}
			few := get(3, 7, 40)
			if few.Objects != all.Objects || len(few.Lanes) != min(3, len(all.Lanes)) {
				t.Fatalf("%d lanes of %d objects", len(few.Lanes), few.Objects)
			}
			if again := get(3, 7, 1_000_000); fmt.Sprintf("%+v", shape(again)) != fmt.Sprintf("%+v", shape(few)) {
				t.Fatalf("%+v\nwith all states in memory\n%+v", shape(few), shape(again))
			}
			for i, l := range few.Lanes {
				runs := all.Lanes[i].Runs
				count := 0
				for _, run := range l.Runs {
					count += run.Count
				}
				if l.Key != all.Lanes[i].Key || len(l.Runs) > 8 || count != changes[l.Key.Name] ||
					l.Runs[0].First.Point != runs[0].First.Point ||
					l.Runs[len(l.Runs)-1].Last.Point != runs[len(runs)-1].Last.Point {
					t.Fatalf("lane %d: %s with %d changes in %d runs, want %d", i, l.Key, count, len(l.Runs),
						changes[l.Key.Name])
				}
			}
		}
	})
}

// shape is what two equal timelines have in common.
func shape(t *history.Timeline) (all []string) {
	for _, l := range t.Lanes {
		for _, run := range l.Runs {
			all = append(all, fmt.Sprintf("%s %d %s %v-%s %v", l.Key, run.Count, run.First.Type, run.First.Point, run.Last.Type,
				run.Last.Point))
		}
	}
	return all
}

// AtMost has the first objects of a list, and counts all.
func TestAtMost(t *testing.T) {
	database := lived()
	for i := range 50 {
		database.states = append(database.states, state(fmt.Sprintf("n%02d", 49-i), 70, 0, 65, 0))
	}
	err := opened(database).View(t.Context(), func(v *history.View) error {
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
