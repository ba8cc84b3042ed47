package past

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// severalEtcds is a history whose Events are in an etcd of their own, which has other revisions.
type severalEtcds struct{ lagging }

func (d severalEtcds) Snapshot(_ context.Context, read func(sink.Snapshot) error) error {
	return read(d)
}

func (severalEtcds) Status(context.Context) (all []sink.Status, err error) {
	for _, resource := range []string{"configmaps", "events", "secrets"} {
		s := sink.Status{
			ID: stream.Identity{Resource: resource}, Active: true, First: sink.Point{Revision: 1}, FirstSeen: clock("09:00"),
			Progress: sink.Progress{Cursor: 200, Since: 1}, Time: clock("10:30"),
		}
		if resource == "events" {
			s.Line, s.Progress.Cursor = 1, 5000
		}
		all = append(all, s)
	}
	return all, nil
}

func (severalEtcds) Types(context.Context) (all []sink.StoredType, err error) {
	for resource, kind := range map[string]string{"configmaps": "ConfigMap", "events": "Event", "secrets": "Secret"} {
		all = append(all, sink.StoredType{Resource: resource, Type: sink.Type{Version: "v1", Kind: kind, Namespaced: true}})
	}
	return all, nil
}

// PointAt knows what the etcd of Events had when the others were at 105.
func (severalEtcds) PointAt(_ context.Context, resources []string, at time.Time) (sink.Point, error) {
	if slices.Contains(resources, "events") && at.Equal(clock("10:21")) {
		return sink.Point{Revision: 4242}, nil
	}
	return sink.Point{}, errors.New("another point")
}

// A revision in the address of a moment is one of most types. What a request says itself is one of its own type.
func TestRevisionOfAnotherEtcd(t *testing.T) {
	for query, want := range map[string]sink.Point{
		"secrets": {Revision: 105}, "events": {Revision: 4242}, "events?watch=1": {Revision: 4242},
		"events?watch=1&resourceVersion=4100":                    {Revision: 4100},
		"events?resourceVersion=4100&resourceVersionMatch=Exact": {Revision: 4100},
	} {
		if found := resolveAt(t, severalEtcds{}, "revision/105", query); found.point != want {
			t.Errorf("%s: %+v, want %+v", query, found.point, want)
		}
	}
}

// widgets is a history of a custom resource without a change since 10:01, whose definition has other columns since
// 10:10 and another version since 10:20. Another type, empty, has no objects.
type widgets struct{ lagging }

func (w widgets) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(w) }

func (widgets) Status(context.Context) (all []sink.Status, err error) {
	for _, resource := range []string{definitions, "empty", "widgets"} {
		all = append(all, sink.Status{
			ID: stream.Identity{Resource: resource}, Active: true, First: sink.Point{Revision: 10}, FirstSeen: clock("10:00"),
			Progress: sink.Progress{Cursor: 200, Since: 10}, Time: clock("10:30"),
		})
	}
	return all, nil
}

func (widgets) Types(context.Context) (all []sink.StoredType, err error) {
	for _, resource := range []string{"empty", "widgets"} {
		for version, seen := range map[string]string{"v1": "10:00", "v2": "10:20"} {
			all = append(all, sink.StoredType{Resource: resource, Seen: clock(seen), Type: sink.Type{Version: version,
				Kind: "Widget", Namespaced: true}})
		}
	}
	slices.SortStableFunc(all, func(a, b sink.StoredType) int { return a.Seen.Compare(b.Seen) })
	return all, nil
}

func (widgets) rows(resource string) []sink.State {
	state := func(id int64, revision int, seen, text string) sink.State {
		return sink.State{ID: id, Resource: resource, Key: keepwatch.Key{Name: "widgets"}, UID: "1", SeenFrom: clock(seen),
			From: sink.Point{Revision: keepwatch.Revision(revision)}, Object: []byte(text)}
	}
	const definition = `{"spec":{"versions":[{"name":"v1","additionalPrinterColumns":[{"name":%q,"type":"string","jsonPath":".a"}]}]}}`
	switch resource {
	case definitions:
		former := state(1, 40, "10:01", fmt.Sprintf(definition, "Former"))
		present := state(2, 100, "10:10", fmt.Sprintf(definition, "Present"))
		former.To, former.SeenTo = &present.From, present.SeenFrom
		return []sink.State{former, present}
	case "widgets":
		return []sink.State{state(3, 51, "10:01", `{"metadata":{"name":"widgets"}}`)}
	}
	return nil
}

