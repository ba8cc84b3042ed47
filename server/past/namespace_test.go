package past

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// spaced is a history of secrets and, perhaps, of namespaces: shop is the one of today since 108, as the history has
// learned late. It counts the queries for secrets with their contents.
type spaced struct {
	lagging
	queries *atomic.Int64
	reached keepwatch.Revision // of namespaces; 0: it has none
}

func (d spaced) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(d) }

func (d spaced) Status(ctx context.Context) ([]sink.Status, error) {
	all, err := d.lagging.Status(ctx)
	if d.reached > 0 {
		namespaces := all[0]
		namespaces.ID, namespaces.Progress.Cursor = stream.Identity{Resource: "namespaces"}, d.reached
		all = append([]sink.Status{namespaces}, all...)
	}
	return all, err
}

func (d spaced) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	if q.Resource == "secrets" {
		if !q.WithoutObjects {
			d.queries.Add(1)
		}
		return selected(laggingStates, q, yield)
	}
	former := sink.State{ID: 1, Resource: "namespaces", Key: keepwatch.Key{Name: "shop"}, UID: "former",
		From: sink.Point{Revision: 3}, To: &sink.Point{Revision: 106}, Deleted: true}
	present := sink.State{ID: 2, Resource: "namespaces", Key: keepwatch.Key{Name: "shop"}, UID: "today",
		From: sink.Point{Revision: 108}}
	return selected([]sink.State{former, present}, q, yield)
}

// authorized returns a server of a history of which a cluster decides, whose namespace shop is the one of today, and
// was created at 10:06.
func authorized(t *testing.T, database history.Database) (s *Server, get func(path string) int) {
	t.Helper()
	s, getAs := authorizedUsers(t, database)
	return s, func(path string) int { return getAs("eve", path) }
}

