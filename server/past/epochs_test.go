package past

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// rewound is a history of an etcd that was restored from a backup: its first epoch has the revisions 10 to 100, the
// second one, which began at 10:20, 70 to 120. Five Secrets are written at 91 to 95, one of them at 98, and all by the
// restore and at 101 to 105.
type rewound struct{ lagging }

func (r rewound) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(r) }

func (rewound) Status(context.Context) ([]sink.Status, error) {
	return []sink.Status{{
		ID: stream.Identity{Resource: "secrets"}, Active: true, First: sink.Point{Revision: 10}, FirstSeen: clock("10:00"),
		Progress: sink.Progress{Epoch: 1, Cursor: 120, Since: 70}, Time: clock("10:30"),
	}}, nil
}

func (rewound) Gaps(context.Context) ([]sink.StoredGap, error) {
	return []sink.StoredGap{{Resource: "secrets", Epoch: 1, From: 100, To: 70, Reason: keepwatch.GapRewind,
		Began: clock("10:19"), Ended: clock("10:20"), Seen: clock("10:20")}}, nil
}

func (rewound) states() (all []sink.State) {
	write := func(i int, at sink.Point, seen time.Time, until *sink.Point, untilSeen time.Time) {
		name := fmt.Sprint("s", i)
		all = append(all, sink.State{
			ID: int64(len(all) + 1), Resource: "secrets", Key: keepwatch.Key{Namespace: "shop", Name: name},
			UID: keepwatch.UID(name), From: at, SeenFrom: seen, To: until, SeenTo: untilSeen,
			Object: fmt.Appendf(nil, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop",`+
				`"creationTimestamp":"2026-11-28T09:00:00Z","resourceVersion":"%d"},"type":"epoch-%d"}`, name, at.Revision, at.Epoch),
		})
	}
	restored := sink.Point{Epoch: 1, Revision: 70}
	for i := range 5 {
		first, again := sink.Point{Revision: keepwatch.Revision(91 + i)}, sink.Point{Revision: 98}
		if i > 0 {
			write(i, first, clock("10:05"), &restored, clock("10:20"))
		} else {
			write(i, first, clock("10:05"), &again, clock("10:15"))
			write(i, again, clock("10:15"), &restored, clock("10:20"))
		}
		last := sink.Point{Epoch: 1, Revision: keepwatch.Revision(101 + i)}
		write(i, restored, clock("10:20"), &last, clock("10:25"))
		write(i, last, clock("10:25"), nil, time.Time{})
	}
	return all
}

func (r rewound) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	return selected(r.states(), q, yield)
}

// ends calls yield with the points at which states begin and end, and when they were stored.
func (r rewound) ends(yield func(at sink.Point, seen time.Time)) {
	for _, s := range r.states() {
		yield(s.From, s.SeenFrom)
		if s.To != nil {
			yield(*s.To, s.SeenTo)
		}
	}
}

func (r rewound) PointAt(_ context.Context, _ []string, at time.Time) (last sink.Point, err error) {
	r.ends(func(p sink.Point, seen time.Time) {
		if !seen.After(at) && last.Before(p) {
			last = p
		}
	})
	return last, nil
}

