package history_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// began is the minute 0 of the tables.
var began = time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)

func minute(m int) time.Time { return began.Add(time.Duration(m) * time.Minute) }

func sec(m, s int) time.Time { return minute(m).Add(time.Duration(s) * time.Second) }

// tables are a database in memory. Only rows of pods have states.
type tables struct {
	status []sink.Status
	gaps   []sink.StoredGap
	types  []sink.StoredType
	states []sink.State
	mu     sync.Mutex
	most   int // bytes of objects that a query has returned
}

func (t *tables) Close() error { return nil }

func (t *tables) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(t) }

func (t *tables) Status(context.Context) ([]sink.Status, error)    { return t.status, nil }
func (t *tables) Gaps(context.Context) ([]sink.StoredGap, error)   { return t.gaps, nil }
func (t *tables) Types(context.Context) ([]sink.StoredType, error) { return t.types, nil }

func (t *tables) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	within := func(p *sink.Point) bool { return p != nil && q.After.Before(*p) && !q.UpTo.Before(*p) }
	bytes := 0
	for _, s := range t.states {
		switch {
		case s.Resource != q.Resource, q.Namespace != "" && q.Namespace != s.Key.Namespace, q.Name != "" &&
			q.Name != s.Key.Name, q.Names != nil && (q.Namespace != s.Key.Namespace || !slices.Contains(q.Names, s.Key.Name)):
		case q.At != nil && !isValid(s, *q.At), q.NotAt != nil && isValid(s, *q.NotAt):
		case q.After != nil && !within(&s.From) && !within(s.To):
		default:
			if q.WithoutObjects {
				s.Object = nil
			}
			bytes += len(s.Object)
			t.mu.Lock()
			t.most = max(t.most, bytes)
			t.mu.Unlock()
			if err := yield(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// isValid reports whether a state is valid at a point.
func isValid(s sink.State, at sink.Point) bool {
	return !at.Before(s.From) && (s.To == nil || at.Before(*s.To))
}

func (t *tables) Example(_ context.Context, resource string) (*sink.State, error) {
	for _, s := range slices.Backward(t.states) {
		if s.Resource == resource {
			return &s, nil
		}
	}
	return nil, nil
}

func (t *tables) PointAt(_ context.Context, resources []string, at time.Time) (last sink.Point, err error) {
	for _, s := range t.states {
		if !slices.Contains(resources, s.Resource) {
			continue
		}
		if !s.SeenFrom.After(at) && last.Before(s.From) {
			last = s.From
		}
		if s.To != nil && !s.SeenTo.After(at) && last.Before(*s.To) {
			last = *s.To
		}
	}
	return last, nil
}

func (t *tables) PointsAfter(_ context.Context, resource, _ string, after sink.Point,
	limit int) (all []sink.Point, err error) {
	for _, s := range t.states {
		if s.Resource == resource && after.Before(s.From) {
			all = append(all, s.From)
		}
		if s.Resource == resource && s.To != nil && after.Before(*s.To) {
			all = append(all, *s.To)
		}
	}
	slices.SortFunc(all, func(a, b sink.Point) int { return int(a.Revision) - int(b.Revision) + 1000*(a.Epoch-b.Epoch) })
	all = slices.Compact(all)
	return all[:min(limit, len(all))], nil
}

func (t *tables) SeenAt(_ context.Context, resources []string, at sink.Point) (last time.Time, err error) {
	for _, s := range t.states {
		if slices.Contains(resources, s.Resource) && !at.Before(s.From) && s.SeenFrom.After(last) {
			last = s.SeenFrom
		}
		if slices.Contains(resources, s.Resource) && s.To != nil && !at.Before(*s.To) && s.SeenTo.After(last) {
			last = s.SeenTo
		}
	}
	return last, nil
}

// state returns a state of a pod whose UID is its name's first letter. to 0 is the current state, a negative one a
// deletion.
func state(name string, from, to int, seenFrom, seenTo int) sink.State {
	s := sink.State{
		Resource: "pods", Key: keepwatch.Key{Namespace: "ns", Name: name}, UID: keepwatch.UID(name), From: at(from),
		SeenFrom: minute(seenFrom),
		Object: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"resourceVersion":"%d"}}`, name,
			from),
	}
	if to != 0 {
		end := at(max(to, -to))
		s.To, s.SeenTo, s.Deleted = &end, minute(seenTo), to < 0
	}
	return s
}

func at(revision int) sink.Point { return sink.Point{Revision: keepwatch.Revision(revision)} }

// past is a history with a gap from 20 to 30: the first list at 10 has a and b; a changes at 12 and 25, b is deleted
// at 15, and c at 30, after it was added at 18. d is added at 40.
func past() *tables {
	states := []sink.State{
		state("a", 5, 12, 0, 1), state("b", 7, -15, 0, 2), state("a", 12, 25, 1, 5), state("c", 18, -30, 3, 5),
		state("a", 25, 0, 5, 0),
		state("d", 40, 0, 6, 0),
	}
	for i := range states {
		states[i].ID = int64(i) + 1
	}
	return &tables{
		states: states,
		gaps: []sink.StoredGap{
			{Resource: "pods", From: 20, To: 28, Reason: keepwatch.GapExpired, Seen: minute(4), Began: sec(3, 40),
				Ended: minute(5)},
			// started over
			{Resource: "pods", From: 20, To: 30, Reason: keepwatch.GapExpired, Seen: minute(5), Began: minute(4),
				Ended: minute(5)},
		},
		status: []sink.Status{
			{
				ID: stream.Identity{Resource: "configmaps", Namespace: "shop"}, Active: true, First: at(10), FirstSeen: minute(0),
				Progress: sink.Progress{Cursor: 41, Since: 10}, Time: minute(7),
			},
			{
				ID: stream.Identity{Resource: "pods"}, Active: true, First: at(10), FirstSeen: minute(0),
				Progress: sink.Progress{Cursor: 45, Since: 30}, Time: minute(8),
			},
		},
	}
}

// opened returns the history of a database whose newest times are not in the future, whatever the clock says.
func opened(database history.Database) *history.History {
	h := history.New(database, history.Options{})
	history.SetNow(h, minute(24*60))
	return h
}

// view reads a history.
func view(t *testing.T, database history.Database, read func(v *history.View)) {
	t.Helper()
	err := opened(database).View(t.Context(), func(v *history.View) error {
		read(v)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func streamOf(t *testing.T, v *history.View, resource string) sink.Status {
	t.Helper()
	s, err := v.StreamOf(resource, "shop")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPoints finds the point of a moment, or says why there is none, with the nearest ones.
func TestPoints(t *testing.T) {
	view(t, past(), func(v *history.View) {
		pods, maps := streamOf(t, v, "pods"), streamOf(t, v, "configmaps")
		for name, row := range map[string]struct {
			moment  history.Moment
			streams []sink.Status
			want    string
		}{
			"the first list":       {history.Moment{Time: minute(0)}, []sink.Status{pods}, "10"},
			"an event":             {history.Moment{Time: minute(1)}, []sink.Status{pods}, "12"},
			"between events":       {history.Moment{Time: minute(2).Add(time.Second)}, []sink.Status{pods}, "15"},
			"after the gap":        {history.Moment{Time: minute(5)}, []sink.Status{pods}, "30"},
			"the last transaction": {history.Moment{Time: minute(8)}, []sink.Status{pods}, "45"},
			"a revision":           {history.Moment{Revision: 17}, []sink.Status{pods}, "17"},
			"the ends of the gap":  {history.Moment{Revision: 20}, []sink.Status{pods}, "20"},
			"its other end":        {history.Moment{Revision: 30}, []sink.Status{pods}, "30"},
			"now":                  {history.Moment{}, []sink.Status{pods}, "45"},
			"two types now":        {history.Moment{}, []sink.Status{pods, maps}, "41"},
			"two types":            {history.Moment{Time: minute(6)}, []sink.Status{pods, maps}, "40"},
			"in the gap": {history.Moment{Revision: 21}, []sink.Status{pods},
				"pods: the history between revisions 20 and 30 is missing (expired); the nearest known moments are " +
					"revision 20 at 2026-11-28T10:03:00Z and revision 30 at 2026-11-28T10:05:00Z"},
			"a time before the gap": {history.Moment{Time: sec(3, 40)}, []sink.Status{pods}, "18"},
			"a time in the gap": {history.Moment{Time: sec(3, 41)}, []sink.Status{pods},
				"pods: the history between revisions 20 and 30 is missing (expired); the nearest known moments are " +
					"revision 20 at 2026-11-28T10:03:00Z and revision 30 at 2026-11-28T10:05:00Z"},
			"a time in its second list": {history.Moment{Time: sec(4, 59)}, []sink.Status{pods},
				"pods: the history between revisions 20 and 30 is missing (expired); the nearest known moments are " +
					"revision 20 at 2026-11-28T10:03:00Z and revision 30 at 2026-11-28T10:05:00Z"},
			"before the first list": {history.Moment{Time: minute(-1)}, []sink.Status{pods},
				"pods: the history begins later; the first known moment is revision 10 at 2026-11-28T10:00:00Z"},
			"after the end": {history.Moment{Time: minute(9)}, []sink.Status{pods},
				"pods: the history ends before 2026-11-28T10:09:00Z; the last known moment is revision 45 at 2026-11-28T10:08:00Z"},
			"a later revision": {history.Moment{Revision: 46}, []sink.Status{pods},
				"pods: the history ends before revision 46; the last known moment is revision 45 at 2026-11-28T10:08:00Z"},
			"one is behind": {history.Moment{Revision: 45}, []sink.Status{pods, maps},
				"configmaps: the history ends before revision 45; " +
					"the last known moment is revision 41 at 2026-11-28T10:07:00Z"},
		} {
			points, err := v.Points(t.Context(), row.moment, false, row.streams...)
			got := fmt.Sprint(err)
			if err == nil {
				got = points.Of(row.streams[0]).Revision.String()
			} else if !errors.As(err, new(*history.Unknown)) {
				t.Errorf("%s: a %T", name, err)
			}
			if got != row.want {
				t.Errorf("%s: %s, want %s", name, got, row.want)
			}
		}
		if points, err := v.Points(t.Context(), history.Moment{Revision: 21}, true, pods); err != nil ||
			points.Of(pods) != at(21) {
			t.Errorf("leniently: %v", err)
		}
	})
}

// TestPointsOf reads a type at the last change of all that share its revisions, if its state there is known.
func TestPointsOf(t *testing.T) {
	database := past()
	service := func(revision int, seen time.Time) {
		s := state("s", revision, 0, 0, 0)
		s.Resource, s.SeenFrom = "services", seen
		database.states = append(database.states, s)
	}
	service(25, sec(3, 30)) // in a gap of pods
	service(33, sec(5, 30))
	for name, row := range map[string]struct {
		moment     history.Moment
		pods, maps int
		time       time.Time
	}{
		"after another type's change":  {history.Moment{Time: sec(5, 45)}, 33, 33, sec(5, 45)},
		"before the gap":               {history.Moment{Time: sec(3, 35)}, 18, 25, sec(3, 35)},
		"where one is not known to be": {history.Moment{Time: minute(6)}, 40, 10, minute(6)},
		"a revision":                   {history.Moment{Revision: 34}, 34, 34, sec(5, 30)},
	} {
		database.status = append(past().status, sink.Status{ID: stream.Identity{Resource: "services"}, Active: true,
			First: at(10), FirstSeen: minute(0), Progress: sink.Progress{Cursor: 45, Since: 10}, Time: minute(8)})
		database.status[0].Progress.Cursor = 35 // of configmaps
		view(t, database, func(v *history.View) {
			for resource, want := range map[string]int{"pods": row.pods, "configmaps": row.maps} {
				points, err := v.PointsOf(t.Context(), row.moment, false, streamOf(t, v, resource))
				if err != nil || points.Of(streamOf(t, v, resource)) != at(want) || !points.Time.Equal(row.time) {
					t.Errorf("%s of %s: %+v, %v, want %d", name, resource, points, err, want)
				}
			}
		})
	}
}

// TestPointsOfAQuietType has the state of a type without changes at a time at which another type of the same etcd had
// none either.
func TestPointsOfAQuietType(t *testing.T) {
	database := past()
	database.status[0].Time = minute(6) // of configmaps, at revision 41
	view(t, database, func(v *history.View) {
		maps := streamOf(t, v, "configmaps")
		for _, row := range []struct {
			at   time.Time
			want string
		}{
			{sec(7, 30), "41"},
			{minute(8), "configmaps: the history ends before 2026-11-28T10:08:00Z; " +
				"the last known moment is revision 41 at 2026-11-28T10:06:00Z"}, // pods are at 45
			{minute(9), "configmaps: the history ends before 2026-11-28T10:09:00Z; " +
				"the last known moment is revision 41 at 2026-11-28T10:06:00Z"},
		} {
			points, err := v.PointsOf(t.Context(), history.Moment{Time: row.at}, false, maps)
			got := fmt.Sprint(err)
			if err == nil {
				got = points.Of(maps).Revision.String()
			}
			if got != row.want {
				t.Errorf("at %v: %s, want %s", row.at, got, row.want)
			}
		}
	})
}

// TestTypesThatLeft has a type up to its last transaction, as long as others are followed.
func TestTypesThatLeft(t *testing.T) {
	for name, row := range map[string]struct {
		moment history.Moment
		others bool
		want   string
	}{
		"while it is followed":    {history.Moment{Time: minute(7)}, true, "configmaps pods"},
		"after its last":          {history.Moment{Time: sec(7, 1)}, true, "pods"},
		"now":                     {history.Moment{}, true, "pods"},
		"now, of an old database": {history.Moment{}, false, "configmaps pods"},
	} {
		database := past()
		database.status[0].Active, database.status[1].Active = false, row.others
		for _, resource := range []string{"configmaps", "pods"} {
			database.types = append(database.types, sink.StoredType{Resource: resource, Type: sink.Type{Version: "v1", Kind: resource}})
		}
		view(t, database, func(v *history.View) {
			types, err := v.TypesAt(t.Context(), row.moment)
			var got []string
			for _, found := range types {
				got = append(got, found.Resource)
			}
			if strings.Join(got, " ") != row.want {
				t.Errorf("%s: %v, %v, want %s", name, got, err, row.want)
			}
		})
	}
}

// TestNow has the newest state of the types that are followed, and not that of one that is followed no longer, or that
// was never listed.
func TestNow(t *testing.T) {
	for name, row := range map[string]struct {
		change func(maps *sink.Status)
		want   string // of configmaps
	}{
		"followed no longer": {func(maps *sink.Status) { maps.Active = false },
			"configmaps: the history ends before revision 45; the last known moment is revision 41 at 2026-11-28T10:07:00Z"},
		"not listed": {func(maps *sink.Status) { *maps = sink.Status{ID: maps.ID, Active: true} },
			"configmaps: the first list is not complete; no moment is known yet"},
	} {
		database := past()
		row.change(&database.status[0])
		view(t, database, func(v *history.View) {
			pods, maps := streamOf(t, v, "pods"), streamOf(t, v, "configmaps")
			points, err := v.Points(t.Context(), history.Moment{}, true, maps, pods)
			if err != nil || points.Of(pods) != at(45) || !points.Time.Equal(minute(8)) {
				t.Errorf("%s: %+v, %v", name, points, err)
			}
			_, err = v.Points(t.Context(), history.Moment{}, false, maps, pods)
			unknown, ok := errors.AsType[*history.Unknown](err)
			if !ok || err.Error() != row.want || !unknown.NotFollowed(maps) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	database := past()
	view(t, database, func(v *history.View) {
		pods, maps := streamOf(t, v, "pods"), streamOf(t, v, "configmaps")
		points, err := v.Points(t.Context(), history.Moment{}, false, maps, pods)
		if err != nil || points.Of(pods) != at(41) {
			t.Fatalf("%+v, %v", points, err)
		}
		if later := points.Later(maps, pods); len(later) != 1 || later[0].ID.Resource != "pods" {
			t.Errorf("newer than what both have reached: %+v", later)
		}
		points, err = v.Points(t.Context(), history.Moment{Revision: 41}, false, maps, pods)
		if err != nil || points.Later(maps, pods) != nil {
			t.Errorf("newer than a revision: %+v, %v", points.Later(maps, pods), err)
		}
	})
	database = past()
	database.status[0].Active, database.status[1].Active = false, false // as after the last sync of others
	view(t, database, func(v *history.View) {
		points, err := v.Points(t.Context(), history.Moment{}, false, streamOf(t, v, "configmaps"))
		if err != nil || points.Of(streamOf(t, v, "configmaps")) != at(41) || !points.Time.Equal(minute(7)) {
			t.Errorf("%+v, %v", points, err)
		}
	})
}

// TestIn has the time of a revision for a type of another etcd, whose revisions are others.
func TestIn(t *testing.T) {
	database := past()
	database.status = append(database.status, sink.Status{
		ID: stream.Identity{Resource: "events"}, Line: 1, Active: true, First: at(1000), FirstSeen: minute(0),
		Progress: sink.Progress{Cursor: 1020, Since: 1000}, Time: minute(8),
	})
	event := sink.Type{Version: "v1", Kind: "Event"}
	database.types = append(database.types, sink.StoredType{Resource: "events", Type: event})
	view(t, database, func(v *history.View) {
		for m, want := range map[history.Moment]string{
			{Revision: 15}: "2026-11-28T10:02:00Z", {Time: minute(3)}: "2026-11-28T10:03:00Z", {}: "now",
			{Revision: 21}: "2026-11-28T10:03:00Z", // in a gap of pods, which is none of events
			{Revision: 46}: "pods: the history ends before revision 46; " +
				"the last known moment is revision 45 at 2026-11-28T10:08:00Z",
			{Revision: 9}: "pods: the history begins after revision 9; " +
				"the first known moment is revision 10 at 2026-11-28T10:00:00Z",
		} {
			got, err := v.In(t.Context(), m, streamOf(t, v, "events"))
			if text := got.String(); err == nil && text != want || err != nil && err.Error() != want {
				t.Errorf("%v: %s, %v, want %s", m, text, err, want)
			}
			if got, err := v.In(t.Context(), m, streamOf(t, v, "pods")); err != nil || got != m {
				t.Errorf("%v of pods: %v, %v", m, got, err)
			}
		}
		types, err := v.TypesAt(t.Context(), history.Moment{Revision: 15})
		if err != nil || !slices.ContainsFunc(types, func(of history.Type) bool { return of.Resource == "events" }) {
			t.Errorf("%+v, %v", types, err)
		}
		types, err = v.TypesAt(t.Context(), history.Moment{Revision: 9})
		if unknown, ok := errors.AsType[*history.Unknown](err); !ok || len(types) > 0 || unknown.Later == nil {
			t.Errorf("before all: %+v, %v", types, err)
		}
	})
}

// TestTimeInAGap refuses the times between the last transaction before a gap and the end of its list, also if no state
// was stored meanwhile, and only them.
func TestTimeInAGap(t *testing.T) {
	const in, out = "in the gap", "known"
	for name, row := range map[string]struct {
		gap  sink.StoredGap // from the revision 20 on; the change before was at 3 m
		open bool           // its list is not complete
		want map[time.Time]string
	}{
		"of a sync that was down": {sink.StoredGap{Began: sec(3, 30), Ended: sec(4, 30)}, false,
			map[time.Time]string{minute(3): out, sec(3, 30): out, sec(3, 31): in, sec(4, 29): in, sec(4, 30): out,
				minute(5): out}},
		"without its beginning": {sink.StoredGap{Ended: sec(4, 30)}, false,
			map[time.Time]string{minute(2): out, minute(3): out, sec(3, 1): in, sec(4, 29): in, sec(4, 30): out}},
		"without its end": {sink.StoredGap{Began: sec(3, 30)}, true,
			map[time.Time]string{sec(3, 30): out, sec(3, 31): in, sec(4, 50): in}},
		"in older tables, without its end": {sink.StoredGap{Ended: sec(4, 30)}, true,
			map[time.Time]string{minute(3): out, sec(3, 1): in, sec(4, 50): in}},
	} {
		database := past()
		row.gap.Resource, row.gap.From, row.gap.To, row.gap.Reason, row.gap.Seen = "pods", 20, 24, keepwatch.GapDowntime,
			sec(4, 30)
		database.gaps = []sink.StoredGap{row.gap}
		if row.open {
			database.status[1].Progress = sink.Progress{Cursor: 20, Since: 10, Gap: keepwatch.GapDowntime}
		}
		view(t, database, func(v *history.View) {
			for at, want := range row.want {
				_, err := v.Points(t.Context(), history.Moment{Time: at}, false, streamOf(t, v, "pods"))
				got := out
				if unknown, ok := errors.AsType[*history.Unknown](err); ok && unknown.Gap != nil && unknown.Earlier != nil &&
					(unknown.Later == nil) == row.open {
					got = in
				} else if err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("%s: %s is %s, want %s", name, at.Format("04:05"), got, want)
				}
			}
			if _, err := v.Points(t.Context(), history.Moment{Revision: 20}, false, streamOf(t, v, "pods")); err != nil {
				t.Errorf("%s: its first revision: %v", name, err)
			}
		})
	}
}

// TestRewound tells the epochs before and after a restore apart, while its list is not complete, too.
func TestRewound(t *testing.T) {
	database := past()
	database.gaps = []sink.StoredGap{{Resource: "pods", Epoch: 1, From: 45, To: 33, Reason: keepwatch.GapRewind,
		Seen: minute(9), Ended: minute(9)}}
	pods := &database.status[1]
	pods.Progress = sink.Progress{Cursor: 45, Since: 10, Epoch: 1, Gap: keepwatch.GapRewind}
	check := func(at sink.Point) string {
		var err error
		view(t, database, func(v *history.View) { err = v.Check(t.Context(), streamOf(t, v, "pods"), at) })
		if unknown, ok := errors.AsType[*history.Unknown](err); ok {
			return fmt.Sprintf("%v %v", unknown.Earlier, unknown.Later)
		}
		return fmt.Sprint(err)
	}
	const before = "2026-11-28T10:06:00Z (before a restore from a backup)" // revision/45 is one after it
	for _, row := range []struct {
		at           sink.Point
		during, done string
	}{
		{at(45), "<nil>", "<nil>"},
		{at(46), before + " <nil>", before + " revision 33 at 2026-11-28T10:06:00Z"},
		{sink.Point{Epoch: 1, Revision: 32}, before + " <nil>", before + " revision 33 at 2026-11-28T10:06:00Z"},
		{sink.Point{Epoch: 1, Revision: 33}, before + " <nil>", "<nil>"},
	} {
		pods.Progress = sink.Progress{Cursor: 45, Since: 10, Epoch: 1, Gap: keepwatch.GapRewind}
		if got := check(row.at); got != row.during {
			t.Errorf("during the list, %v: %s, want %s", row.at, got, row.during)
		}
		pods.Progress = sink.Progress{Cursor: 50, Since: 33, Epoch: 1}
		if got := check(row.at); got != row.done {
			t.Errorf("after the list, %v: %s, want %s", row.at, got, row.done)
		}
	}
	view(t, database, func(v *history.View) { // the moment that is named has that state
		moment, err := history.ParseMoment(strings.Fields(before)[0], minute(30))
		if err != nil {
			t.Fatal(err)
		}
		pods := streamOf(t, v, "pods")
		points, err := v.Points(t.Context(), moment, false, pods)
		if err != nil || points.Of(pods).Epoch != 0 || points.Of(pods).Revision > 45 {
			t.Errorf("%s: %v, %v", moment, points, err)
		}
	})
	pods.First, pods.Progress = sink.Point{}, sink.Progress{}
	if got := check(at(5)); got != "<nil> <nil>" {
		t.Errorf("before the first list: %s", got)
	}
}

// eventsOf returns the events of the pods with a name, or of all, between two points.
func eventsOf(t *testing.T, v *history.View, name string, after, upTo sink.Point) (all []history.Event) {
	t.Helper()
	for e, err := range v.Events(t.Context(), history.Objects{Resource: "pods", Name: name}, after, upTo) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestEvents orders what has happened, with the gaps.
func TestEvents(t *testing.T) {
	view(t, past(), func(v *history.View) {
		for name, want := range map[string]string{
			"": "5 EXISTED a, 7 EXISTED b, 12 MODIFIED a, 15 DELETED b, 18 ADDED c, 20 GAP, 25 MODIFIED a (gap), " +
				"30 DELETED c (gap), 40 ADDED d",
			"a": "5 EXISTED a, 12 MODIFIED a, 20 GAP, 25 MODIFIED a (gap)",
			"d": "40 ADDED d",
			"x": "",
		} {
			events := eventsOf(t, v, name, sink.Point{}, sink.Point{})
			var short []string
			for _, e := range events {
				text := fmt.Sprintf("%d %s", e.Point.Revision, e.Type)
				if e.State != nil {
					text += " " + e.State.Key.Name
				}
				if e.State != nil && e.Gap != nil {
					text += " (gap)"
				}
				if (e.Type == history.Modified) != (e.Prior != nil && e.Type != history.Deleted) {
					t.Errorf("%s: the state before is %v", text, e.Prior)
				}
				short = append(short, text)
			}
			if got := strings.Join(short, ", "); got != want {
				t.Errorf("%q: %s, want %s", name, got, want)
			}
		}
	})
}

// TestStates reads states in the order of a list, and what is between two points.
func TestStates(t *testing.T) {
	view(t, past(), func(v *history.View) {
		states, err := v.At(t.Context(), history.Objects{Resource: "pods"}, at(18))
		if err != nil || len(states) != 2 || states[0].Key.Name != "a" || states[0].From != at(12) ||
			states[1].Key.Name != "c" {
			t.Errorf("%+v, %v", states, err)
		}
		states, err = v.Between(t.Context(), history.Objects{Resource: "pods"}, at(15), at(40))
		if err != nil || len(states) != 4 {
			t.Errorf("%+v, %v", states, err)
		}
		if states, err = v.Between(t.Context(), history.Objects{Resource: "pods"}, at(15), at(15)); err != nil ||
			len(states) > 0 {
			t.Errorf("%+v, %v", states, err)
		}
		for _, row := range [][3]string{
			{"secrets", "", "the history has no secrets"},
			{"configmaps", "", "the history has configmaps of the namespace shop only"},
			{"configmaps", "bank", "the history has no configmaps of namespace bank, only of shop"},
		} {
			if _, err := v.StreamOf(row[0], row[1]); err == nil || err.Error() != row[2] {
				t.Errorf("%v, want %s", err, row[2])
			}
		}
	})
}

// TestFind finds types as kubectl does, also those that the database does not have.
func TestFind(t *testing.T) {
	database := past()
	stored := func(resource string, of sink.Type) {
		database.types = append(database.types, sink.StoredType{Resource: resource, Type: of})
		database.status = append(database.status, sink.Status{ID: stream.Identity{Resource: resource}})
	}
	stored("deployments.apps", sink.Type{Version: "v1beta1", Kind: "Deployment"})
	stored("deployments.apps", sink.Type{Version: "v1", Kind: "Deployment", Singular: "deployment",
		ShortNames: []string{"deploy"}, Namespaced: true})
	stored("events", sink.Type{Version: "v1", Kind: "Event", Singular: "event", Namespaced: true})
	stored("events.events.k8s.io", sink.Type{Version: "v1", Kind: "Event", Singular: "event", Namespaced: true})
	stored("things.a.example", sink.Type{Version: "v1", Kind: "Thing", Singular: "thing"})
	stored("things.b.example", sink.Type{Version: "v1", Kind: "Thing", Singular: "thing"})
	view(t, database, func(v *history.View) {
		for text, want := range map[string]string{
			"pods": "pods", "pod": "pods", "Pod": "pods", // of an object
			"deploy": "deployments.apps", "Deployment": "deployments.apps", "deployments.v1.apps": "deployments.apps",
			"deploy.apps": "deployments.apps",
			"events":      "events", "events.events.k8s.io": "events.events.k8s.io",
			"things.b.example": "things.b.example",
		} {
			if found, err := v.Find(t.Context(), text); err != nil || found.Resource != want {
				t.Errorf("%s: %+v, %v", text, found, err)
			}
		}
		for text, want := range map[string]string{
			"configmaps": "has no resource type", // nothing is known of them
			"deploy.x":   "has no resource type", "": "has no resource type", "deployments.v2.apps": "has no resource type",
			"things": `"things" is ambiguous: give things.a.example or things.b.example`,
		} {
			if found, err := v.Find(t.Context(), text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v, %v", text, found, err)
			}
		}
	})
}

// TestTypeAt finds a type as it was known at a time.
func TestTypeAt(t *testing.T) {
	database := past()
	begin := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	for i, version := range []string{"v1alpha1", "v1beta1", "v1"} {
		database.types = append(database.types, sink.StoredType{
			Resource: "things.example.com", Seen: begin.Add(time.Duration(i) * time.Hour), Type: sink.Type{Version: version,
				Kind: "Thing"},
		})
	}
	view(t, database, func(v *history.View) {
		for text, want := range map[string]string{"09:00": "v1alpha1", "10:00": "v1alpha1", "10:59": "v1alpha1",
			"11:00": "v1beta1", "13:00": "v1", "": "v1"} {
			var at time.Time
			if text != "" {
				at, _ = time.Parse(time.RFC3339, "2026-11-28T"+text+":00Z")
			}
			if found, err := v.TypeAt(t.Context(), "things.example.com", at); err != nil || found.Version != want {
				t.Errorf("at %s: %+v, %v, want %s", text, found, err, want)
			}
		}
	})
}

// TestParseMoment parses moments, and refuses all others.
func TestParseMoment(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 28, 11, 30, 0, 0, zone)
	for text, want := range map[string]string{
		"now": "now", "revision/4711": "revision/4711", "2026-11-28T10:00:00Z": "2026-11-28T10:00:00Z",
		"2026-11-28T10:00:00.25+02:00": "2026-11-28T08:00:00.25Z",
		"10:42":                        "2026-11-28T09:42:00Z", "11:30:00": "2026-11-28T10:30:00Z",
		"11:31": "2026-11-27T10:31:00Z",
		"-15m":  "2026-11-28T10:15:00Z",
		"-1d":   "2026-11-27T10:30:00Z", "-1d12h": "2026-11-26T22:30:00Z", "2026-11-28": "2026-11-27T23:00:00Z",
		"2026-11-28 11:00":    "2026-11-28T10:00:00Z",
		"2026-11-28T11:00:05": "2026-11-28T10:00:05Z", "-0s": "2026-11-28T10:30:00Z",
	} {
		m, err := history.ParseMoment(text, now)
		if err != nil || m.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, m, err, want)
		}
		if again, err := history.ParseMoment(m.String(), now); err != nil || !again.Time.Equal(m.Time) ||
			again.Revision != m.Revision {
			t.Errorf("%s again: %v, %v", m, again, err)
		}
	}
	for _, text := range []string{
		"", "yesterday", "25:00", "10:42:61", "-", "--1m", "-1x", "15m", "+15m", "revision/", "revision/0", "revision/-1",
		"revision/04", "revision/x", "4711",
		"2026-11-28T13:00:00Z", "0000-01-01", "0001-01-01T00:00:00Z", "-999999d", "-1e9h", "-x d", "-d",
		"revision/99999999999999999999", "2026-13-01",
	} {
		if m, err := history.ParseMoment(text, now); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is %v, %v", text, m, err)
		}
	}
}

// TestParseSpan parses durations with days, and refuses what is none, negative or too long.
func TestParseSpan(t *testing.T) {
	day := 24 * time.Hour
	for text, want := range map[string]time.Duration{"90d": 90 * day, "1d12h": 36 * time.Hour, "0.5d": day / 2,
		"12h": 12 * time.Hour, "0": 0, "0d": 0} {
		if got, err := history.ParseSpan(text); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "90", "90D", "3w", "-1s", "-1d", "1d-12h", "1d2d", "40000d", "36500d2562047h",
		"NaNd", "1e9d"} {
		if got, err := history.ParseSpan(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestOldest finds the earliest creation of objects at a point and after it, from one state of each object.
func TestOldest(t *testing.T) {
	created := func(s sink.State, id int, at string) sink.State {
		s.ID, s.Object = int64(id), fmt.Appendf(nil, `{"metadata":{"creationTimestamp":"2026-11-28T%s:00Z"},"x":%q}`, at,
			strings.Repeat("x", 1000))
		return s
	}
	database := past()
	database.states = nil
	for i := range 50 {
		database.states = append(database.states, created(state("a", 11+i, 12+i, i, i+1), 1+i, "09:00"),
			created(state("b", 31+i, 32+i, i, i+1), 100+i, "08:00"))
	}
	after := func(v *history.View, revision int) (time.Time, error) {
		oldest, reached, err := v.OldestAfter(t.Context(), pods, at(revision), at(60))
		if reached != at(60) {
			t.Errorf("after %d it was read up to %v", revision, reached)
		}
		return oldest, err
	}
	view(t, database, func(v *history.View) {
		for name, row := range map[string]struct {
			read func() (time.Time, error)
			want string
			most int
		}{
			"at":            {func() (time.Time, error) { return v.OldestAt(t.Context(), pods, at(20)) }, "09:00", 2000},
			"nothing there": {func() (time.Time, error) { return v.OldestAt(t.Context(), pods, at(5)) }, "", 0},
			"after":         {func() (time.Time, error) { return after(v, 20) }, "08:00", 4000},
			"no new ones":   {func() (time.Time, error) { return after(v, 40) }, "", 0},
		} {
			database.most = 0
			oldest, err := row.read()
			got := ""
			if !oldest.IsZero() {
				got = oldest.UTC().Format("15:04")
			}
			if err != nil || got != row.want || database.most > row.most {
				t.Errorf("%s: %q, %v, want %q; %d bytes were read", name, got, err, row.want, database.most)
			}
		}
	})
}

var pods = history.Objects{Resource: "pods"}

// A time of a day is the last one that the clock has shown, also where it is set to another time.
func TestClockThatIsSet(t *testing.T) {
	for _, row := range []struct{ zone, now, text, want string }{
		{"Europe/Berlin", "2026-10-25T00:40:00Z", "02:30", "2026-10-25T00:30:00Z"}, // the first time
		{"Europe/Berlin", "2026-10-25T01:40:00Z", "02:30", "2026-10-25T01:30:00Z"}, // the second time
		{"Europe/Berlin", "2026-10-25T01:20:00Z", "02:30", "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "2026-10-25T00:20:00Z", "02:30", "2026-10-24T00:30:00Z"},
		{"America/New_York", "2026-11-01T06:40:00Z", "01:30", "2026-11-01T06:30:00Z"},
		{"America/New_York", "2026-11-01T12:00:00Z", "01:30:05", "2026-11-01T06:30:05Z"},
		{"Europe/Berlin", "2026-03-29T02:00:00Z", "02:30", "2026-03-28T01:30:00Z"}, // the clock did not show it
		{"Europe/Berlin", "2026-03-30T00:10:00Z", "02:30", "2026-03-28T01:30:00Z"},
		{"Europe/Berlin", "2026-03-29T02:00:00Z", "03:30", "2026-03-29T01:30:00Z"},
		{"UTC", "2026-03-29T02:00:00Z", "02:00", "2026-03-29T02:00:00Z"},
	} {
		zone, err := time.LoadLocation(row.zone)
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse(time.RFC3339, row.now)
		if err != nil {
			t.Fatal(err)
		}
		m, err := history.ParseMoment(row.text, now.In(zone))
		if got := m.Time.UTC().Format(time.RFC3339); err != nil || got != row.want {
			t.Errorf("%s at %s in %s: %s, %v, want %s", row.text, row.now, row.zone, got, err, row.want)
		}
	}
}

// counted counts what is asked for the point of a time.
type counted struct {
	*tables
	asked int
}

func (c *counted) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(c) }

func (c *counted) PointAt(ctx context.Context, resources []string, at time.Time) (sink.Point, error) {
	c.asked++
	return c.tables.PointAt(ctx, resources, at)
}

// The points of a time that is over are looked for once, also by requests that come later.
func TestPointsOfATimeAreRemembered(t *testing.T) {
	c := &counted{tables: &tables{
		status: []sink.Status{{ID: stream.Identity{Resource: "pods"}, Active: true, First: at(10), FirstSeen: minute(0),
			Progress: sink.Progress{Cursor: 40, Since: 10}, Time: minute(40)}},
		states: []sink.State{state("a", 10, 20, 0, 10), state("a", 20, 0, 10, 0)},
	}}
	h := opened(c)
	for _, row := range []struct{ minute, asked int }{{15, 1}, {15, 1}, {5, 2}, {15, 2}, {40, 3}, {40, 4}} {
		err := h.View(t.Context(), func(v *history.View) error {
			_, err := v.Points(t.Context(), history.Moment{Time: minute(row.minute)}, false, streamOf(t, v, "pods"))
			return err
		})
		if err != nil || c.asked != row.asked {
			t.Errorf("minute %d: asked %d times, want %d, %v", row.minute, c.asked, row.asked, err)
		}
	}
}