// authorizedUsers is authorized of users, whose tokens are their names.
//
// It fails if an answer for another attempt does not say when.
func authorizedUsers(t *testing.T, database history.Database) (s *Server, get func(name, path string) int) {
	t.Helper()
	cluster := httptest.NewServer(http.HandlerFunc(liveCluster))
	t.Cleanup(cluster.Close)
	s, err := New(Config{
		History: history.New(database, history.Options{}),
		Cluster: &rest.Config{Host: cluster.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time { return clock("10:30") }
	t.Cleanup(run(t, s))
	return s, func(name, path string) int {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		q.Header.Set("Authorization", "Bearer "+name)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, q)
		if later := w.Code == http.StatusTooManyRequests; later != (w.Header().Get("Retry-After") != "") &&
			w.Code != http.StatusGatewayTimeout {
			t.Errorf("%s: %d with the header %v", path, w.Code, w.Header())
		}
		return w.Code
	}
}

// A history of namespaces knows by their UIDs whether one is that of then, and looks for no old objects.
func TestNamespaceOfThen(t *testing.T) {
	t.Parallel()
	const secrets = "/api/v1/namespaces/shop/secrets"
	for _, reached := range []keepwatch.Revision{200, 150} {
		database := spaced{queries: &atomic.Int64{}, reached: reached}
		_, get := authorized(t, database)
		for path, want := range map[string]int{
			"/at/2026-11-28T10:03:00Z" + secrets: http.StatusForbidden, "/at/revision/107" + secrets: http.StatusForbidden,
			"/at/revision/101" + secrets + "/former":                                    http.StatusForbidden,
			"/at/revision/107" + secrets + "?watch=1":                                   http.StatusForbidden,
			"/keepwatch/?type=secrets&namespace=shop&from=revision/101&to=revision/110": http.StatusForbidden,
		} {
			if code := get(path); code != want || database.queries.Load() != 0 {
				t.Errorf("%s: %d, want %d; %d queries for secrets", path, code, want, database.queries.Load())
			}
		}
		for path, want := range map[string]int{
			"/at/revision/108" + secrets + "?watch=1&timeoutSeconds=1":                  http.StatusOK,
			"/at/revision/108" + secrets:                                                http.StatusOK,
			"/at/now" + secrets + "/present":                                            http.StatusOK,
			"/keepwatch/?type=secrets&namespace=shop&from=revision/108&to=revision/110": http.StatusOK,
		} {
			if code := get(path); code != want {
				t.Errorf("%s: %d, want %d", path, code, want)
			}
		}
	}
}

// Without namespaces in the history, the oldest objects are looked for once for each point, and by few reads at a time.
func TestOldestObjectsAreRemembered(t *testing.T) {
	t.Parallel()
	database := spaced{queries: &atomic.Int64{}}
	s, get := authorized(t, database)
	const secrets = "/api/v1/namespaces/shop/secrets"
	const page = "/keepwatch/?type=secrets&namespace=shop&from=revision/108&to=revision/110"
	var before int64
	for i := range 3 {
		if code := get("/at/revision/110" + secrets); code != http.StatusOK {
			t.Errorf("%d", code)
		}
		if n := database.queries.Load(); i == 0 {
			before = n
		} else if n != before {
			t.Errorf("%d queries for secrets by the same list", n-before)
		}
	}
	for range creationReads {
		s.creations.turns <- struct{}{}
	}
	if code := get(page); code != http.StatusTooManyRequests {
		t.Errorf("the page beside other reads: %d", code)
	}
	ended := make(chan int)
	go func() { ended <- get("/at/revision/111" + secrets) }()
	for range creationReads {
		<-s.creations.turns
	}
	if code := <-ended; code != http.StatusOK {
		t.Errorf("a list after other reads: %d", code)
	}
	if code := get(page); code != http.StatusOK {
		t.Errorf("the page after other reads: %d", code)
	}
	s.caches.mu.Lock()
	s.caches.bound = 0
	s.caches.mu.Unlock()
	before = database.queries.Load()
	if code := get("/at/revision/112" + secrets + "?watch=1"); code != http.StatusTooManyRequests ||
		database.queries.Load() != before {
		t.Errorf("a watch too many: %d, and %d queries for secrets", code, database.queries.Load()-before)
	}
}

// One user's slow read for the oldest objects holds up the user's own other reads, until their deadline, and nobody
// else's.
func TestSlowReadsOfOneUser(t *testing.T) {
	t.Parallel()
	s, get := authorizedUsers(t, spaced{queries: &atomic.Int64{}})
	const secrets = "/api/v1/namespaces/shop/secrets"
	const page = "/keepwatch/?type=secrets&namespace=shop&from=revision/108&to=revision/110"
	must := func(name, path string, want int) {
		t.Helper()
		if code := get(name, path); code != want {
			t.Errorf("%s for %s: %d, want %d", path, name, code, want)
		}
	}
	end, err := s.creations.turn(t.Context(), "eve")
	if err != nil {
		t.Fatal(err)
	}
	must("bob", "/at/revision/110"+secrets, http.StatusOK)
	must("bob", page, http.StatusOK)
	must("eve", page, http.StatusTooManyRequests)
	s.requestTimeout = 50 * time.Millisecond
	if code := get("eve", "/at/revision/111"+secrets); code != http.StatusGatewayTimeout &&
		code != http.StatusServiceUnavailable { // if the cluster was not asked in this time, on a busy machine
		t.Errorf("eve's next read: %d", code)
	}
	s.requestTimeout = time.Minute
	for range creationReads - 1 { // all turns are taken
		if s.creations.tryTurn(string(rune('a'+len(s.creations.turns)))) == nil {
			t.Fatal("there are fewer turns")
		}
	}
	must("bob", page, http.StatusTooManyRequests)
	waiting, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if _, err := s.creations.turn(waiting, "bob"); err != context.Canceled {
			t.Errorf("a turn too many: %v", err)
		}
	}
	end()
	must("bob", "/at/revision/110"+secrets, http.StatusOK)
	must("eve", "/at/revision/112"+secrets, http.StatusOK)
	s.creations.mu.Lock()
	defer s.creations.mu.Unlock()
	if n := len(s.creations.users); n != creationReads-1 {
		t.Errorf("%d users have a turn, want %d", n, creationReads-1)
	}
}

// ending is a history of secrets, of which one after the other was created, that reads the contents of a few and then
// none before the deadline.
type ending struct {
	lagging
	left *atomic.Int64 // reads
}

const endingObjects = 10

func (d ending) Snapshot(_ context.Context, read func(sink.Snapshot) error) error { return read(d) }

func (d ending) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	if !q.WithoutObjects && d.left.Add(-1) < 0 {
		return context.DeadlineExceeded
	}
	var all []sink.State
	for i := range endingObjects {
		name := fmt.Sprint("s", i)
		all = append(all, sink.State{ID: int64(i), Resource: "secrets", Key: keepwatch.Key{Namespace: "shop", Name: name},
			UID: keepwatch.UID(name), From: sink.Point{Revision: keepwatch.Revision(101 + (i*7)%endingObjects)},
			Object: fmt.Appendf(nil, `{"metadata":{"creationTimestamp":"2026-11-28T09:%02d:00Z"}}`, 59-i)})
	}
	return selected(all, q, yield)
}

// A read for the oldest objects that has met its deadline goes on where it was, and finds them in the end.
func TestReadsForTheOldestGoOn(t *testing.T) {
	t.Parallel()
	database := ending{left: &atomic.Int64{}}
	creations := newCreations()
	r := &shown{of: history.Objects{Resource: "secrets", Namespace: "shop"}, from: sink.Point{Revision: 100},
		upTo: sink.Point{Revision: 120}}
	for tries := 1; ; tries++ {
		database.left.Store(2)
		var oldest time.Time
		err := history.New(database, history.Options{}).View(t.Context(), func(v *history.View) (err error) {
			oldest, err = creations.oldest(t.Context(), v, r)
			return err
		})
		if err == nil {
			if got := oldest.Format("15:04"); got != "09:50" {
				t.Errorf("the oldest is of %s", got)
			}
			return
		}
		if tries == endingObjects {
			t.Fatalf("nothing was found in %d reads: %v", tries, err)
		}
	}
}
