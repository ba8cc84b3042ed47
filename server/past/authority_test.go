package past

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// lagging is a history whose sync did not run from 10:00 to 10:20, and then continued its watch: it has no gap. A
// namespace shop was deleted meanwhile, and another one created.
type lagging struct{}

func clock(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, "2026-11-28T"+text+":00Z")
	return at
}

var laggingStates = []sink.State{
	{
		ID: 1, Resource: "secrets", Key: keepwatch.Key{Namespace: "shop", Name: "former"}, UID: "1",
		From:     sink.Point{Revision: 5},
		SeenFrom: clock("10:00"), To: &sink.Point{Revision: 105}, SeenTo: clock("10:21"), Deleted: true,
		Object: []byte(
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"former","namespace":"shop","creationTimestamp":"2026-11-28T09:00:00Z"}}`),
	},
	{
		ID: 2, Resource: "secrets", Key: keepwatch.Key{Namespace: "other", Name: "o"}, UID: "2",
		From: sink.Point{Revision: 101}, SeenFrom: clock("10:20"),
		Object: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"o","namespace":"other"}}`),
	},
	{ // by an API server whose clock is slow
		ID: 3, Resource: "secrets", Key: keepwatch.Key{Namespace: "shop", Name: "present"}, UID: "3",
		From: sink.Point{Revision: 110}, SeenFrom: clock("10:22"),
		Object: []byte(
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"present","namespace":"shop","creationTimestamp":"2026-11-28T10:05:59Z"}}`),
	},
}

func (lagging) Close() error { return nil }

func (l lagging) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(l) }

func (lagging) Status(context.Context) ([]sink.Status, error) {
	return []sink.Status{{
		ID: stream.Identity{Resource: "secrets"}, Active: true, First: sink.Point{Revision: 10}, FirstSeen: clock("10:00"),
		Progress: sink.Progress{Cursor: 200, Since: 10}, Time: clock("10:30"),
	}}, nil
}

func (lagging) Gaps(context.Context) ([]sink.StoredGap, error) { return nil, nil }

func (lagging) Types(context.Context) ([]sink.StoredType, error) {
	return []sink.StoredType{{Resource: "secrets", Type: sink.Type{Version: "v1", Kind: "Secret", Namespaced: true}}}, nil
}

func (lagging) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	return selected(laggingStates, q, yield)
}

// selected calls yield with the states that a query selects.
func selected(all []sink.State, q sink.StateQuery, yield func(sink.State) error) error {
	for _, s := range all {
		within := func(p *sink.Point) bool { return p != nil && q.After.Before(*p) && !q.UpTo.Before(*p) }
		switch {
		case q.Namespace != "" && q.Namespace != s.Key.Namespace, q.Name != "" && q.Name != s.Key.Name:
		case q.At != nil && !isValid(s, *q.At), q.NotAt != nil && isValid(s, *q.NotAt):
		case q.After != nil && !within(&s.From) && !within(s.To):
		default:
			if q.WithoutObjects {
				s.Object = nil
			}
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

func (lagging) Example(context.Context, string) (*sink.State, error) { return &laggingStates[0], nil }

func (lagging) PointAt(_ context.Context, _ []string, at time.Time) (last sink.Point, err error) {
	for _, s := range laggingStates {
		if !s.SeenFrom.After(at) && last.Before(s.From) {
			last = s.From
		}
		if s.To != nil && !s.SeenTo.After(at) && last.Before(*s.To) {
			last = *s.To
		}
	}
	return last, nil
}

// PointsAfter returns none: nothing is stored after the last state.
func (lagging) PointsAfter(context.Context, string, string, sink.Point, int) ([]sink.Point, error) {
	return nil, nil
}

func (lagging) SeenAt(_ context.Context, _ []string, at sink.Point) (last time.Time, err error) {
	for _, s := range laggingStates {
		if !at.Before(s.From) && s.SeenFrom.After(last) {
			last = s.SeenFrom
		}
		if s.To != nil && !at.Before(*s.To) && s.SeenTo.After(last) {
			last = s.SeenTo
		}
	}
	return last, nil
}

// liveCluster allows everything in the namespace shop, which was created at 10:06.
func liveCluster(w http.ResponseWriter, q *http.Request) {
	var answer map[string]any
	_ = json.NewDecoder(q.Body).Decode(&answer)
	switch {
	case strings.HasSuffix(q.URL.Path, "/tokenreviews"):
		answer["status"] = map[string]any{"authenticated": true,
			"user": map[string]any{"username": answer["spec"].(map[string]any)["token"]}}
	case strings.HasSuffix(q.URL.Path, "/subjectaccessreviews"):
		about := answer["spec"].(map[string]any)["resourceAttributes"].(map[string]any)
		answer["status"] = map[string]any{"allowed": about["namespace"] == "shop"}
	default:
		answer = map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "shop", "uid": "today",
			"creationTimestamp": "2026-11-28T10:06:00Z"}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// Who may read in a namespace does not see the objects of a former one of its name, also if the history has stored
// late, and with later times, that they were deleted.
func TestFormerNamespaceInAHistoryThatLags(t *testing.T) {
	cluster := httptest.NewServer(http.HandlerFunc(liveCluster))
	defer cluster.Close()
	s, err := New(Config{
		History: history.New(lagging{}, history.Options{}),
		Cluster: &rest.Config{Host: cluster.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return clock("10:30") }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	await.True(t, "the server runs", func() bool {
		s.caches.mu.Lock()
		defer s.caches.mu.Unlock()
		return s.caches.running != nil
	})
	const secrets = "/api/v1/namespaces/shop/secrets"
	for path, want := range map[string]int{
		"/at/2026-11-28T10:03:00Z" + secrets: http.StatusForbidden, "/at/revision/90" + secrets: http.StatusForbidden,
		"/at/2026-11-28T10:15:00Z" + secrets: http.StatusForbidden, "/at/revision/101" + secrets: http.StatusForbidden,
		"/at/revision/101" + secrets + "/former": http.StatusForbidden, "/at/revision/101" + secrets +
			"?watch=1": http.StatusForbidden,
		"/at/revision/110" + secrets + "?watch=1&timeoutSeconds=1": http.StatusOK,
		"/at/revision/110" + secrets:                               http.StatusOK, "/at/now" + secrets +
			"/present": http.StatusOK,
		"/keepwatch/?type=secrets&namespace=shop&from=revision/101&to=revision/110":                 http.StatusForbidden,
		"/keepwatch/?type=secrets&namespace=shop&from=revision/108&to=revision/110":                 http.StatusOK,
		"/keepwatch/?type=secrets&namespace=shop&from=revision/108&to=revision/110&at=revision/101": http.StatusForbidden,
		"/keepwatch/?type=secrets&namespace=shop&from=revision/108&to=revision/110&at=revision/110": http.StatusOK,
	} {
		q := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		q.Header.Set("Authorization", "Bearer eve")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, q)
		if w.Code != want {
			t.Errorf("%s: %d, want %d: %s", path, w.Code, want, w.Body)
		}
	}
}
