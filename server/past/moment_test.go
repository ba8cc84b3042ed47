package past

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

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
