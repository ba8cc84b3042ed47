package past

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// churn is a history of secrets that change at random. It may change while it is served.
type churn struct {
	lagging
	*sync.Mutex
	states *[]sink.State
	gaps   *[]sink.StoredGap
	first  *sink.Point
	cursor *keepwatch.Revision
}

func newChurn() churn {
	return churn{Mutex: &sync.Mutex{}, states: new([]sink.State), gaps: new([]sink.StoredGap),
		first: &sink.Point{Revision: 10}, cursor: new(keepwatch.Revision)}
}

func (c churn) Snapshot(_ context.Context, read func(sink.Snapshot) error) error {
	c.Lock()
	defer c.Unlock()
	return read(c)
}

func (c churn) Status(ctx context.Context) ([]sink.Status, error) {
	all, err := c.lagging.Status(ctx)
	all[0].First, all[0].Progress.Cursor = *c.first, *c.cursor
	if g := c.open(); g != nil {
		all[0].Progress.Gap = g.Reason
	}
	return all, err
}

func (c churn) Gaps(context.Context) ([]sink.StoredGap, error) { return slices.Clone(*c.gaps), nil }

func (c churn) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	return selected(*c.states, q, yield)
}

func (c churn) PointsAfter(_ context.Context, _, _ string, after sink.Point, limit int) (all []sink.Point, err error) {
	for _, s := range *c.states {
		for _, p := range []*sink.Point{&s.From, s.To} {
			if p != nil && after.Before(*p) {
				all = append(all, *p)
			}
		}
	}
	slices.SortFunc(all, func(a, b sink.Point) int { return int(a.Revision) - int(b.Revision) })
	all = slices.Compact(all)
	return all[:min(limit, len(all))], nil
}

// open returns the gap whose list is under way, nil if there is none.
func (c churn) open() *sink.StoredGap {
	if n := len(*c.gaps); n > 0 && (*c.gaps)[n-1].Ended.IsZero() {
		return &(*c.gaps)[n-1]
	}
	return nil
}

// write adds a random change at the next revision, unless a list is under way.
func (c churn) write(r *rand.Rand, names int) {
	c.Lock()
	defer c.Unlock()
	if c.open() != nil {
		return
	}
	*c.cursor++
	key := keepwatch.Key{Namespace: fmt.Sprint("ns", r.IntN(3)), Name: fmt.Sprint("s", r.IntN(names))}
	now := sink.Point{Revision: *c.cursor}
	uid := keepwatch.UID(key.String())
	deleted := false
	for i := range *c.states {
		if s := &(*c.states)[i]; s.Key == key && s.To == nil {
			uid, deleted = s.UID, r.IntN(4) == 0
			s.To, s.SeenTo, s.Deleted = &now, clock("10:00"), deleted
		}
	}
	if !deleted {
		*c.states = append(*c.states, c.state(key, uid, now, r.IntN(100_000)))
	}
}

func (c churn) state(key keepwatch.Key, uid keepwatch.UID, from sink.Point, content int) sink.State {
	object := fmt.Sprintf(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":%q,`+
		`"resourceVersion":"%d","labels":{"l":"%d"}},"data":{"content":"%s"}}`, key.Name, key.Namespace, uid, from.Revision,
		content%3, strings.Repeat("x", content%500))
	return sink.State{ID: int64(len(*c.states) + 1), Resource: "secrets", Key: key, UID: uid, From: from,
		SeenFrom: clock("10:00"), Object: []byte(object)}
}

// relist declares a gap of one revision, or ends the list that is under way: an object then has another content at an
// unchanged revision.
func (c churn) relist(r *rand.Rand) {
	c.Lock()
	defer c.Unlock()
	open := c.open()
	if open == nil {
		*c.gaps = append(*c.gaps, sink.StoredGap{Resource: "secrets", From: *c.cursor, To: *c.cursor + 1,
			Reason: keepwatch.GapExpired, Seen: clock("10:10"), Began: clock("10:10")})
		return
	}
	*c.cursor, open.Ended = open.To, clock("10:10")
	for _, i := range r.Perm(len(*c.states)) {
		s := &(*c.states)[i]
		if s.To != nil {
			continue
		}
		end := s.From
		s.To, s.SeenTo = &end, clock("10:10")
		*c.states = append(*c.states, c.state(s.Key, s.UID, end, 99_999))
		return
	}
}

// expire deletes the states that ended before a revision, as a retention does.
func (c churn) expire(before keepwatch.Revision) {
	c.Lock()
	defer c.Unlock()
	c.first.Revision = max(c.first.Revision, before)
	*c.states = slices.DeleteFunc(*c.states, func(s sink.State) bool { return s.To != nil && s.To.Revision <= before })
}

