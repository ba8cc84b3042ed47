package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// recorder records the events that it receives. Its Flush calls idle.
type recorder struct {
	events []string
	idle   func() error
	fail   error // of Send
}

func (r *recorder) Send(e watchcache.Event, initial bool) error {
	text := string(e.Type)
	if e.Object != nil {
		text += " " + e.Object.Key().Name
	}
	if initial {
		text += " initial"
	}
	if e.InitialEnd {
		text += " end"
	}
	r.events = append(r.events, fmt.Sprint(text, " ", e.Revision))
	return r.fail
}

func (r *recorder) Initialized() error {
	r.events = append(r.events, "initialized")
	return nil
}

func (r *recorder) Flush() error {
	if r.idle != nil {
		return r.idle()
	}
	return nil
}

var errIdle = errors.New("idle")

// serve returns what a watch sends until there is nothing more to send.
func (r *rig) serve(o apistorage.ListOptions) []string {
	r.t.Helper()
	o.Recursive = true
	w, err := r.Watch(r.t.Context(), "/widgets/", o)
	if err != nil {
		r.t.Fatal(err)
	}
	to := &recorder{idle: func() error { return errIdle }}
	if err := w.Serve(r.t.Context(), nil, to); !errors.Is(err, errIdle) {
		r.t.Errorf("the watch ended with: %v", err)
	}
	return to.events
}

func everythingBelow() apistorage.ListOptions {
	o := everything
	o.Recursive = true
	return o
}

