package history_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// eventState returns a state of an Event about the Pod web, which was observed count times, last at the minute
// seenFrom.
func eventState(id int64, uid, reason string, count, from, to int, seenFrom, seenTo int) sink.State {
	s := state(uid, from, to, seenFrom, seenTo)
	s.ID, s.Resource = id, "events"
	s.Object = fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"Event","metadata":{"name":%q},"involvedObject":{"apiVersion":"v1","kind":"Pod","namespace":"ns",
		"name":"web","uid":"web"},"type":"Normal","reason":%q,"message":"m","source":{"component":"kubelet"},"firstTimestamp":%q,"lastTimestamp":%q,"count":%d}`,
		uid, reason, minute(0).Format(time.RFC3339), minute(seenFrom).Format(time.RFC3339), count)
	return s
}

// followed returns the status of a stream from the list at revision first on.
func followed(resource string, first, cursor int) sink.Status {
	return sink.Status{
		ID: stream.Identity{Resource: resource}, Line: 1, Active: true, First: at(first), FirstSeen: minute(0),
		Time:     minute(600),
		Progress: sink.Progress{Cursor: keepwatch.Revision(cursor), Since: keepwatch.Revision(first)},
	}
}

func reported(t *testing.T, database *tables, about history.About, read func(*history.View, []history.Reported)) {
	t.Helper()
	about.TTL = time.Hour
	err := opened(database).View(t.Context(), func(v *history.View) error {
		all, err := v.Reported(t.Context(), about)
		read(v, all)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var aboutWeb = history.About{Kind: "pod", Namespace: "ns", Name: "web"}

// An expiry is told apart from a deletion by the age at the end, and by the company in which an Event ends.
func TestEndingOfAnEvent(t *testing.T) {
	gap := sink.StoredGap{Resource: "events", From: 100, To: 200, Reason: keepwatch.GapExpired, Seen: minute(300)}
	for name, row := range map[string]struct {
		events []sink.State
		want   history.EndingType
		why    string
	}{
		"current": {[]sink.State{eventState(1, "a", "R", 1, 20, 0, 10, 0)}, history.Current, ""},
		"after five minutes": {[]sink.State{eventState(1, "a", "R", 1, 20, -30, 10, 15)}, history.Removed,
			"5m0s after its last change, and would have lived for 1h0m0s"},
		"after an hour": {[]sink.State{eventState(1, "a", "R", 1, 20, -30, 10, 71)}, history.Expired,
			"1h1m0s after its last change"},
		"after three hours": {[]sink.State{eventState(1, "a", "R", 1, 20, -30, 10, 190)}, history.NotJudged,
			"for longer than 1h0m0s"},
		"an hour after a change": {[]sink.State{eventState(1, "a", "R", 1, 20, 25, 10, 50), eventState(2, "a", "R", 2, 25,
			-30, 50, 110)}, history.Expired, "1h0m0s"},
		"five minutes after one": {[]sink.State{eventState(1, "a", "R", 1, 20, 25, 10, 65), eventState(2, "a", "R", 2, 25,
			-30, 65, 70)}, history.Removed, "5m0s"},
		"with others": {[]sink.State{eventState(1, "a", "R", 1, 20, -30, 10, 15), eventState(2, "b", "Other", 1,
			21, -30, 10, 15)}, history.Expired, "2 Events ended at this revision"},
		"in a gap": {[]sink.State{eventState(1, "a", "R", 1, 90, -200, 10, 300)}, history.NotJudged,
			"between revisions 100 and 200, which are missing (expired)"},
		"in a gap with others": {[]sink.State{eventState(1, "a", "R", 1, 90, -200, 10, 300), eventState(2, "b", "R", 1,
			91, -200, 10, 300)}, history.NotJudged, "which are missing"},
		"in a gap, too early":       {[]sink.State{eventState(1, "a", "R", 1, 90, -200, 290, 300)}, history.Removed, "10m0s"},
		"of the first list":         {[]sink.State{eventState(1, "a", "R", 1, 5, -30, 0, 61)}, history.Expired, "1h1m0s"},
		"deleted from a first list": {[]sink.State{eventState(1, "a", "R", 1, 5, -30, 0, 20)}, history.Removed, "20m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			database := &tables{status: []sink.Status{followed("events", 10, 500)}, gaps: []sink.StoredGap{gap},
				states: row.events}
			reported(t, database, aboutWeb, func(_ *history.View, all []history.Reported) {
				i := slices.IndexFunc(all, func(r history.Reported) bool { return r.Reason == "R" })
				if i < 0 || all[i].End.Type != row.want || !strings.Contains(all[i].End.Because, row.why) {
					t.Errorf("%+v, want %s: %s", all, row.want, row.why)
				}
			})
		})
	}
}

// An Event that was stored with the time of a clock that was ahead, as was its end, has no age.
func TestEndingOfAnEventWhileTheClockWasAhead(t *testing.T) {
	const day = 24 * 60
	database := &tables{status: []sink.Status{followed("events", 10, 500)}, states: []sink.State{
		eventState(1, "a", "Before", 1, 20, -21, 10, 15), eventState(2, "b", "Since", 1, 25, -30, day, day)}}
	database.status[0].Time = minute(day)
	h := history.New(database, history.Options{})
	for now, want := range map[int]string{
		30:  "Before deleted, Since unknown: it was stored while the clock was ahead",
		day: "Before deleted, Since deleted", // nothing shows it any more
	} {
		history.SetNow(h, minute(now))
		if err := h.View(t.Context(), func(v *history.View) error {
			about := aboutWeb
			about.TTL = time.Hour
			all, err := v.Reported(t.Context(), about)
			got := ""
			for _, r := range all {
				got += fmt.Sprintf(", %s %s", r.Reason, r.End.Type)
				if r.End.Type == history.NotJudged {
					got += ": " + r.End.Because
				}
			}
			if got = strings.TrimPrefix(got, ", "); got != want {
				t.Errorf("at minute %d: %s, want %s", now, got, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Events that say the same are one, whether one object was changed or another was created.
func TestReportedOnce(t *testing.T) {
	series := state("series", 40, 0, 40, 0)
	series.Resource, series.ID = "events", 9
	series.Object = []byte(
		`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"creationTimestamp":"2026-11-28T10:05:00Z"},"regarding":{"kind":"Pod","namespace":"ns",
		"name":"web","uid":"web"},"type":"Warning","reason":"Unhealthy","note":"n","reportingController":"x","eventTime":"2026-11-28T10:05:00.000001Z",
		"series":{"count":7,"lastObservedTime":"2026-11-28T10:40:00.000001Z"}}`)
	other := eventState(10, "other", "Back", 1, 41, 0, 41, 0)
	other.Object = []byte(strings.ReplaceAll(string(other.Object), `"kind":"Pod"`, `"kind":"Web"`))
	database := &tables{status: []sink.Status{followed("events", 10, 500)}, states: []sink.State{
		eventState(3, "b", "Back", 4, 35, 0, 35, 0), eventState(1, "a", "Back", 1, 20, 25, 10, 20), eventState(2, "a", "Back",
			3, 25, -30, 20, 25), series, other,
	}}
	reported(t, database, aboutWeb, func(_ *history.View, all []history.Reported) {
		if len(all) != 2 {
			t.Fatalf("%+v", all)
		}
		back, unhealthy := all[0], all[1]
		if back.Count != 7 || !back.First.Equal(minute(0)) || !back.Last.Equal(minute(35)) || back.State.UID != "b" ||
			back.End.Type != history.Current || back.Reporter != "kubelet" {
			t.Errorf("%+v", back)
		}
		if unhealthy.Count != 7 || unhealthy.Message != "n" || unhealthy.Reporter != "x" ||
			unhealthy.Last.Sub(unhealthy.First) < 35*time.Minute {
			t.Errorf("%+v", unhealthy)
		}
	})
	reported(t, database, history.About{Kind: "Web", Name: "web"}, func(_ *history.View, all []history.Reported) {
		if len(all) != 1 || all[0].State.UID != "other" {
			t.Errorf("another kind: %+v", all)
		}
	})
	reported(t, database, history.About{Kind: "Pod", Group: "example.com"}, func(_ *history.View, all []history.Reported) {
		if len(all) != 1 || all[0].Reason != "Unhealthy" { // which does not say its group
			t.Errorf("another group: %+v", all)
		}
	})
}

// What an Event names besides its subject makes it another one.
func TestRelatedObject(t *testing.T) {
	other := eventState(2, "b", "R", 1, 21, 0, 11, 0)
	other.Object = []byte(strings.Replace(string(other.Object), `"type":`,
		`"related":{"apiVersion":"v1","kind":"Pod","namespace":"ns","name":"other"},"type":`, 1))
	database := &tables{status: []sink.Status{followed("events", 10, 500)},
		states: []sink.State{eventState(1, "a", "R", 1, 20, 0, 10, 0), other}}
	reported(t, database, aboutWeb, func(_ *history.View, all []history.Reported) {
		if len(all) != 2 || all[0].Related != nil || all[1].Related == nil || all[1].Related.Name != "other" {
			t.Errorf("%+v", all)
		}
	})
	subject, related, err := history.Named(&other)
	if err != nil || subject.Name != "web" || related == nil || related.Name != "other" {
		t.Errorf("%+v, %+v, %v", subject, related, err)
	}
}

// An Event was written when that was stored; of one that a list has found, its own times say when.
func TestEventsWritten(t *testing.T) {
	database := &tables{status: []sink.Status{followed("events", 10, 500)},
		gaps: []sink.StoredGap{{Resource: "events", From: 100, To: 200, Reason: keepwatch.GapExpired, Seen: minute(300)}}}
	view(t, database, func(v *history.View) {
		written := v.EventsWritten(streamOf(t, v, "events"))
		for revision, want := range map[int]int{5: 7, 20: 30, 150: 7} {
			s := eventState(1, "e", "R", 1, revision, 0, 7, 0)
			s.SeenFrom = minute(30)
			if got, err := written(&s); err != nil || !got.Equal(minute(want)) {
				t.Errorf("at revision %d: %v, %v, want minute %d", revision, got, err, want)
			}
		}
	})
}

// The type of an object that an Event names is that of its group, which it need not say.
func TestTypeOfASubject(t *testing.T) {
	var all []history.Type
	for _, resource := range []string{"pods", "pods.metrics.k8s.io", "deployments.apps", "jobs.batch",
		"jobs.example.com"} {
		name, _, _ := strings.Cut(resource, ".")
		all = append(all, history.Type{Resource: resource, Type: sink.Type{Kind: strings.TrimSuffix(name, "s")}})
	}
	for text, want := range map[string]string{
		"v1 Pod": "pods", "metrics.k8s.io/v1 Pod": "pods.metrics.k8s.io", " Pod": "pods", " Deployment": "deployments.apps",
		"apps/v1beta1 Deployment": "deployments.apps", "v1 Deployment": "", " Job": "", "batch/v1 Job": "jobs.batch",
		" Widget": "",
	} {
		version, kind, _ := strings.Cut(text, " ")
		got := ""
		if found := (history.Subject{APIVersion: version, Kind: kind}).TypeIn(all); found != nil {
			got = found.Resource
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// The moment of an Event is a revision for a type that shares its revisions, also none of an earlier epoch.
func TestMomentOfAnEvent(t *testing.T) {
	event := eventState(1, "e", "R", 1, 20, 0, 10, 0)
	found := event // by a list, which is later
	found.SeenFrom = minute(30)
	bare := found // of a history of metadata
	bare.Object = []byte(`{}`)
	events, late, pods := followed("events", 2, 500), followed("events", 20, 500), followed("pods", 2, 100)
	other, restored := pods, pods
	other.Line, restored.Progress.Epoch = 2, 1
	later, laterElsewhere := followed("pods", 40, 100), followed("pods", 40, 100)
	laterElsewhere.Line, laterElsewhere.FirstSeen = 2, minute(40)
	for name, row := range map[string]struct {
		event    sink.State
		from, of sink.Status
		want     string
	}{
		"of one etcd":             {event, events, pods, "revision/20"},
		"before the history":      {event, events, later, "revision/40, late"},
		"after retention":         {event, events, laterElsewhere, "2026-11-28T10:40:00Z, late"},
		"of another etcd":         {event, events, other, "2026-11-28T10:10:00Z"},
		"after a restore":         {event, events, restored, "2026-11-28T10:10:00Z"},
		"found by a list":         {found, late, other, "2026-11-28T10:10:00Z"},
		"found, without contents": {bare, late, other, "2026-11-28T10:30:00Z"},
		"found, of one etcd":      {found, late, pods, "revision/20"},
	} {
		view(t, &tables{status: []sink.Status{row.from}}, func(v *history.View) {
			at, late, err := v.MomentOf(&row.event, row.from, row.of)
			got := at.String()
			if late {
				got += ", late"
			}
			if err != nil || got != row.want {
				t.Errorf("%s: %s, %v, want %s", name, got, err, row.want)
			}
		})
	}
}

// outline returns states without their objects.
func outline(states []sink.State) []sink.State {
	all := slices.Clone(states)
	for i := range all {
		all[i].Object = nil
	}
	return all
}

// What Events say is held without their objects, and is refused if it is too much.
func TestReportedIsBounded(t *testing.T) {
	database := &tables{status: []sink.Status{followed("events", 10, 500)}}
	for i := range 30 { // each Event is written three times
		uid, reason := fmt.Sprint("e", i), fmt.Sprint("R", i/3)
		for n := range 3 {
			s := eventState(int64(3*i+n+1), uid, reason, n+1, 20+3*i+n, 21+3*i+n, i, i)
			if n == 2 {
				s.To, s.SeenTo = nil, time.Time{}
			}
			database.states = append(database.states, s)
		}
	}
	view(t, database, func(v *history.View) {
		all, err := history.ReportedOf(v, t.Context(), aboutWeb, 10)
		if err != nil || len(all) != 10 {
			t.Fatalf("%v, %d", err, len(all))
		}
		for _, r := range all {
			if r.Count != 9 || r.State.Object != nil {
				t.Errorf("%+v", r)
			}
		}
		if _, err := history.ReportedOf(v, t.Context(), aboutWeb, 9); err == nil || !strings.Contains(err.Error(),
			"more than 9 different things") {
			t.Error(err)
		}
	})
}

// The state beside an Event is that at its revision; where it is not known to be, the doubt says why.
func TestBesideAnEvent(t *testing.T) {
	pods := []sink.State{state("web", 5, 30, 1, 30), state("web", 30, -60, 30, 60), state("web", 90, 0, 95, 0)}
	pods[2].UID = "next"
	for name, row := range map[string]struct {
		event    int // its revision, and minute
		uid      string
		line     int // of events
		found    int // the minute at which a list has found it
		revision int
		deleted  bool
		restored bool // etcd was, from a backup, after all states
		doubt    string
	}{
		"when the first list had it": {event: 8, revision: 5},
		"before a change":            {event: 29, revision: 5},
		"at a change":                {event: 30, revision: 30},
		"by the time":                {event: 35, line: 2, revision: 30},
		"by its time in a list":      {event: 35, line: 2, found: 70, revision: 30},
		"before a restore":           {event: 35, revision: 30, restored: true},
		"deleted before a restore":   {event: 70, revision: 30, deleted: true, restored: true},
		"after the deletion":         {event: 70, revision: 30, deleted: true},
		"before all states":          {event: 3, doubt: "the history begins after revision 3"},
		"in a gap":                   {event: 85, uid: "next", doubt: "between revisions 80 and 90 is missing"},
		"in a gap, by the name": {event: 85, uid: "node", revision: 30, deleted: true,
			doubt: "between revisions 80 and 90 is missing"},
		"deleted before a gap":  {event: 85, revision: 30, deleted: true},
		"not confirmed yet":     {event: 120, uid: "next", revision: 90, doubt: "the history ends before revision 120"},
		"of another object":     {event: 95, uid: "old", revision: 30, deleted: true},
		"with a UID of its own": {event: 29, uid: "node", revision: 5},
	} {
		t.Run(name, func(t *testing.T) {
			e := eventState(1, "e", "R", 1, row.event, 0, row.event, 0)
			states := slices.Clone(pods)
			for i := range states {
				states[i].ID = int64(i) + 2
			}
			if row.uid == "old" {
				states[0].UID, states[1].UID = "old", "old"
			}
			if row.uid != "" {
				e.Object = []byte(strings.ReplaceAll(string(e.Object), `"uid":"web"`, `"uid":"`+row.uid+`"`))
			}
			database := &tables{
				status: []sink.Status{followed("events", 2, 500), followed("pods", 10, 100)}, states: append(states, e),
				gaps: []sink.StoredGap{{Resource: "pods", From: 80, To: 90, Reason: keepwatch.GapDowntime, Seen: minute(95)}},
			}
			if row.line != 0 {
				database.status[0].Line = row.line
			}
			if row.found != 0 {
				database.states[len(states)].SeenFrom = minute(row.found)
				database.gaps = append(database.gaps, sink.StoredGap{Resource: "events", From: 30, To: 40,
					Reason: keepwatch.GapDowntime, Seen: minute(row.found)})
			}
			if row.restored {
				for i := range database.status {
					database.status[i].Progress.Epoch = 1
				}
				database.gaps = append(database.gaps, sink.StoredGap{Resource: "pods", Epoch: 1, From: 100, To: 40,
					Reason: keepwatch.GapRewind, Seen: minute(120)})
			}
			reported(t, database, aboutWeb, func(v *history.View, all []history.Reported) {
				b, err := v.Beside(context.Background(), &all[0], all[0].Subject, "pods", outline(states))
				if err != nil {
					t.Fatal(err)
				}
				got := keepwatch.Revision(0)
				if b.State != nil {
					got = b.State.From.Revision
					known := max(got, 10) // the history begins at 10
					if row.restored {
						known = 0
					}
					if b.At != known || b.Restored != row.restored {
						t.Errorf("known at revision %d, restored %t", b.At, b.Restored)
					}
					if !strings.Contains(string(b.State.Object), `"resourceVersion":"`+got.String()+`"`) {
						t.Errorf("the object is %s", b.State.Object)
					}
				}
				if got != keepwatch.Revision(row.revision) || b.Deleted != row.deleted || !strings.Contains(b.Doubt, row.doubt) ||
					(b.Doubt == "") != (row.doubt == "") {
					t.Errorf("revision %d, deleted %t, doubt %q, want %+v", got, b.Deleted, b.Doubt, row)
				}
			})
		})
	}
}
