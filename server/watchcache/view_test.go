package watchcache_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// someNamespaces is a view whose set the test chooses.
type someNamespaces struct {
	agreement time.Duration

	mu       sync.Mutex
	present  *watchcache.Namespaces
	listed   *watchcache.Namespaces // by a client that resumes; nil if that is present
	replaced chan struct{}
	floor    keepwatch.Revision
}

func newView(uids map[string]keepwatch.UID) *someNamespaces {
	return &someNamespaces{present: watchcache.NewNamespaces(uids, false), replaced: make(chan struct{})}
}

func (s *someNamespaces) Namespaces() (*watchcache.Namespaces, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present, s.replaced, nil
}

func (s *someNamespaces) Resumable(from keepwatch.Revision) (listed *watchcache.Namespaces, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.listed, s.present), from >= s.floor
}

func (s *someNamespaces) Agreement() time.Duration { return s.agreement }

func (s *someNamespaces) set(uids map[string]keepwatch.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = watchcache.NewNamespaces(uids, false)
	close(s.replaced)
	s.replaced = make(chan struct{})
}

// spaces are namespaces whose names are prefixes of one another, and are in another order as keys than as names.
var spaces = []string{"a", "a-b", "ab", "a.b", "b"}

func (m *memory) putIn(namespace, name, label string) keepwatch.Revision {
	return m.writeAt(keepwatch.Key{Namespace: namespace, Name: name}, fmt.Appendf(nil,
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":%q,"name":%q,"labels":{"l":%q}}}`, namespace,
		name, label))
}

// unionOf lists some namespaces one by one, and returns the keys with their revisions, in the order of keys: the dumb
// twin of a view.
func (r *rig) unionOf(within *watchcache.Namespaces, o apistorage.ListOptions) (all []string) {
	r.t.Helper()
	o.Recursive = true
	var objects []keepwatch.Object
	for _, namespace := range spaces {
		if !within.Has(namespace) {
			continue
		}
		result, err := r.List(r.t.Context(), "/widgets/"+namespace+"/", o)
		if err != nil {
			r.t.Fatal(err)
		}
		objects = slices.AppendSeq(objects, result.All())
	}
	slices.SortFunc(objects, func(a, b keepwatch.Object) int { return cmp.Compare(a.Key().String(), b.Key().String()) })
	for _, o := range objects {
		all = append(all, fmt.Sprintf("%s@%d", o.Key(), o.Revision()))
	}
	return all
}

// listIn reads all pages of a list of a view.
func (r *rig) listIn(within *watchcache.Namespaces, o apistorage.ListOptions) (all []string) {
	r.t.Helper()
	o.Recursive = true
	for {
		result, err := r.ListIn(r.t.Context(), "/widgets/", o, within)
		if err != nil {
			r.t.Fatal(err)
		}
		for o := range result.All() {
			all = append(all, fmt.Sprintf("%s@%d", o.Key(), o.Revision()))
		}
		if result.Continue == "" {
			return all
		}
		o.Predicate.Continue = result.Continue
	}
}

func someOf(random *rand.Rand) map[string]keepwatch.UID {
	uids := map[string]keepwatch.UID{}
	for _, namespace := range spaces {
		if random.IntN(2) == 0 {
			uids[namespace] = keepwatch.UID(fmt.Sprint(random.IntN(2)))
		}
	}
	return uids
}

// A list of a view is the union of the lists of its namespaces, in key order, in pages of any size, with and without a
// selector.
func TestListOfView(t *testing.T) {
	r := newRig(t, store.Options{})
	random := rand.New(rand.NewPCG(44, 1))
	for i := range 300 {
		r.source.putIn(spaces[random.IntN(len(spaces))], fmt.Sprint("w", random.IntN(100)), fmt.Sprint(i%2))
	}
	for range 50 {
		within := watchcache.NewNamespaces(someOf(random), false)
		for _, o := range []apistorage.ListOptions{everything, withLabel("1")} {
			want := r.unionOf(within, o)
			o.Predicate.Limit = random.Int64N(20)
			if got := r.listIn(within, o); !slices.Equal(got, want) {
				t.Fatalf("of %v in pages of %d: %v, want %v", within.Names(), o.Predicate.Limit, got, want)
			}
			all := r.unionOf(within, everything)
			if n := r.Cost("", within, o.Predicate); n != int64(len(all)) {
				t.Fatalf("of %v: a list looks at %d objects of %d", within.Names(), n, len(all))
			}
		}
	}
}