// list returns the text of a LIST.
func (c churn) list(at keepwatch.Revision, label string) string {
	c.Lock()
	defer c.Unlock()
	var valid []sink.State
	for _, s := range *c.states {
		if isValid(s, sink.Point{Revision: at}) && (label == "" || strings.Contains(string(s.Object), `"l":"`+label+`"`)) {
			valid = append(valid, s)
		}
	}
	slices.SortFunc(valid, func(a, b sink.State) int { return a.Key.Compare(b.Key) })
	var items []string
	for _, s := range valid {
		items = append(items, strings.Replace(string(s.Object), `"kind":"Secret","apiVersion":"v1",`, "", 1))
	}
	return fmt.Sprintf(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, at,
		strings.Join(items, ","))
}

// at answers a request for the secrets at a revision.
func (s *Server) at(t *testing.T, revision keepwatch.Revision, query string) *httptest.ResponseRecorder {
	t.Helper()
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
		fmt.Sprintf("/at/revision/%d/api/v1/secrets?%s", revision, query), nil)
	q.Header.Set("Authorization", "Bearer x")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, q)
	return w
}

// union returns the bytes of the objects that moments have, each once.
func (c *caches) union() (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[keepwatch.Object]bool{}
	for _, e := range c.all {
		if e.cache == nil {
			continue
		}
		for o := range e.cache.Snapshot().All() {
			if !seen[o] {
				seen[o] = true
				bytes += bytesOf(o.(*watchcache.Object))
			}
		}
	}
	return bytes
}

func (c *caches) counted() (bytes, loading int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes, c.loading
}

// A moment that was made of another one is that of a server that has read it as a whole, in whatever order moments are
// asked for, while the history grows, is listed again and expires, and moments leave the memory.
func TestMomentsOfEachOther(t *testing.T) {
	t.Parallel()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	c := newChurn()
	for *c.cursor < 300 {
		c.write(r, 60)
	}
	s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	s.caches.maxBytes = 500_000 // a few moments that share nothing
	defer run(t, s)()
	steps := 400
	if testing.Short() {
		steps = 60
	}
	for step := range steps {
		switch r.IntN(20) {
		case 0, 5:
			c.relist(r)
		case 1:
			c.expire(c.first.Revision + (*c.cursor-c.first.Revision)/keepwatch.Revision(1+r.IntN(10)))
		case 2, 3, 4:
			for range r.IntN(20) {
				c.write(r, 60)
			}
		}
		at := c.first.Revision + keepwatch.Revision(r.IntN(int(*c.cursor-c.first.Revision)+1))
		if r.IntN(3) == 0 { // near the beginning, before which nothing is known any more
			at = min(c.first.Revision+keepwatch.Revision(r.IntN(4)), *c.cursor)
		}
		label, query := "", ""
		if r.IntN(3) == 0 {
			label = fmt.Sprint(r.IntN(3))
			query = "labelSelector=l%3D" + label
		}
		w := s.at(t, at, query)
		if got, want := strings.TrimSpace(w.Body.String()), c.list(at, label); got != want {
			t.Fatalf("step %d: %d at revision %d, label %q: %s\nwant %s", step, w.Code, at, label, got, want)
		}
		if bytes, loading := s.caches.counted(); loading != 0 || bytes != s.caches.union() {
			t.Fatalf("step %d: %d bytes are counted, and %d of what is read; moments have %d", step, bytes, loading,
				s.caches.union())
		} else if bytes > s.caches.maxBytes {
			t.Fatalf("step %d: moments have %d bytes", step, bytes)
		}
	}
}

// What was read before the end of a list, which had changed the state of moments before it, is read again after it, and
// nothing is made of it.
func TestMomentsThatAListChanges(t *testing.T) {
	t.Parallel()
	c, r := newChurn(), rand.New(rand.NewPCG(5, 6))
	for *c.cursor < 300 {
		c.write(r, 60)
	}
	s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	check := func(when string, all ...keepwatch.Revision) {
		t.Helper()
		for _, at := range all {
			w := s.at(t, at, "")
			if got, want := strings.TrimSpace(w.Body.String()), c.list(at, ""); got != want {
				t.Errorf("%s: %d at revision %d: %s\nwant %s", when, w.Code, at, got, want)
			}
		}
	}
	check("before the list", 290)
	before := c.list(290, "")
	c.relist(r)
	check("while it is under way", 300)
	c.relist(r)
	if c.list(290, "") == before {
		t.Fatal("the list has changed nothing at revision 290")
	}
	check("after it", 299, 300, 290)
}

// changing is a history that changes after it was read for the first time: between the resolution of a moment and its
// load.
type changing struct {
	churn
	change func()
}

func (c changing) Snapshot(ctx context.Context, read func(sink.Snapshot) error) error {
	defer c.change()
	return c.churn.Snapshot(ctx, read)
}

