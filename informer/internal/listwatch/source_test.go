package listwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
)

// server answers each list with the next of its pages, and each watch with its stream.
type server struct {
	pages    []*corev1.PodList
	stream   *watch.FakeWatcher
	err      error
	requests []metav1.ListOptions
}

func (s *server) source() *Source {
	source := New(&cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			s.requests = append(s.requests, options)
			if s.err != nil {
				return nil, s.err
			}
			page := s.pages[0]
			s.pages = s.pages[1:]
			return page, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			s.requests = append(s.requests, options)
			return s.stream, s.err
		},
	}, "pods")
	source.streaming = true // whatever this client-go has as its default
	return source
}

func list(revision, next string, pods ...corev1.Pod) *corev1.PodList {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: revision, Continue: next}, Items: pods}
}

// pod returns the pod of "name/uid@revision". UID and revision are optional.
func pod(text string) corev1.Pod {
	text, revision, _ := strings.Cut(text, "@")
	name, uid, _ := strings.Cut(text, "/")
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid),
		ResourceVersion: revision}}
}

func event(kind watch.EventType, text string) watch.Event {
	p := pod(text)
	return watch.Event{Type: kind, Object: &p}
}

func listEnd(revision string) watch.Event {
	p := pod("@" + revision)
	p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return watch.Event{Type: watch.Bookmark, Object: &p}
}

// format returns objects as "name/uid@revision".
func format(objects []keepwatch.Object) (all []string) {
	for _, o := range objects {
		all = append(all, fmt.Sprintf("%s/%s@%d", o.Key().Name, o.UID(), o.Revision()))
	}
	return all
}

// formatBatch returns a batch as text.
func formatBatch(b keepwatch.Batch) string {
	text := fmt.Sprintf("%d-%d", b.From, b.To)
	for _, c := range b.Changes {
		text += fmt.Sprintf(" %s %s@%d", c.Type, c.Object.Key().Name, c.Revision)
	}
	return text
}

func kind(err error) keepwatch.FailureKind {
	var f *keepwatch.Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	return 0
}

func TestListContinues(t *testing.T) {
	s := &server{pages: []*corev1.PodList{list("10", "more", pod("a/u@5")), list("10", "", pod("b/v@10"))}}
	source := s.source()
	first, err := source.List(t.Context(), keepwatch.ListRequest{NotOlderThan: 7})
	if err != nil || first.Continue != "more" || first.Revision != 10 || !slices.Equal(format(first.Objects),
		[]string{"a/u@5"}) {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := source.List(t.Context(), keepwatch.ListRequest{NotOlderThan: 7, Continue: "more"})
	if err != nil || second.Continue != "" || !slices.Equal(format(second.Objects), []string{"b/v@10"}) {
		t.Fatalf("%+v, %v", second, err)
	}
	if a := s.requests[0]; a.ResourceVersion != "7" || a.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan ||
		a.Limit != 0 {
		t.Errorf("the request is %+v", a)
	}
	if a := s.requests[1]; a.ResourceVersion != "" || a.ResourceVersionMatch != "" || a.Continue != "more" {
		t.Errorf("the request is %+v", a)
	}
}

// TestListHasNoLimit reads and compares lists of a client that would leave out the token for the next page.
func TestListHasNoLimit(t *testing.T) {
	objects := map[string]int{"10": 300, "20": 700, "30": 700} // at each revision
	changed := map[string]int{"20": 650, "30": 600}
	client := func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Limit != 0 {
			t.Errorf("the limit is %d", options.Limit)
		}
		at := cmp.Or(options.ResourceVersion, "10")
		l := list(at, "")
		for n := range objects[at] {
			revision := "1"
			if n == changed[at] {
				revision = at
			}
			l.Items = append(l.Items, pod(fmt.Sprintf("p%d/u%d@%s", n, n, revision)))
		}
		return l, nil
	}
	s := New(&cache.ListWatch{ListWithContextFunc: client}, "pods")
	for _, to := range []keepwatch.Revision{20, 30} {
		page, err := s.List(t.Context(), keepwatch.ListRequest{NotOlderThan: to})
		if err != nil || len(page.Objects) != 700 || page.Revision != to {
			t.Errorf("%d objects at %d, %v", len(page.Objects), page.Revision, err)
		}
		if err := s.Unchanged(t.Context(), to-10, to); kind(err) != keepwatch.Silent {
			t.Errorf("up to %d: %v", to, err)
		}
		compared := 0
		if err := s.ListAt(t.Context(), to, func(objects []keepwatch.Object) error {
			compared += len(objects)
			return nil
		}); err != nil || compared != 700 {
			t.Errorf("compared at %d: %d, %v", to, compared, err)
		}
	}
}