func (r rewound) PointsAfter(_ context.Context, _, _ string, after sink.Point,
	limit int) (all []sink.Point, err error) {
	r.ends(func(p sink.Point, _ time.Time) {
		if after.Before(p) && !slices.Contains(all, p) {
			all = append(all, p)
		}
	})
	slices.SortFunc(all, func(a, b sink.Point) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
	return all[:min(limit, len(all))], nil
}

func (r rewound) SeenAt(_ context.Context, _ []string, at sink.Point) (last time.Time, err error) {
	r.ends(func(p sink.Point, seen time.Time) {
		if !at.Before(p) && seen.After(last) {
			last = seen
		}
	})
	return last, nil
}

// The pages of a list, and what continues from it, are of the epoch of the moment in the address, and of its time.
func TestEpochOfANamedRevision(t *testing.T) {
	t.Parallel()
	s, err := New(Config{History: history.New(rewound{}, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return clock("10:40") }
	defer run(t, s)()
	get := func(moment, query string) (code int, header, body string) {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/at/"+moment+"/api/v1/secrets?"+query, nil)
		q.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, q)
		return w.Code, w.Header().Get("Keepwatch-Moment"), w.Body.String()
	}
	const before, after, end = "2026-11-28T10:10:00Z", "2026-11-28T10:22:00Z", "2026-11-28T10:30:00Z"
	const exact = "resourceVersionMatch=Exact&resourceVersion="
	for _, row := range []struct{ moment, query, want, header string }{
		{before, "limit=2", "epoch-0", "revision=95, time=2026-11-28T10:10:00Z"},
		{after, "limit=2", "epoch-1", "revision=70, epoch=1, time=2026-11-28T10:22:00Z"},
		{end, "limit=2", "epoch-1", "revision=120, epoch=1, time=2026-11-28T10:30:00Z"},
		{before, exact + "98&limit=2", "epoch-0", "revision=98, time=2026-11-28T10:15:00Z"},
		{before, exact + "110&limit=2", "epoch-1", "revision=110, epoch=1, time=2026-11-28T10:25:00Z"},
		{end, exact + "99&limit=2", "epoch-1", "revision=99, epoch=1, time=2026-11-28T10:20:00Z"},
		{"now", exact + "99&limit=2", "epoch-1", "revision=99, epoch=1, time=2026-11-28T10:20:00Z"},
	} {
		for query, page := row.query, 1; query != ""; page++ {
			code, header, body := get(row.moment, query)
			var list struct {
				Metadata struct{ Continue string }
				Items    []struct{ Type string }
			}
			if err := json.Unmarshal([]byte(body), &list); code != http.StatusOK || err != nil || header != row.header {
				t.Fatalf("%s, %s, page %d: %d %q %v %s, want %q", row.moment, row.query, page, code, header, err, body, row.header)
			}
			for _, o := range list.Items {
				if o.Type != row.want {
					t.Errorf("%s, %s, page %d has a state of %s", row.moment, row.query, page, o.Type)
				}
			}
			query = ""
			if list.Metadata.Continue != "" {
				query = "limit=2&continue=" + url.QueryEscape(list.Metadata.Continue)
			}
			if want := 3; query == "" && page != want {
				t.Errorf("%s, %s: %d pages", row.moment, row.query, page)
			}
		}
	}
	// A token of the first epoch, whose revision is also in the second one, at a moment that has moved into that.
	_, _, body := get(before, exact+"98&limit=2")
	var list struct{ Metadata struct{ Continue string } }
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	token := "limit=2&continue=" + url.QueryEscape(list.Metadata.Continue)
	if code, _, body := get(after, token); code != http.StatusGone || !strings.Contains(body, "before or after a restore from a backup") {
		t.Errorf("a page of two epochs: %d %s", code, body)
	}
	if code, header, _ := get(end, token); code != http.StatusOK || !strings.Contains(header, "epoch=1") {
		t.Errorf("a page of the second epoch: %d %s", code, header)
	}
}

// A watch continues in the epoch of the moment in the address.
func TestWatchOfANamedRevision(t *testing.T) {
	t.Parallel()
	for moment, want := range map[string]sink.Point{
		"2026-11-28T10:10:00Z": {Revision: 95}, "2026-11-28T10:30:00Z": {Epoch: 1, Revision: 95}, "now": {Epoch: 1, Revision: 95},
	} {
		if at := resolveAt(t, rewound{}, moment, "secrets?watch=1&resourceVersion=95").point; at != want {
			t.Errorf("%s: %+v, want %+v", moment, at, want)
		}
	}
}

// unavailable is a database that cannot be read once it is lost.
type unavailable struct {
	churn
	lost *atomic.Bool
}

func (u unavailable) Snapshot(ctx context.Context, read func(sink.Snapshot) error) error {
	if u.lost.Load() {
		return sink.Unavailablef("not now")
	}
	return u.churn.Snapshot(ctx, read)
}

// A history that cannot be read now may be read later, which is what 503 says, also of moments in memory. Open watches
// end, so that their clients receive the reason.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	c := newChurn()
	c.put("a", 11, 0)
	*c.cursor = 45
	u := unavailable{c, new(atomic.Bool)}
	s, err := New(Config{History: history.New(u, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	answers := func(path string) *httptest.ResponseRecorder {
		w, q := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		q.Header.Set("Authorization", "Bearer x")
		s.ServeHTTP(w, q)
		return w
	}
	const list = "/at/now/api/v1/secrets"
	if w := answers(list); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+list+"?watch=1&resourceVersion=45", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer x")
	watched, err := server.Client().Do(q) // it is open when it is answered
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Body.Close()
	u.lost.Store(true)
	if body, err := io.ReadAll(watched.Body); err != nil || watched.StatusCode != http.StatusOK || len(body) > 0 {
		t.Errorf("the watch: %s %s, %v", watched.Status, body, err)
	}
	for _, path := range []string{"/at/now/apis", "/at/now/openapi/v2", list, list + "?watch=1", "/keepwatch/"} {
		if w := answers(path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "not now") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