// shownTo is the cache of a client that follows a view.
type shownTo struct {
	objects map[string]string // key@revision by key
	allowed func(namespace string) bool
	t       *testing.T
}

func (s *shownTo) add(e watchcache.Event) {
	s.t.Helper()
	if e.Type == watch.Bookmark {
		return
	}
	key := e.Object.Key()
	_, known := s.objects[key.String()]
	switch {
	case e.Type == watch.Deleted && !known:
		s.t.Fatalf("%s was deleted, and never shown", key)
	case e.Type == watch.Deleted:
		delete(s.objects, key.String())
	case !s.allowed(key.Namespace):
		s.t.Fatalf("%s %s is shown without permission", e.Type, key)
	default:
		s.objects[key.String()] = fmt.Sprintf("%s@%d", key, e.Object.Revision())
	}
}

func (s *shownTo) all() []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		all = append(all, s.objects[key])
	}
	return all
}

// drain delivers what there is. It fails the test for an error.
func (s *shownTo) drain(w *watchcache.Watch, at func(watchcache.Event)) error {
	for {
		events, newer, err := w.TryNext()
		for _, e := range events {
			s.add(e)
			if at != nil {
				at(e)
			}
		}
		if err != nil || newer != nil {
			return err
		}
	}
}

// A client that follows a view has, whenever it has received everything, what the lists of the namespaces have, while
// objects and the set change in random steps; and it receives nothing of a namespace that is not in the set.
func TestWatchOfView(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		r := newRig(t, store.Options{})
		view := newView(someOf(random))
		options := []apistorage.ListOptions{everything, withLabel("1")}[seed%2]
		options.Recursive, options.Predicate.AllowWatchBookmarks = true, true
		w, err := r.WatchIn(t.Context(), "/widgets/", options, view)
		if err != nil {
			t.Fatal(err)
		}
		client := &shownTo{map[string]string{}, func(n string) bool { return view.present.Has(n) }, t}
		if err := client.drain(w, nil); err != nil { // a change within the initial state ends the watch: TestViewsExpire
			t.Fatal(err)
		}
		for range 150 {
			namespace, name := spaces[random.IntN(len(spaces))], fmt.Sprint("w", random.IntN(10))
			switch key := (keepwatch.Key{Namespace: namespace, Name: name}); random.IntN(10) {
			case 0, 1:
				view.set(someOf(random))
			case 2, 3:
				if r.source.current[key] != nil {
					r.source.removeAt(key)
				}
			default:
				r.source.putIn(namespace, name, fmt.Sprint(random.IntN(2)))
			}
			if random.IntN(3) > 0 {
				continue // the watch is behind
			}
			r.eventually("the cache has it", func() bool { return r.Revision() >= r.source.newest })
			if err := client.drain(w, nil); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got, want := client.all(), r.unionOf(view.present, options); !slices.Equal(got, want) {
				t.Fatalf("seed %d at %d: the client has %v, and the lists %v", seed, w.Revision(), got, want)
			}
		}
	}
}