// A moment that is not known any more once its state is read is refused as if it had not been known before.
func TestMomentsThatExpireWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	thin := func(c churn) {
		c.Lock()
		defer c.Unlock()
		*c.gaps = append(*c.gaps, sink.StoredGap{Resource: "secrets", From: 90, To: 110, Reason: sink.GapThinned,
			Seen: clock("10:00"), Began: clock("10:00"), Ended: clock("10:00")})
		*c.states = slices.DeleteFunc(*c.states, func(s sink.State) bool {
			return s.To != nil && s.From.Revision > 90 && s.To.Revision <= 110
		})
	}
	expire := func(c churn) { c.expire(200) }
	for name, row := range map[string]struct {
		change        func(churn)
		allowGaps     bool
		first, second int
	}{
		"expired":                       {expire, false, http.StatusGone, http.StatusGone},
		"expired, with gaps allowed":    {expire, true, http.StatusGone, http.StatusGone},
		"thinned out":                   {thin, false, http.StatusGone, http.StatusGone},
		"thinned out, and gaps allowed": {thin, true, http.StatusGone, http.StatusOK}, // with a warning
	} {
		c, r := newChurn(), rand.New(rand.NewPCG(7, 8))
		for *c.cursor < 300 {
			c.write(r, 60)
		}
		database := changing{c, sync.OnceFunc(func() { row.change(c) })}
		s, err := New(Config{History: history.New(database, history.Options{}), Token: "x", AllowGaps: row.allowGaps})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, s)
		for i, want := range []int{row.first, row.second} {
			w := s.at(t, 100, "")
			if warned := w.Header().Get("Warning") != ""; w.Code != want || warned != (want == http.StatusOK) {
				t.Errorf("%s: request %d: %d, want %d; warning %v: %.300s", name, i, w.Code, want, warned, w.Body)
			}
		}
		stop()
	}
}

// has reports whether a moment is in memory.
func (c *caches) has(at keepwatch.Revision) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.all {
		if key.mark.Point.Revision == at {
			return true
		}
	}
	return false
}

// A second moment reads what differs from the first one, in both directions, and a watch of a moment in memory reads
// nothing for its beginning.
func TestSecondMomentCostsWhatDiffers(t *testing.T) {
	t.Parallel()
	c, r := newChurn(), rand.New(rand.NewPCG(1, 2))
	for *c.cursor < 2000 {
		c.write(r, 60)
	}
	s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	read := func(at keepwatch.Revision, query string) int {
		before := statesRead(t, s)
		if w := s.at(t, at, query); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return statesRead(t, s) - before
	}
	if n := read(1000, ""); n < 100 {
		t.Errorf("the first moment reads %d states", n)
	}
	for _, at := range []keepwatch.Revision{1010, 995, 1003, 985} {
		if n := read(at, ""); n > 10 {
			t.Errorf("the moment %d reads %d states", at, n)
		}
	}
	before := statesRead(t, s)
	defer s.watch(t, 1000)()
	if n := statesRead(t, s) - before; n != 0 {
		t.Errorf("the watch reads %d states", n)
	}
	if bytes, _ := s.caches.counted(); bytes != s.caches.union() {
		t.Errorf("%d bytes are counted, moments have %d", bytes, s.caches.union())
	}
}

// watch opens a watch of the secrets at a revision, until the returned function is called.
func (s *Server) watch(t *testing.T, at keepwatch.Revision) (stop func()) {
	t.Helper()
	open := func() int {
		s.caches.mu.Lock()
		defer s.caches.mu.Unlock()
		return s.caches.replays
	}
	ctx, cancel := context.WithCancel(t.Context())
	q := httptest.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("/at/revision/%d/api/v1/secrets?watch=1", at), nil)
	q.Header.Set("Authorization", "Bearer x")
	others, ended := open(), make(chan struct{})
	go func() { defer close(ended); s.ServeHTTP(httptest.NewRecorder(), q) }()
	await.True(t, "the watch is open", func() bool { return open() == others+1 })
	return func() {
		cancel()
		<-ended
		await.True(t, "the watch has ended", func() bool { return open() == others })
	}
}