func TestListRejectsTables(t *testing.T) {
	table := &unstructured.UnstructuredList{Object: map[string]any{"kind": "Table", "apiVersion": "meta.k8s.io/v1"}}
	source := New(&cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return table, nil
	}}, "pods")
	if _, err := source.List(t.Context(), keepwatch.ListRequest{}); kind(err) != keepwatch.Rejected {
		t.Errorf("%v", err)
	}
}

func TestHasRevisions(t *testing.T) {
	for name, test := range map[string]struct {
		list      *corev1.PodList
		versioned bool
		objects   []string
	}{
		"a server":                   {list("10", "", pod("a/u@5"), pod("b/v@10")), true, []string{"a/u@5", "b/v@10"}},
		"an empty one":               {list("10", ""), true, nil},
		"no revision of the list":    {list("", "", pod("a/u@5")), false, []string{"a/u@1"}},
		"revision 0 of the list":     {list("0", ""), false, nil},
		"no revisions of objects":    {list("10", "", pod("a/u"), pod("b/v@5")), false, []string{"a/u@1", "b/v@1"}},
		"an object above the list":   {list("10", "", pod("a/u@11")), false, []string{"a/u@1"}},
		"no UIDs":                    {list("10", "", pod("a@5")), false, []string{"a/ns/a#1@1"}},
		"revisions without an order": {list("x", "", pod("a/u@y")), false, []string{"a/u@1"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := (&server{pages: []*corev1.PodList{test.list}}).source()
			page, err := source.List(t.Context(), keepwatch.ListRequest{})
			if err != nil || (source.versions == nil) != test.versioned || !slices.Equal(format(page.Objects), test.objects) {
				t.Errorf("objects %q; assigned revisions: %v; %v", format(page.Objects), source.versions != nil, err)
			}
		})
	}
}