// After a grant a bookmark has the revision of the watch: that of the last object may be old. No bookmark is sent
// before the last object.
func TestGrantEndsWithBookmark(t *testing.T) {
	r := newRig(t, store.Options{})
	for i := range 200 {
		r.source.putIn("b", fmt.Sprint(i), "")
	}
	last := r.source.putIn("a", "w", "")
	r.eventually("the cache has it", func() bool { return r.Revision() >= last })
	view := newView(map[string]keepwatch.UID{"a": "1"})
	options := everything
	options.Recursive, options.Predicate.AllowWatchBookmarks = true, true
	w, err := r.WatchIn(t.Context(), "/widgets/", options, view)
	if err != nil {
		t.Fatal(err)
	}
	client := &shownTo{map[string]string{}, func(n string) bool { return true }, t}
	if err := client.drain(w, nil); err != nil || len(client.objects) != 1 {
		t.Fatalf("%v, %v", client.all(), err)
	}
	view.set(map[string]keepwatch.UID{"a": "1", "b": "1"})
	var bookmarks []keepwatch.Revision
	if err := client.drain(w, func(e watchcache.Event) {
		if e.Type == watch.Bookmark {
			bookmarks = append(bookmarks, e.Revision)
			if len(client.objects) != 201 {
				t.Errorf("a bookmark behind %d objects", len(client.objects))
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(bookmarks, []keepwatch.Revision{last}) {
		t.Errorf("bookmarks at %v, want %d", bookmarks, last)
	}
}

// The bookmark that ends the initial state is behind the objects of what is granted before it: between the decision in
// which namespaces a watch begins, and its first event, the source may have had to confirm a revision. A watch whose
// initial state ends with none receives one behind them at once.
func TestGrantBeforeTheInitialEnd(t *testing.T) {
	r := newRig(t, store.Options{})
	r.source.putIn("b", "w", "")
	last := r.source.putIn("a", "w", "")
	r.eventually("the cache has it", func() bool { return r.Revision() >= last })
	for _, c := range []struct{ streams, begins bool }{{true, false}, {true, true}, {false, false}, {false, true}} {
		view := newView(map[string]keepwatch.UID{"a": "1"})
		options := everything
		options.Recursive, options.Predicate.AllowWatchBookmarks = true, true
		if c.streams {
			options.SendInitialEvents = ptr.To(true)
		}
		w, err := r.WatchIn(t.Context(), "/widgets/", options, view)
		if err != nil {
			t.Fatal(err)
		}
		client := &shownTo{map[string]string{}, func(string) bool { return true }, t}
		var bookmarks []bool
		look := func(e watchcache.Event) {
			if e.Type == watch.Bookmark {
				bookmarks = append(bookmarks, e.InitialEnd)
				if len(client.objects) != 2 || e.Revision != last {
					t.Errorf("%+v: a bookmark at %d behind %v", c, e.Revision, client.all())
				}
			}
		}
		if c.begins {
			events, _, err := w.TryNext()
			if err != nil || len(events) != 1 {
				t.Fatalf("%+v: %v, %v", c, events, err)
			}
			client.add(events[0])
		}
		view.set(map[string]keepwatch.UID{"a": "1", "b": "1"})
		if err := client.drain(w, look); err != nil || !slices.Equal(bookmarks, []bool{c.streams}) {
			t.Errorf("%+v: the bookmarks %v, %v", c, bookmarks, err)
		}
	}
}

// restless is a view whose set is replaced as soon as it was asked for.
type restless struct {
	*someNamespaces
	next map[string]keepwatch.UID // the set that follows; nil if none does
}

func (s *restless) Namespaces() (*watchcache.Namespaces, <-chan struct{}, error) {
	present, replaced, err := s.someNamespaces.Namespaces()
	if next := s.next; next != nil {
		s.next = nil
		s.set(next)
	}
	return present, replaced, err
}

// No bookmark of a revision above that of a grant is sent before what is granted: not the one behind a gap, nor one
// that is due. That one is sent at once behind what a change of the set sends.
func TestNoBookmarkBeforeAGrant(t *testing.T) {
	t.Parallel()
	one, both := map[string]keepwatch.UID{"a": "1"}, map[string]keepwatch.UID{"a": "1", "b": "1"}
	options := everythingBelow()
	options.Predicate.AllowWatchBookmarks = true
	r := newCache(t, store.Options{})
	r.source.putIn("b", "old", "")
	start := r.source.putIn("a", "w", "")
	r.start()
	r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
	r.source.lag(true)
	changed := r.source.putIn("a", "w", "")
	end := r.source.putIn("c", "w", "")
	r.source.breakWatch(keepwatch.Failed(keepwatch.Expired, "the history is lost"))
	r.eventually("the cache has listed", func() bool { return r.Snapshot().Revision() == end })
	r.source.breakWatch(nil)
	view := &restless{newView(one), nil}
	options.ResourceVersion = start.String()
	w, err := r.WatchIn(t.Context(), "/widgets/", options, view)
	if err != nil {
		t.Fatal(err)
	}
	view.set(one)
	view.next = both
	to := &recorder{idle: func() error { return errIdle }}
	if err := w.Serve(t.Context(), nil, to); !errors.Is(err, errIdle) {
		t.Fatal(err)
	}
	if want := []string{fmt.Sprint("MODIFIED w ", changed), "initialized", "ADDED old initial 2",
		fmt.Sprint("BOOKMARK initial ", end)}; !slices.Equal(to.events, want) {
		t.Errorf("behind a gap: %q, want %q", to.events, want)
	}

	for i := range 40 { // that the bookmark is due, and that the set is replaced, is noticed in any order
		from, to, changed := one, both, "ADDED old initial 2"
		if i%2 == 1 {
			from, to, changed = both, one, "DELETED old initial 3"
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, store.Options{})
			r.source.putIn("b", "old", "")
			last := r.source.putIn("a", "w", "")
			r.eventually("the cache has it", func() bool { return r.Revision() >= last })
			view := &restless{newView(from), nil}
			options := options
			options.ResourceVersion = ""
			w, err := r.WatchIn(t.Context(), "/widgets/", options, view)
			if err != nil {
				t.Fatal(err)
			}
			isBookmark := func(e string) bool { return strings.HasPrefix(e, "BOOKMARK") }
			var due, sent time.Time // the bookmark
			got := &recorder{}
			got.idle = func() error {
				if due.IsZero() {
					time.Sleep(2 * time.Minute)
					due = time.Now()
					view.set(from)
					view.next = to
				} else if sent.IsZero() && slices.ContainsFunc(got.events, isBookmark) {
					sent = time.Now()
				}
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if err := w.Serve(ctx, nil, got); err != nil {
				t.Fatal(err)
			}
			at := slices.Index(got.events, changed)
			if at < 0 || slices.IndexFunc(got.events, isBookmark) < at || !sent.Equal(due) {
				t.Errorf("%q, with a bookmark %v after it was due", got.events, sent.Sub(due))
			}
		})
	}
}

// Expired ends a watch whose client may have been shown another set: at a revision from before the set, when the set
// changes shortly after a watch has resumed, and when a namespace is revoked of which the client has a part.
func TestViewsExpire(t *testing.T) {
	r := newRig(t, store.Options{})
	var last keepwatch.Revision
	for i := range 300 {
		last = r.source.putIn("b", fmt.Sprint(i), "")
	}
	r.eventually("the cache has it", func() bool { return r.Revision() >= last })
	begin := func(view watchcache.View, revision string) (*watchcache.Watch, error) {
		options := everything
		options.Recursive, options.ResourceVersion = true, revision
		return r.WatchIn(context.Background(), "/widgets/", options, view)
	}
	both, one := map[string]keepwatch.UID{"a": "1", "b": "1"}, map[string]keepwatch.UID{"a": "1"}

	view := newView(both)
	view.floor = last + 1
	if _, err := begin(view, last.String()); !apierrors.IsResourceExpired(err) {
		t.Errorf("from a revision below the set's: %v", err)
	}

	view = newView(one)
	view.agreement = time.Hour
	w, err := begin(view, last.String())
	if err != nil {
		t.Fatal(err)
	}
	view.set(both)
	if _, _, err := w.TryNext(); !apierrors.IsResourceExpired(err) {
		t.Errorf("when the set changes after a watch has resumed: %v", err)
	}

	view = newView(both)
	view.agreement = time.Hour
	begun := map[string]*watchcache.Watch{}
	for _, from := range []string{last.String(), "0"} {
		if begun[from], err = begin(view, from); err != nil {
			t.Fatal(err)
		}
	}
	view.set(both)
	if _, _, err := begun[last.String()].TryNext(); !apierrors.IsResourceExpired(err) {
		t.Errorf("when another server may have had another set as a watch resumed: %v", err)
	}
	if _, _, err := begun["0"].TryNext(); err != nil {
		t.Errorf("a watch that has resumed nothing: %v", err)
	}

	view = newView(both)
	if w, err = begin(view, "0"); err != nil {
		t.Fatal(err)
	}
	if events, _, err := w.TryNext(); err != nil || len(events) == 0 {
		t.Fatalf("%v, %v", events, err)
	}
	view.set(one)
	if events, _, err := w.TryNext(); !apierrors.IsResourceExpired(err) || len(events) > 0 {
		t.Errorf("when a part of the initial state is revoked: %v, %v", events, err)
	}

	view = newView(one)
	if w, err = begin(view, "0"); err != nil {
		t.Fatal(err)
	}
	if err := (&shownTo{map[string]string{}, func(string) bool { return true }, t}).drain(w, nil); err != nil {
		t.Fatal(err)
	}
	view.set(both)
	if events, _, err := w.TryNext(); err != nil || len(events) == 0 || len(events) == 300 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	view.set(one)
	if events, _, err := w.TryNext(); !apierrors.IsResourceExpired(err) || len(events) > 0 {
		t.Errorf("when a part of what is granted is revoked: %v, %v", events, err)
	}
}

// A namespace that was deleted and created again is another one: a set that had the former one is not equal.
func TestNamespaceMadeAnew(t *testing.T) {
	before, after := watchcache.NewNamespaces(map[string]keepwatch.UID{"a": "1"}, false),
		watchcache.NewNamespaces(map[string]keepwatch.UID{"a": "2"}, false)
	if before.Equal(after) {
		t.Error("the sets are equal")
	}
	if same := watchcache.NewNamespaces(map[string]keepwatch.UID{"a": "1"}, false); !before.Equal(same) {
		t.Error("equal sets are not")
	}
}

// The namespaces of a set are in the order of keys, and found by their names alone.
func TestOrderOfNamespaces(t *testing.T) {
	all := []string{"a", "a-", "a-b", "a-b-c", "a.b", "a0", "ab", "aba", "b", "ba", "z"}
	random := rand.New(rand.NewPCG(44, 4))
	for range 200 {
		uids := map[string]keepwatch.UID{}
		for _, name := range all {
			if random.IntN(2) == 0 {
				uids[name] = keepwatch.UID(name)
			}
		}
		set := watchcache.NewNamespaces(uids, false)
		names := set.Names()
		if !slices.IsSortedFunc(names, func(a, b string) int { return cmp.Compare(a+"/", b+"/") }) || len(names) != len(uids) {
			t.Errorf("%q of %v", names, uids)
		}
		for _, name := range append(all, "", "a-b-", "c", "/") {
			if _, want := uids[name]; set.Has(name) != want {
				t.Errorf("%q in %q: %v", name, names, !want)
			}
		}
		if got := maps.Collect(set.All()); !maps.Equal(got, uids) {
			t.Errorf("%v, want %v", got, uids)
		}
	}
}

// ofNamespaces returns a cache with some objects in each of some namespaces, and their UIDs.
func ofNamespaces(t testing.TB, namespaces, objects int) (*rig, map[string]keepwatch.UID) {
	r := newCache(t, store.Options{})
	uids := map[string]keepwatch.UID{}
	for i := range namespaces {
		name := fmt.Sprintf("namespace-%d", i)
		uids[name] = "1"
		for j := range objects {
			r.source.putIn(name, fmt.Sprint("w", j), "0")
		}
	}
	r.source.history = nil // they are in the list
	r.start()
	r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
	return r, uids
}

// A list of a view that has all namespaces is the same segments of the cache as a list of everything, and so costs the
// same to answer. Each namespace that is not in a view adds two cuts at most.
func TestSegmentsOfViews(t *testing.T) {
	const namespaces, objects = 100, 50
	r, uids := ofNamespaces(t, namespaces, objects)
	o := everythingBelow()
	all, err := r.List(t.Context(), "/widgets/", o)
	if err != nil {
		t.Fatal(err)
	}
	for left := range 20 {
		view, err := r.ListIn(t.Context(), "/widgets/", o, watchcache.NewNamespaces(uids, false))
		if err != nil {
			t.Fatal(err)
		}
		if n, most := len(view.Segments), len(all.Segments)+2*left; n > most || left == 0 && n != most {
			t.Errorf("without %d namespaces a view has %d segments, and everything %d", left, n, len(all.Segments))
		}
		if want := (namespaces - left) * objects; view.Len() != want {
			t.Errorf("%d objects, want %d", view.Len(), want)
		}
		delete(uids, fmt.Sprintf("namespace-%d", left*7%namespaces))
	}
}

// BenchmarkListOfView lists all of 50,000 objects in 1,000 namespaces: as one list, and as that of a view which has
// them all.
func BenchmarkListOfView(b *testing.B) {
	const namespaces, objects = 1000, 50
	r, uids := ofNamespaces(b, namespaces, objects)
	o, within := everythingBelow(), watchcache.NewNamespaces(uids, false)
	for name, list := range map[string]func() (*watchcache.ListResult, error){
		"all":  func() (*watchcache.ListResult, error) { return r.List(b.Context(), "/widgets/", o) },
		"view": func() (*watchcache.ListResult, error) { return r.ListIn(b.Context(), "/widgets/", o, within) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				result, err := list()
				if err != nil || result.Len() != namespaces*objects {
					b.Fatalf("%v, %v", result, err)
				}
				b.ReportMetric(float64(len(result.Segments)), "segments")
			}
		})
	}
}

// A watch that continues a list whose user may list in other namespaces than it may watch has the objects of those that
// it may watch, also when another server may have had another set before, and receives nothing of others.
func TestListedAndWatchedSetsDiffer(t *testing.T) {
	r := newRig(t, store.Options{})
	for _, namespace := range []string{"a", "b", "c"} {
		r.source.putIn(namespace, "w", "")
	}
	last := r.source.putIn("b", "v", "")
	r.eventually("the cache has it", func() bool { return r.Revision() >= last })
	view := newView(map[string]keepwatch.UID{"a": "1", "c": "1"})
	view.agreement, view.listed = time.Hour, watchcache.NewNamespaces(map[string]keepwatch.UID{"a": "1", "b": "1"}, false)
	later := r.source.putIn("b", "w", "")
	r.source.putIn("b", "u", "")
	r.source.putIn("a", "u", "")
	options := everything
	options.Recursive, options.ResourceVersion, options.Predicate.AllowWatchBookmarks = true, last.String(), true
	r.eventually("the cache has it", func() bool { return r.Revision() > later+1 })
	w, err := r.WatchIn(t.Context(), "/widgets/", options, view)
	if err != nil {
		t.Fatal(err)
	}
	client := &shownTo{map[string]string{"a/w": "", "b/w": "", "b/v": ""}, func(n string) bool { return n != "b" }, t}
	bookmark := keepwatch.Revision(0)
	if err := client.drain(w, func(e watchcache.Event) {
		if e.Type == watch.Bookmark {
			bookmark = e.Revision
			if _, has := client.objects["c/w"]; !has || client.objects["b/w"] != "" {
				t.Error("a bookmark is sent before the difference")
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(client.objects)); !slices.Equal(got, []string{"a/u", "a/w", "c/w"}) || bookmark < last {
		t.Errorf("%v, and a bookmark at %d", got, bookmark)
	}
	view.set(map[string]keepwatch.UID{"a": "1", "c": "1"})
	if _, _, err := w.TryNext(); !apierrors.IsResourceExpired(err) {
		t.Errorf("when another server may have had another set: %v", err)
	}
}

// A watch that has resumed follows the set as others do.
func TestResumedViewFollows(t *testing.T) {
	r := newRig(t, store.Options{})
	r.source.putIn("b", "w", "")
	last := r.source.putIn("a", "w", "")
	r.eventually("the cache has it", func() bool { return r.Revision() >= last })
	view := newView(map[string]keepwatch.UID{"a": "1"})
	options := everything
	options.Recursive, options.ResourceVersion = true, last.String()
	w, err := r.WatchIn(t.Context(), "/widgets/", options, view)
	if err != nil {
		t.Fatal(err)
	}
	client := &shownTo{map[string]string{"a/w": ""}, func(n string) bool { return true }, t}
	for range 3 {
		if err := client.drain(w, nil); err != nil {
			t.Fatal(err)
		}
		r.source.advance(3)
		if _, err := r.WaitForNewest(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	view.set(map[string]keepwatch.UID{"a": "1", "b": "1"})
	if err := client.drain(w, nil); err != nil || len(client.objects) != 2 {
		t.Errorf("%v, %v", client.all(), err)
	}
	view.set(map[string]keepwatch.UID{"b": "1"})
	if err := client.drain(w, nil); err != nil || len(client.objects) != 1 {
		t.Errorf("%v, %v", client.all(), err)
	}
}

// The deletions of a revoked namespace have the revision that the watch has reached, and those of a lease behind them
// are not below it.
func TestLeaseBehindARevocation(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	r.source.putIn("aa", "a", "x")
	r.source.putIn("aa", "b", "x")
	start := r.source.putIn("bb", "x", "x")
	reach := func(to keepwatch.Revision) {
		r.eventually("the cache has the change", func() bool { return r.Snapshot().Revision() >= to })
	}
	reach(start)
	view := newView(map[string]keepwatch.UID{"aa": "1", "bb": "1"})
	o := everythingBelow()
	o.ResourceVersion = start.String()
	w, err := r.WatchIn(t.Context(), "/widgets/", o, view)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	read := func() {
		for events, _, err := w.TryNext(); len(events) > 0 || err != nil; events, _, err = w.TryNext() {
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				got = append(got, fmt.Sprint(e.Type, " ", e.Object.Key().Name, " ", e.Revision))
			}
		}
	}
	last := r.source.putIn("cc", "x", "x")
	reach(last)
	read()
	view.set(map[string]keepwatch.UID{"aa": "1"})
	read()
	end := r.source.removeAt(keepwatch.Key{Namespace: "aa", Name: "a"}, keepwatch.Key{Namespace: "aa", Name: "b"})
	reach(end)
	read()
	want := []string{fmt.Sprint("DELETED x ", last), fmt.Sprint("DELETED a ", last), fmt.Sprint("DELETED b ", end)}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