// What open watches began with takes no memory from moments, and is bounded by itself: only one watch alone may have
// more.
func TestWatchesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	c, r := newChurn(), rand.New(rand.NewPCG(9, 10))
	for *c.cursor < 2000 {
		c.write(r, 60)
	}
	s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer run(t, s)()
	stop := s.watch(t, 1000)
	s.watch(t, 1000)()
	await.True(t, "the watch is open, and its moment is not in use", func() bool {
		s.caches.mu.Lock()
		defer s.caches.mu.Unlock()
		s.caches.maxBytes = 1000 // less than what it began with
		n, _ := s.caches.inUse()
		return n == 0
	})
	for _, at := range []keepwatch.Revision{1010, 1500, 1000} {
		if w := s.at(t, at, ""); w.Code != http.StatusOK {
			t.Errorf("the moment %d beside a watch: %d %s", at, w.Code, w.Body)
		}
		if bytes, loading := s.caches.counted(); loading != 0 || bytes != s.caches.union() {
			t.Errorf("%d bytes are counted, and %d of what is read; moments have %d", bytes, loading, s.caches.union())
		}
	}
	if w := s.at(t, 1500, "watch=1&timeoutSeconds=5"); w.Code != http.StatusTooManyRequests ||
		!strings.Contains(w.Body.String(), "open watches of the past (1) have 0 MiB") {
		t.Errorf("a watch of another moment: %d %.300s", w.Code, w.Body)
	}
	stop()
	s.caches.mu.Lock()
	begun := s.caches.replayed
	s.caches.mu.Unlock()
	if begun != 0 {
		t.Errorf("%d bytes are counted without a watch", begun)
	}
	s.watch(t, 1500)()
}

// statesRead returns how many states moments have read.
func statesRead(t *testing.T, s *Server) (n int) {
	t.Helper()
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	q.Header.Set("Authorization", "Bearer x")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, q)
	_, rest, ok := strings.Cut(w.Body.String(), "\nkeepwatch_past_states_read_total ")
	if _, err := fmt.Sscan(rest, &n); !ok || err != nil {
		t.Fatalf("the metric is missing: %v", err)
	}
	return n
}

// Moments that are in use, and have all the memory, let another one wait, unless it adds few bytes, and cost none that
// is not in use its place. One alone may have more.
func TestMomentsAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	c, r := newChurn(), rand.New(rand.NewPCG(3, 4))
	for *c.cursor < 2000 {
		c.write(r, 200)
	}
	s, err := New(Config{History: history.New(c, history.Options{}), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	bound := func(bytes int64, users int) { // of the moment 1000
		s.caches.mu.Lock()
		defer s.caches.mu.Unlock()
		s.caches.maxBytes = bytes
		for key, e := range s.caches.all {
			if key.mark.Point.Revision == 1000 {
				e.inUse += users
			}
		}
	}
	defer run(t, s)()
	bound(1000, 0)
	if w := s.at(t, 1000, ""); w.Code != http.StatusOK {
		t.Fatalf("the only moment: %d %s", w.Code, w.Body)
	}
	size, _ := s.caches.counted()
	bound(maxBytes, 1)
	if w := s.at(t, 1500, ""); w.Code != http.StatusOK {
		t.Fatalf("a second moment: %d %s", w.Code, w.Body)
	}
	bound(1000, 0)
	if w := s.at(t, 2000, ""); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("another moment: %d %s", w.Code, w.Body)
	}
	for _, at := range []keepwatch.Revision{1000, 1500} {
		if w := s.at(t, at, ""); w.Code != http.StatusOK || !s.caches.has(at) {
			t.Errorf("the moment %d, which was in memory: %d %s", at, w.Code, w.Body)
		}
	}
	bound(size-1, 0) // a part of that is few
	if w := s.at(t, 1001, ""); w.Code != http.StatusOK || !s.caches.has(1500) {
		t.Errorf("a moment that adds few bytes: %d %s", w.Code, w.Body)
	}
	bound(1000, -1)
	if w := s.at(t, 2000, ""); w.Code != http.StatusOK || s.caches.has(1000) || s.caches.has(1500) {
		t.Errorf("another moment once none is in use: %d %s", w.Code, w.Body)
	}
	if bytes, loading := s.caches.counted(); loading != 0 || bytes != s.caches.union() {
		t.Errorf("%d bytes are counted, and %d of what is read; moments have %d", bytes, loading, s.caches.union())
	}
}

// The read of a moment goes on for a minute after its last request has ended, and then ends, too.
func TestReadsThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{History: history.New(stuck{tables: true}, history.Options{}), Token: "x"})
		if err != nil {
			t.Fatal(err)
		}
		defer run(t, s)()
		request := func() { // gives up after a while
			ctx, cancel := context.WithTimeout(t.Context(), loadTimeout/4)
			defer cancel()
			q := httptest.NewRequestWithContext(ctx, http.MethodGet, "/at/revision/100/api/v1/secrets", nil)
			q.Header.Set("Authorization", "Bearer x")
			s.ServeHTTP(httptest.NewRecorder(), q)
		}
		request()
		time.Sleep(loadTimeout / 2)
		request() // finds the read, which goes on for a minute after this
		time.Sleep(loadTimeout - 1)
		synctest.Wait()
		if !s.caches.has(100) {
			t.Error("the read has ended early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if s.caches.has(100) {
			t.Error("the read goes on")
		}
		s.caches.active.Wait()
	})
}