// A watch sends the initial state, the bookmark after it, and the following changes.
func TestWatchesSendTheInitialState(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	a, b := r.source.put("a", "x"), r.source.put("b", "y")
	if err := r.WaitForRevision(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	initial := everything
	initial.SendInitialEvents = ptr.To(true)
	initial.Predicate.AllowWatchBookmarks = true
	for name, test := range map[string]struct {
		options apistorage.ListOptions
		want    []string
	}{
		"any": {at(0, everything), []string{fmt.Sprint("ADDED a initial ", a), "ADDED b initial ",
			"initialized"}},
		"with its end": {initial, []string{fmt.Sprint("ADDED a initial ", a), "ADDED b initial ", "BOOKMARK initial end ",
			"initialized"}},
		"with a selector": {at(0, withLabel("y")), []string{"ADDED b initial ", "initialized"}},
		"none":            {at(a, everything), []string{"ADDED b ", "initialized"}},
	} {
		for i, event := range test.want {
			if event[len(event)-1] == ' ' {
				test.want[i] = fmt.Sprint(event, b)
			}
		}
		if got := r.serve(test.options); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A watch that resumes from before the history receives the difference, with the objects that left its
// selection.
func TestWatchesReceiveTheDifference(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{WindowBytes: 1})
	r.source.put("stays", "x")
	from := r.source.put("leaves", "x")
	steps := []func(){
		func() {}, func() { r.source.put("leaves", "y") }, func() { r.source.put("enters", "x") }, func() {
			r.source.put("other", "z")
		}, func() { r.source.put("other", "z") },
	}
	for _, step := range steps {
		step()
		if _, err := r.WaitForNewest(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := r.serve(at(from, withLabel("x"))), []string{fmt.Sprint("DELETED leaves ", from+1),
		fmt.Sprint("ADDED enters ", from+2), "initialized"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// lagging is a recorder before which the next event has always happened already.
type lagging struct {
	recorder
	next func() error
}

func (l *lagging) Send(e watchcache.Event, initial bool) error {
	return errors.Join(l.recorder.Send(e, initial), l.next())
}

// A watch whose client never catches up ends with the server, too: it does not receive what happens after that.
func TestLaggingWatchesEndWithTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	from := r.source.put("a", "x")
	write := func() error { return r.WaitForRevision(t.Context(), r.source.put("a", "x")) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	w, err := r.Watch(t.Context(), "/widgets/", at(from, everythingBelow()))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	to := &lagging{}
	to.next = func() error {
		switch len(to.events) {
		case 3:
			close(stop)
		case 20:
			return errIdle
		}
		return write()
	}
	if err := w.Serve(t.Context(), stop, to); err != nil || len(to.events) < 3 {
		t.Errorf("the watch has sent %q, %v", to.events, err)
	}
}

// A watch that is canceled, or whose server ends, sends nothing more, not even the rest of a segment or of a
// difference.
func TestCanceledWatchesSendNothingMore(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{WindowBytes: 1})
	from := r.source.put("first", "x")
	for i := range 10 {
		if err := r.WaitForRevision(t.Context(), r.source.put(fmt.Sprint("object-", i), "x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, revision := range []keepwatch.Revision{0, from} {
		o := at(revision, everything)
		o.Recursive = true
		w, err := r.Watch(t.Context(), "/widgets/", o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		to := &canceler{cancel: cancel}
		if err := w.Serve(ctx, nil, to); err != nil || len(to.events) != 1 {
			t.Errorf("from %d: %q, %v", revision, to.events, err)
		}
		if w, err = r.Watch(t.Context(), "/widgets/", o); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		to = &canceler{cancel: sync.OnceFunc(func() { close(stop) })}
		if err := w.Serve(t.Context(), stop, to); err != nil || len(to.events) != 1 {
			t.Errorf("from %d, until the server ends: %q, %v", revision, to.events, err)
		}
	}
}

// canceler cancels its watch at the first event.
type canceler struct {
	recorder
	cancel func()
}

func (c *canceler) Send(e watchcache.Event, initial bool) error {
	c.cancel()
	return c.recorder.Send(e, initial)
}

// A watch ends without an error with its context, its stop and its cache, and with the error of
// its receiver.
func TestWatchesEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *rig, cancel func(), stop chan struct{}){
		"context": func(_ *rig, cancel func(), _ chan struct{}) { cancel() },
		"stop":    func(_ *rig, _ func(), stop chan struct{}) { close(stop) },
		"cache":   func(r *rig, _ func(), _ chan struct{}) { r.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, store.Options{})
			w, err := r.Watch(t.Context(), "/widgets/", at(0, everythingBelow()))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stop := make(chan struct{})
			idle := func() error { end(r, cancel, stop); return nil }
			if err := w.Serve(ctx, stop, &recorder{idle: idle}); err != nil {
				t.Errorf("the watch ended with: %v", err)
			}
		})
	}
	r := newRig(t, store.Options{})
	r.source.put("a", "x")
	if _, err := r.WaitForNewest(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err := r.Watch(t.Context(), "/widgets/", at(0, everythingBelow()))
	if err != nil {
		t.Fatal(err)
	}
	refuse := errors.New("refused")
	if err := w.Serve(t.Context(), nil, &recorder{fail: refuse}); !errors.Is(err, refuse) {
		t.Errorf("the watch ended with: %v", err)
	}
}

// A watch sends what the cache has at its end, also if it was idle until then.
func TestWatchesSendTheLastChanges(t *testing.T) {
	t.Parallel()
	for range 20 { // it is woken by both
		r := newRig(t, store.Options{})
		from := r.source.put("a", "x")
		w, err := r.Watch(t.Context(), "/widgets/", at(from, everythingBelow()))
		if err != nil {
			t.Fatal(err)
		}
		to := &recorder{}
		to.idle = sync.OnceValue(func() error {
			deleted := r.source.remove("a")
			r.eventually("the cache has the deletion", func() bool { return r.Revision() == deleted })
			r.cancel()
			await.Receive(t, "the cache has ended", r.Ended())
			return nil
		})
		if err := w.Serve(t.Context(), nil, to); err != nil {
			t.Error(err)
		}
		if want := []string{"initialized", fmt.Sprint("DELETED a ", from+1)}; !slices.Equal(to.events, want) {
			t.Fatalf("it sends %q, want %q", to.events, want)
		}
	}
}

// A watch that selects nothing ends with its context, and not when it has decoded the whole initial state.
func TestWatchesEndInTheInitialState(t *testing.T) {
	t.Parallel()
	const n = 2000
	ctx, end := context.WithCancel(t.Context())
	var decoded atomic.Int64
	c := config()
	c.GetAttrs = func(o runtime.Object) (labels.Set, fields.Set, error) {
		decoded.Add(1)
		end()
		return apistorage.DefaultNamespaceScopedAttr(o)
	}
	r := cacheOf(t, c)
	for i := range n {
		r.source.put(fmt.Sprint("object-", i), "x")
	}
	r.start()
	r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
	o := at(0, withLabel("y"))
	o.Recursive = true
	w, err := r.Watch(t.Context(), "/widgets/", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Serve(ctx, nil, &recorder{}); err != nil {
		t.Fatal(err)
	}
	if got := decoded.Load(); got == 0 || got > n/2 {
		t.Errorf("%d of %d objects were decoded", got, n)
	}
}

// A watch that asked for bookmarks receives one at the end of a gap: no watch can resume from a revision within it.
func TestBookmarkBehindAGap(t *testing.T) {
	t.Parallel()
	r := newCache(t, store.Options{})
	start := r.source.put("a", "x")
	r.start()
	r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
	r.source.lag(true)
	changed := r.source.put("a", "x")
	end := r.source.put("b", "y")
	r.source.breakWatch(keepwatch.Failed(keepwatch.Expired, "the history is lost"))
	r.eventually("the cache has listed", func() bool { return r.Snapshot().Revision() == end })
	r.source.breakWatch(nil)
	o := at(start, withLabel("x"))
	if got, want := r.serve(o), []string{fmt.Sprint("MODIFIED a ", changed), "initialized"}; !slices.Equal(got, want) {
		t.Errorf("without bookmarks: %q, want %q", got, want)
	}
	o.Predicate.AllowWatchBookmarks = true
	if got, want := r.serve(o), []string{fmt.Sprint("MODIFIED a ", changed), fmt.Sprint("BOOKMARK ", end),
		"initialized"}; !slices.Equal(got, want) {
		t.Errorf("with bookmarks: %q, want %q", got, want)
	}
	o.Recursive = true
	within, err := r.Watch(t.Context(), "/widgets/", at(changed, o))
	if err == nil {
		_, _, err = within.TryNext()
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from within the gap: %v", err)
	}
}

// A list shows another content at an equal revision, because the definition has changed: reads have it, and a watch
// that selects the object ends with 410, whether it is open or resumes. No event could show it: its revision is an old
// one.
func TestRedefinedObjects(t *testing.T) {
	t.Parallel()
	r := newCache(t, store.Options{})
	r.source.put("a", "x")
	start := r.source.put("b", "y")
	r.start()
	r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
	open := func(label string) *watchcache.Watch {
		o := at(start, withLabel(label))
		o.Recursive = true
		w, err := r.Watch(t.Context(), "/widgets/", o)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.TryNext(); err != nil {
			t.Fatal(err)
		}
		return w
	}
	left, entered, other := open("x"), open("z"), open("y")
	r.source.redefine("a", "z")
	r.source.breakWatch(keepwatch.Failed(keepwatch.Expired, "the history is lost"))
	r.eventually("the cache has listed", func() bool { return r.Snapshot().Revision() > start })
	r.source.breakWatch(nil)
	if names, _, err := r.list(withLabel("z")); err != nil || !slices.Equal(names, []string{"a"}) {
		t.Errorf("the list has %q, %v", names, err)
	}
	if _, _, err := entered.TryNext(); !apierrors.IsResourceExpired(err) {
		t.Errorf("the object enters a watch: %v", err)
	}
	if events, _, err := left.TryNext(); err != nil || len(events) != 1 || events[0].Type != watch.Deleted {
		t.Errorf("the object leaves a watch: %v, %v", events, err)
	}
	if events, _, err := other.TryNext(); err != nil || len(events) != 0 {
		t.Errorf("a watch of other objects: %v, %v", events, err)
	}
	o := at(start, everything)
	o.Recursive = true
	resumed, err := r.Watch(t.Context(), "/widgets/", o)
	if err == nil {
		_, _, err = resumed.TryNext()
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before the change: %v", err)
	}
}

// A client that asked for bookmarks receives one when the source has reached a newer revision without changes of its
// objects.
func TestProgress(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	o := at(0, everythingBelow())
	o.ProgressNotify = true
	w, err := r.Watch(t.Context(), "/widgets/", o)
	if err != nil {
		t.Fatal(err)
	}
	r.source.advance(10)
	if _, err := r.WaitForNewest(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, _, err := w.TryNext()
	if err != nil || len(events) != 1 || events[0].Type != watch.Bookmark || events[0].Revision != r.Revision() {
		t.Errorf("got %v, %v", events, err)
	}
}

// A source joins progress to the changes before it. A watch that asked for progress receives it: also one that has the
// changes, or to which they do not belong.
func TestProgressThatIsJoinedToChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	before := r.Revision()
	r.source.lag(true)
	changed := r.source.put("a", "x")
	r.source.advance(10)
	newest, err := r.source.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.source.lag(false)
	if err := r.WaitForRevision(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	progress := fmt.Sprint("BOOKMARK ", newest)
	for name, c := range map[string]struct {
		key  string
		from keepwatch.Revision
		want []string
	}{
		"everything":                     {"/widgets/", before, []string{fmt.Sprint("ADDED a ", changed), progress}},
		"everything after the change":    {"/widgets/", changed, []string{progress}},
		"the object after the change":    {"/widgets/ns/a", changed, []string{progress}},
		"another object":                 {"/widgets/ns/b", before, []string{progress}},
		"an object of another namespace": {"/widgets/other/a", before, []string{progress}},
	} {
		t.Run(name, func(t *testing.T) {
			o := at(c.from, everything)
			o.Recursive, o.ProgressNotify = c.key == "/widgets/", true
			w, err := r.Watch(t.Context(), c.key, o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			to := &recorder{idle: func() error { cancel(); return nil }}
			if err := w.Serve(ctx, nil, to); err != nil {
				t.Fatal(err)
			}
			got := slices.DeleteFunc(to.events, func(e string) bool { return e == "initialized" })
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A watch that is not woken for objects that its selector excludes passes them all the same: its bookmarks have the
// newest revision, and its client resumes behind them.
func TestBookmarksPassWhatOthersReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{})
		o := at(0, withLabel("x"))
		o.Recursive, o.Predicate.AllowWatchBookmarks = true, true
		w, err := r.Watch(t.Context(), "/widgets/", o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		to := &recorder{}
		ended := make(chan error, 1)
		go func() { ended <- w.Serve(ctx, nil, to) }()
		synctest.Wait()
		var newest keepwatch.Revision
		for i := range 100 { // all watches are woken at some of them, for the window's sake
			newest = r.source.put(fmt.Sprint("o", i), "other")
			synctest.Wait()
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if want := []string{"initialized", fmt.Sprint("BOOKMARK ", newest)}; !slices.Equal(to.events, want) {
			t.Errorf("%q, want %q", to.events, want)
		}
	})
}

// sender is a receiver of one function.
type sender func(watchcache.Event) error

func (s sender) Send(e watchcache.Event, _ bool) error { return s(e) }
func (s sender) Initialized() error                    { return nil }
func (s sender) Flush() error                          { return nil }

// deadline is a context that has a deadline, and does not end by it.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

// What a watch receives behind a bookmark is not below it, also if the watch is behind the history then.
func TestDeletionBehindABookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{WindowBytes: 1})
		start := r.source.put("a", "x")
		reach := func(to keepwatch.Revision) {
			r.eventually("the cache has the change", func() bool { return r.Snapshot().Revision() >= to })
		}
		reach(start)
		o := at(start, withLabel("x"))
		o.Recursive, o.Predicate.AllowWatchBookmarks = true, true
		w, err := r.Watch(t.Context(), "/widgets/", o)
		if err != nil {
			t.Fatal(err)
		}
		reach(r.source.put("b", "y"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ends := deadline{ctx, time.Now().Add(2100 * time.Millisecond)} // a bookmark is sent two seconds before
		bookmark := keepwatch.Revision(0)
		var got []string
		err = w.Serve(ends, nil, sender(func(e watchcache.Event) error {
			switch {
			case e.Type != watch.Bookmark:
				got = append(got, fmt.Sprint(e.Type, " ", e.Object.Key().Name))
			case bookmark == 0:
				for _, label := range []string{"y", "x"} {
					reach(r.source.put("c", label))
				}
				reach(r.source.remove("a"))
			}
			if len(got) == 2 {
				cancel()
			}
			if e.Revision < bookmark {
				t.Errorf("%v at %d, behind a bookmark at %d", e.Type, e.Revision, bookmark)
			}
			bookmark = e.Revision
			return nil
		}))
		if want := []string{"DELETED a", "ADDED c"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	})
}