func (w widgets) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	return selected(w.rows(q.Resource), q, yield)
}

func (w widgets) PointAt(_ context.Context, resources []string, at time.Time) (last sink.Point, err error) {
	for _, resource := range resources {
		for _, s := range w.rows(resource) {
			if !s.SeenFrom.After(at) && last.Before(s.From) {
				last = s.From
			}
		}
	}
	return last, nil
}

func (w widgets) SeenAt(_ context.Context, resources []string, at sink.Point) (last time.Time, err error) {
	for _, resource := range resources {
		for _, s := range w.rows(resource) {
			if !at.Before(s.From) && s.SeenFrom.After(last) {
				last = s.SeenFrom
			}
		}
	}
	return last, nil
}

// Types that share revisions are read at one revision, that of the last change of any of them, with the columns of
// then.
func TestSeveralTypesAtOneTime(t *testing.T) {
	for _, row := range []struct {
		moment, columns string
		point           keepwatch.Revision
	}{
		{"2026-11-28T10:05:00Z", "Former", 51}, {"2026-11-28T10:15:00Z", "Present", 100},
		{"revision/90", "Former", 90}, {"revision/110", "Present", 110},
	} {
		for _, resource := range []string{"widgets", "empty"} {
			found := resolveAt(t, widgets{}, row.moment, resource)
			if found.point.Revision != row.point {
				t.Errorf("%s at %s: %+v, want %d", resource, row.moment, found.point, row.point)
			}
			if resource == "widgets" && !strings.Contains(string(found.table), row.columns) {
				t.Errorf("%s: columns %s, want %s", row.moment, found.table, row.columns)
			}
		}
	}
}

// A watch of a type that has no objects, or has not changed, begins at a moment before the type has changed, and
// continues behind that.
func TestTypeOfAWatch(t *testing.T) {
	for _, query := range []string{"empty", "widgets", "empty?watch=1", "empty?watch=1&resourceVersion=51",
		"empty?watch=1&resourceVersion=52", "widgets?watch=1&resourceVersion=51", "widgets?watch=1&resourceVersion=190"} {
		if found := resolveAt(t, widgets{}, "2026-11-28T10:05:00Z", query); found.typ.Version != "v1" {
			t.Errorf("%s: %+v", query, found.typ)
		}
	}
	for moment, want := range map[string]time.Time{
		"2026-11-28T10:05:00Z": clock("10:05"), "2026-11-28T10:15:00Z": clock("10:15"),
		"revision/90": clock("10:01"), "revision/110": clock("10:10"),
	} {
		if found := resolveAt(t, widgets{}, moment, "widgets?watch=1"); !found.time.Equal(want) {
			t.Errorf("a replay at %s begins at %v, want %v", moment, found.time, want)
		}
	}
}

// typed is a history that has a type of its own only since a time, or none, and then has to derive it from objects.
type typed struct {
	lagging
	seen string
}

func (d typed) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(d) }

func (d typed) Types(ctx context.Context) ([]sink.StoredType, error) {
	all, err := d.lagging.Types(ctx)
	if d.seen == "" {
		return nil, err
	}
	all[0].Seen = clock(d.seen)
	return all, err
}

func (typed) Example(context.Context, string) (*sink.State, error) { return &laggingStates[0], nil }

// The header of a moment says if the type is not known to be that of the moment.
func TestTypeThatIsNotOfTheMoment(t *testing.T) {
	for seen, want := range map[string]string{"10:00": "", "10:20": "", "10:25": ", type=later", "": ", type=assumed"} {
		found := resolveAt(t, typed{seen: seen}, "2026-11-28T10:20:00Z", "secrets")
		if got := found.header(); got != "revision=101, time=2026-11-28T10:20:00Z"+want {
			t.Errorf("since %q: %s", seen, got)
		}
	}
}

// resolveAt returns what a request is for.
func resolveAt(t *testing.T, database history.Database, moment, query string) *resolved {
	t.Helper()
	tables, err := newTables()
	if err != nil {
		t.Fatal(err)
	}
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	s := &Server{config: Config{History: history.New(database, history.Options{})}, tables: tables}
	q := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/"+query, nil)
	info, err := infos.NewRequestInfo(q)
	if err != nil {
		t.Fatal(err)
	}
	m, err := history.ParseMoment(moment, clock("10:40"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.resolve(q, info, &momentPath{moment: m})
	if err != nil {
		t.Fatalf("%s, %s: %v", moment, query, err)
	}
	return found
}