// A list returns the same item for an unchanged object. A changed object and another UID have
// the list's revision.
func TestVersionAssignerComparesLists(t *testing.T) {
	changed := pod("b/")
	changed.Labels = map[string]string{"new": "yes"}
	s := &server{pages: []*corev1.PodList{
		list("", "", pod("a/"), pod("b/"), pod("c/u")),
		list("", "", pod("a/"), changed, pod("c/v"), pod("d/")),
	}}
	source := s.source()
	first, _ := source.List(t.Context(), keepwatch.ListRequest{})
	second, err := source.List(t.Context(), keepwatch.ListRequest{NotOlderThan: 1})
	if got, want := format(second.Objects), []string{"a/ns/a#1@1", "b/ns/b#1@2", "c/v@2", "d/ns/d#2@2"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if first.Objects[0] != second.Objects[0] {
		t.Error("a has another item")
	}
}

func TestVersionAssignerEvents(t *testing.T) {
	s := &server{pages: []*corev1.PodList{list("7", "", pod("a/"))}, stream: watch.NewFakeWithChanSize(20, false)}
	source := s.source()
	page, err := source.List(t.Context(), keepwatch.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []watch.Event{
		event(watch.Added, "a/"),    // sent again
		event(watch.Modified, "a/"), // without a change
		event(watch.Modified, "b/"), // new, although it is MODIFIED
		event(watch.Deleted, "c/"),  // unknown
		event(watch.Deleted, "a/"),
		event(watch.Added, "a/"),
	} {
		s.stream.Action(e.Type, e.Object)
	}
	w, err := source.Watch(t.Context(), page.Revision)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	got, err := w.Next()
	if want := "1-5 MODIFIED a@2 ADDED b@3 DELETED a@4 ADDED a@5"; err != nil || formatBatch(got) != want {
		t.Errorf("%q, want %q; %v", formatBatch(got), want, err)
	}
	if s.requests[1].ResourceVersion != "7" {
		t.Errorf("watched from %q", s.requests[1].ResourceVersion)
	}
	// The events had no resource version to resume from.
	if _, err := source.Watch(t.Context(), 5); kind(err) != keepwatch.Expired {
		t.Errorf("a second watch: %v", err)
	}
	s.stream.Action(watch.Modified, event(watch.Modified, "a/@9").Object)
	if _, err := w.Next(); err != nil {
		t.Fatal(err)
	}
	if token := source.ResourceVersion(6); token != "9" {
		t.Errorf("the token is %q", token)
	}
	again, err := source.Watch(t.Context(), 6)
	if err != nil || s.requests[2].ResourceVersion != "9" {
		t.Fatalf("a third watch: %v, from %q", err, s.requests[2].ResourceVersion)
	}
	again.Close()
}

// After an empty list the first event shows whether the server has revisions.
func TestFirstEventShowsRevisions(t *testing.T) {
	for text, want := range map[string]string{"a/u@12": "10-12 ADDED a@12", "a": "10-11 ADDED a@11"} {
		s := &server{pages: []*corev1.PodList{list("10", "")}, stream: watch.NewFakeWithChanSize(20, false)}
		source := s.source()
		page, _ := source.List(t.Context(), keepwatch.ListRequest{})
		w, err := source.Watch(t.Context(), page.Revision)
		if err != nil {
			t.Fatal(err)
		}
		s.stream.Action(watch.Added, event(watch.Added, text).Object)
		if got, err := w.Next(); err != nil || formatBatch(got) != want {
			t.Errorf("%s: %q, %v", text, formatBatch(got), err)
		}
		w.Close()
	}
}

// Batches begin and end as those of source/kube.
func TestBatches(t *testing.T) {
	s := &server{stream: watch.NewFakeWithChanSize(20, false)}
	for _, e := range []watch.Event{
		event(watch.Added, "a/u@11"), event(watch.Modified, "a/u@12"),
		event(watch.Bookmark, "@12"), // could not be seen behind the change
		event(watch.Modified, "a/u@13"),
		event(watch.Bookmark, "@15"),
		event(watch.Deleted, "a/u@16"),
		event(watch.Modified, "b/v@14"), // an old one
		event(watch.Deleted, "c/w@16"),  // the revision that the watch has
		event(watch.Deleted, "c/w@16"),
		event(watch.Deleted, "d/x@16"),
		event(watch.Added, "c/y@19"),
		event(watch.Deleted, "d/z@19"),
		event(watch.Error, "x"),
	} {
		s.stream.Action(e.Type, e.Object)
	}
	w, err := s.source().Watch(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, want := range []string{"10-12 ADDED a@11 MODIFIED a@12", "12-12", "12-15 MODIFIED a@13", "15-16 DELETED a@16",
		"16-19 MODIFIED b@14 DELETED c@19 DELETED d@19 ADDED c@19"} {
		if got, err := w.Next(); err != nil || formatBatch(got) != want {
			t.Errorf("%q, want %q; %v", formatBatch(got), want, err)
		}
	}
	for range 2 {
		if _, err := w.Next(); kind(err) != keepwatch.UnknownStatus {
			t.Errorf("the end: %v", err)
		}
	}
}

// Deletions that wait for a revision, and the event of that revision, are in one batch, also if they are more than a
// batch has otherwise: a target that had the revision would take the rest for repeated or late.
func TestWaitingDeletionsAreInOneBatch(t *testing.T) {
	const deletions = 2*maxBatch + 1
	s := &server{stream: watch.NewFakeWithChanSize(deletions+10, false)}
	for i := range deletions {
		e := event(watch.Deleted, fmt.Sprintf("o-%d/u@10", i))
		s.stream.Action(e.Type, e.Object)
	}
	for _, e := range []watch.Event{event(watch.Modified, "b/v@12"), event(watch.Modified, "b/v@13"),
		event(watch.Error, "x")} {
		s.stream.Action(e.Type, e.Object)
	}
	w, err := s.source().Watch(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, want := range []struct {
		from, to keepwatch.Revision
		changes  int
	}{{10, 12, deletions + 1}, {12, 13, 1}} {
		if got, err := w.Next(); err != nil || got.From != want.from || got.To != want.to ||
			len(got.Changes) != want.changes {
			t.Errorf("%d-%d with %d changes, want %+v; %v", got.From, got.To, len(got.Changes), want, err)
		}
	}
}

func TestStreamingList(t *testing.T) {
	for name, test := range map[string]struct {
		events  []watch.Event
		objects []string
		at      keepwatch.Revision
		next    string
		fails   keepwatch.FailureKind
	}{
		"a state": {
			events: []watch.Event{event(watch.Added, "a/u@5"), event(watch.Added, "b/v@3"), listEnd("10"),
				event(watch.Modified, "a/u@11")},
			objects: []string{"a/u@5", "b/v@3"}, at: 10, next: "10-11 MODIFIED a@11",
		},
		"changes before the end": {
			events: []watch.Event{event(watch.Added, "a/u@5"), event(watch.Modified, "a/u@11"), listEnd("11"),
				event(watch.Bookmark, "@12")},
			objects: []string{"a/u@5", "a/u@11"}, at: 11, next: "11-12",
		},
		"a deletion before the end": {
			events: []watch.Event{event(watch.Added, "a/u@5"), event(watch.Deleted, "a/u@11"), event(watch.Added, "b/v@12"),
				listEnd("13")},
			objects: []string{"a/u@5"}, at: 10, next: "10-13 DELETED a@11 ADDED b@12",
		},
		"below notOlderThan": {events: []watch.Event{listEnd("6")}, fails: keepwatch.StaleReplica},
		"an early bookmark": {events: []watch.Event{event(watch.Added, "a/u@5"), event(watch.Bookmark, "@10")},
			fails: keepwatch.StreamingListUnsupported},
		"a fake":  {events: []watch.Event{event(watch.Added, "a")}, fails: keepwatch.StreamingListUnsupported},
		"silence": {events: []watch.Event{event(watch.Added, "a/u@5")}, fails: keepwatch.StreamingListUnsupported},
		"expired": {events: []watch.Event{{Type: watch.Error, Object: expired()}}, fails: keepwatch.Expired},
		"reset":   {events: []watch.Event{event(watch.Added, "a/u@5"), {Type: watch.Error, Object: reset()}}, fails: keepwatch.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{stream: watch.NewFakeWithChanSize(20, false)}
				for _, e := range test.events {
					s.stream.Action(e.Type, e.Object)
				}
				var emitted []keepwatch.Object
				at, w, err := s.source().StreamList(t.Context(), 7, func(o []keepwatch.Object) error {
					emitted = append(emitted, o...)
					return nil
				})
				if kind(err) != test.fails {
					t.Fatal(err)
				}
				if err != nil {
					failure, _ := errors.AsType[*keepwatch.Failure](err)
					if test.fails == keepwatch.Unreachable && !failure.Accepted {
						t.Error("the failure does not say that the list was accepted")
					}
					return
				}
				defer w.Close()
				if at != test.at || !slices.Equal(format(emitted), test.objects) {
					t.Errorf("%q at %d", format(emitted), at)
				}
				if next, err := w.Next(); err != nil || formatBatch(next) != test.next {
					t.Errorf("next is %q, %v", formatBatch(next), err)
				}
			})
		})
	}
}

func expired() *metav1.Status {
	status := apierrors.NewResourceExpired("too old").Status()
	return &status
}

// One object without a UID on a later page is skipped: the list would fail for ever.
func TestListSkips(t *testing.T) {
	s := &server{pages: []*corev1.PodList{list("10", "more", pod("a/u@5")), list("10", "", pod("b@6"), pod("c/v@7"))}}
	source := s.source()
	if _, err := source.List(t.Context(), keepwatch.ListRequest{}); err != nil {
		t.Fatal(err)
	}
	page, err := source.List(t.Context(), keepwatch.ListRequest{Continue: "more"})
	if err != nil || !slices.Equal(format(page.Objects), []string{"c/v@7"}) || len(page.Skipped) != 1 {
		t.Errorf("%q, skipped %v, %v", format(page.Objects), page.Skipped, err)
	}
}

// reset returns client-go's event for an HTTP/2 stream that the server has reset.
func reset() *metav1.Status {
	status := apierrors.NewInternalError(errors.New("unable to decode an event from the watch stream: stream error: stream ID 3")).Status()
	status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: "ClientWatchDecoding"})
	return &status
}

// TestListAtMakesProgress checks that ListAt ends if the server repeats a page.
func TestListAtMakesProgress(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", ResourceVersion: "3"}}
	s := New(&cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"}, Items: []corev1.Pod{pod}},
			nil
	}}, "pods")
	pages := 0
	err := s.ListAt(t.Context(), 7, func([]keepwatch.Object) error {
		if pages++; pages > 10 {
			return errors.New("no end")
		}
		return nil
	})
	var failure *keepwatch.Failure
	if !errors.As(err, &failure) || failure.Kind != keepwatch.ProtocolViolation {
		t.Errorf("got %v", err)
	}
}

func TestStreamingListRefused(t *testing.T) {
	for err, want := range map[error]keepwatch.FailureKind{
		apierrors.NewBadRequest("sendInitialEvents?"):                           keepwatch.StreamingListUnsupported,
		errors.New(`strconv.Atoi: parsing "": invalid syntax`):                  keepwatch.StreamingListUnsupported,
		apierrors.NewTooManyRequests("busy", 3):                                 keepwatch.Throttled,
		apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no")):   keepwatch.Forbidden,
		apierrors.NewServiceUnavailable("not now"):                              keepwatch.ServerError,
		&apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: ""}}: keepwatch.StreamingListUnsupported,
	} {
		_, _, got := (&server{err: err}).source().StreamList(t.Context(), 0, nil)
		if kind(got) != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// A client that ignores contexts does not block the source.
func TestCallAbandonsTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		source := New(&cache.ListWatch{ListWithContextFunc: func(context.Context,
			metav1.ListOptions) (runtime.Object, error) {
			<-release
			return list("1", ""), nil
		}}, "pods")
		if _, err := source.List(t.Context(), keepwatch.ListRequest{}); kind(err) != keepwatch.Idle {
			t.Errorf("after silence: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := source.List(ctx, keepwatch.ListRequest{}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		close(release)
	})
}

// Unchanged compares the states at two revisions.
func TestUnchanged(t *testing.T) {
	before := list("5", "", pod("a/1@3"), pod("b/2@5"))
	for name, test := range map[string]struct {
		pages []*corev1.PodList
		want  keepwatch.FailureKind // 0 for unchanged
	}{
		"another resource has changed": {[]*corev1.PodList{list("9", "", pod("a/1@3"), pod("b/2@5")), before}, 0},
		"an object was changed":        {[]*corev1.PodList{list("9", "", pod("a/1@3"), pod("b/2@8"))}, keepwatch.Silent},
		"an object was deleted":        {[]*corev1.PodList{list("9", "", pod("a/1@3")), before}, keepwatch.Silent},
	} {
		s := &server{pages: test.pages}
		failure, _ := errors.AsType[*keepwatch.Failure](s.source().Unchanged(t.Context(), 5, 9))
		if failure == nil && test.want != 0 || failure != nil && failure.Kind != test.want {
			t.Errorf("%s: %v, want %v", name, failure, test.want)
		}
	}
}
