package storage_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/storage"
	"github.com/keepwatch/keepwatch/store"
)

// everything is a list or watch of all pods.
var everything = apistorage.ListOptions{Predicate: apistorage.Everything, Recursive: true}

func from(revision string) apistorage.ListOptions {
	o := everything
	o.ResourceVersion = revision
	return o
}

func exactly(revision string) apistorage.ListOptions {
	o := from(revision)
	o.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	return o
}

func (r *rig) create(name string) *example.Pod {
	r.t.Helper()
	out := &example.Pod{}
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if err := r.Create(r.t.Context(), "/pods/ns/"+name, pod, out, 0); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// label updates a pod.
func (r *rig) label(name, value string) *example.Pod {
	r.t.Helper()
	out := &example.Pod{}
	err := r.GuaranteedUpdate(r.t.Context(), "/pods/ns/"+name, out, false, nil, apistorage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		pod := o.(*example.Pod)
		pod.Labels = map[string]string{"l": value}
		return pod, nil
	}), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) delete(name string) *example.Pod {
	r.t.Helper()
	out := &example.Pod{}
	if err := r.Delete(r.t.Context(), "/pods/ns/"+name, out, nil, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) list(o apistorage.ListOptions) *example.PodList {
	r.t.Helper()
	into := &example.PodList{}
	if err := r.GetList(r.t.Context(), "/pods/", o, into); err != nil {
		r.t.Fatal(err)
	}
	return into
}

func (r *rig) watch(key string, o apistorage.ListOptions) watch.Interface {
	r.t.Helper()
	w, err := r.Watch(r.t.Context(), key, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(w.Stop)
	return w
}

// next is a watch's next event as text: type, name, revision.
func next(t testing.TB, w watch.Interface) string {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			return "end"
		}
		return show(e)
	case <-time.After(patience):
		t.Fatal("the watch sends nothing")
		return ""
	}
}

func show(e watch.Event) string {
	if e.Type == watch.Error {
		return fmt.Sprintf("ERROR %s", apierrors.ReasonForError(apierrors.FromObject(e.Object)))
	}
	o := e.Object
	if shared, ok := o.(runtime.CacheableObject); ok {
		o = shared.GetObject()
	}
	pod := o.(*example.Pod)
	return fmt.Sprintf("%s %s %s", e.Type, pod.Name, pod.ResourceVersion)
}

func expect(t testing.TB, w watch.Interface, events ...string) {
	t.Helper()
	for _, want := range events {
		if got := next(t, w); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func eventText(e watch.EventType, pod *example.Pod) string {
	return fmt.Sprintf("%s %s %s", e, pod.Name, pod.ResourceVersion)
}

// newRigWithShortHistory returns a rig whose window contains the last changes only.
func newRigWithShortHistory(t testing.TB) *rig {
	return newRig(t, options{store: store.Options{WindowBytes: 1}})
}

// dropHistory writes until the earlier changes have left the window.
func (r *rig) dropHistory() {
	r.t.Helper()
	for range 4 {
		r.create("other")
		r.list(everything) // so that the next change is a batch of its own
		r.delete("other")
		r.list(everything)
	}
}

// withLabel adds a selector for l=value.
func withLabel(o apistorage.ListOptions, value string) apistorage.ListOptions {
	o.Predicate = apistorage.SelectionPredicate{Label: labels.SelectorFromSet(labels.Set{"l": value}), Field: fields.Everything(), GetAttrs: podAttrs}
	return o
}

// A new process knows the history before its start: watches resume with exact events, and lists at past
// revisions are exact.
func TestWatchesResumeAfterARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	a := r.create("a")
	b := r.create("b")
	changed := r.label("a", "x")
	r.restart()
	gone := r.delete("b")
	w := r.watch("/pods/", from(a.ResourceVersion))
	expect(t, w, eventText(watch.Added, b), eventText(watch.Modified, changed), eventText(watch.Deleted, gone))
	if items := r.list(exactly(b.ResourceVersion)).Items; len(items) != 2 || items[0].Labels != nil {
		t.Errorf("at revision %s: %v", b.ResourceVersion, items)
	}
}

// A watch from before the window receives the difference, in an order in which it can stop after any
// event and resume from there.
func TestWatchBehindTheWindow(t *testing.T) {
	t.Parallel()
	r := newRigWithShortHistory(t)
	begin := r.create("z")
	r.create("gone")
	r.create("stays")
	r.label("z", "1")
	gone := r.delete("gone")
	stays := r.label("stays", "1")
	z := r.label("z", "2")
	last := r.create("a")
	r.dropHistory()
	w := r.watch("/pods/", from(begin.ResourceVersion))
	// "gone" was created and deleted meanwhile.
	expect(t, w, eventText(watch.Added, stays), eventText(watch.Modified, z), eventText(watch.Added, last))
	later := r.watch("/pods/", from(z.ResourceVersion))
	expect(t, later, eventText(watch.Added, last))
	seen := r.create("seen")
	end := r.delete("seen")
	expect(t, w, eventText(watch.Added, seen), eventText(watch.Deleted, end))
	old := r.watch("/pods/", from(fmt.Sprint(must(r.Versioner().ParseResourceVersion(gone.ResourceVersion))(t)-1)))
	expect(t, old, eventText(watch.Deleted, gone))
}

// A watch with a selector receives the difference behind the window, too: what matched then
// and does not now as deleted, what matches now and did not as added, and nothing of what
// never matched.
func TestSelectorBehindTheWindow(t *testing.T) {
	t.Parallel()
	r := newRigWithShortHistory(t)
	r.create("in")
	r.create("out")
	r.create("stays")
	r.create("gone")
	r.create("hidden")
	r.label("out", "x")
	r.label("gone", "x")
	r.label("stays", "x")
	begin := r.label("hidden", "y")
	out := r.label("out", "y")
	r.label("out", "z")
	in := r.label("in", "x")
	gone := r.delete("gone")
	r.delete("hidden")
	r.label("stays", "z")
	stays := r.label("stays", "x")
	r.dropHistory()
	w := r.watch("/pods/", withLabel(from(begin.ResourceVersion), "x"))
	out.Labels["l"] = "x"
	expect(t, w, eventText(watch.Deleted, out), eventText(watch.Added, in), eventText(watch.Deleted, gone), eventText(watch.Modified, stays))
	r.create("other")
	last := r.label("other", "x")
	expect(t, w, eventText(watch.Added, last))
}

// The states that selectors need behind the window are bounded by AttributeBytes.
// Beyond it a watch gets 410, but one by name does not need the log.
func TestSelectorBehindTheAttributesExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{store: store.Options{WindowBytes: 1, AttributeBytes: 1}})
	begin := r.create("a")
	r.label("a", "x")
	r.label("a", "y")
	r.dropHistory()
	expect(t, r.watch("/pods/", withLabel(from(begin.ResourceVersion), "x")), "ERROR Expired", "end")

	byName := from(begin.ResourceVersion)
	byName.Predicate = apistorage.SelectionPredicate{Label: labels.Everything(), Field: fields.ParseSelectorOrDie("metadata.name=a"), GetAttrs: podAttrs}
	now := r.list(everything).Items[0]
	expect(t, r.watch("/pods/", byName), eventText(watch.Modified, &now))
}

// A watch from a revision that etcd does not have would wait for ever (kubernetes
// #107457).
// An exact list of one object of the future is refused at once, and without a time to
// ask again, as by kube-apiserver, which leaves it to etcd.
func TestOneObjectOfTheFuture(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.create("a")
	for recursive, seconds := range map[bool]int{true: 1, false: 0} {
		key := "/pods/ns"
		if !recursive {
			key += "/a"
		}
		for _, revision := range []string{"999999999", "9223372036854775808"} { // which is no revision of etcd's
			err := r.GetList(t.Context(), key, apistorage.ListOptions{
				ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Predicate: apistorage.Everything, Recursive: recursive,
			}, &example.PodList{})
			if after, _ := apierrors.SuggestsClientDelay(err); !apistorage.IsTooLargeResourceVersion(err) || after != seconds {
				t.Errorf("recursive %v: at %s: %v, Retry-After %d s", recursive, revision, err, after)
			}
		}
	}
}

func TestWatchFromTheFuture(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	for _, initial := range []*bool{nil, ptr.To(false), ptr.To(true)} {
		for _, revision := range []string{"1000000", "9223372036854775808"} { // which is no revision of etcd's
			o := from(revision)
			if o.SendInitialEvents = initial; initial != nil {
				o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
			}
			e := <-r.watch("/pods/", o).ResultChan()
			if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) || !strings.Contains(err.Error(), "too old resource version: "+revision) {
				t.Errorf("from %s: got %v %v", revision, e.Type, err)
			}
		}
	}
	// But one from a revision that the store has not heard of is no such thing.
	a := r.create("a")
	revision := r.increaseRV(t.Context(), t)
	w := r.watch("/pods/", from(fmt.Sprint(revision)))
	expect(t, w, eventText(watch.Modified, r.label("a", "x")))
	if a.ResourceVersion == fmt.Sprint(revision) {
		t.Error("the revision is a pod's")
	}
}

// An object that could not be decoded is tried again, so that a short failure of a key server has no
// lasting effect.
func TestTransientFailureToDecode(t *testing.T) {
	t.Parallel()
	f := &failing{Transformer: identity.NewEncryptCheckTransformer()}
	r := newRig(t, options{transformer: f})
	before := r.create("before")
	f.set(true)
	err := r.Create(t.Context(), "/pods/ns/a", &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	into := &example.PodList{}
	if err := r.GetList(t.Context(), "/pods/", everything, into); !apistorage.IsInternalError(err) {
		t.Errorf("a list shows %v, %v", into.Items, err)
	}
	if err := r.Get(t.Context(), "/pods/ns/a", apistorage.GetOptions{}, &example.Pod{}); !apistorage.IsInternalError(err) {
		t.Errorf("got %v", err)
	}
	expect(t, r.watch("/pods/", from(before.ResourceVersion)), "ERROR InternalError", "end")
	if err := r.GetList(t.Context(), "/pods/other", everything, into); err != nil {
		t.Errorf("it is in the way of another namespace's list: %v", err)
	}
	f.set(false)
	items := r.list(everything).Items
	if len(items) != 2 {
		t.Fatalf("a list shows %v", items)
	}
	expect(t, r.watch("/pods/", from(before.ResourceVersion)), eventText(watch.Added, &items[0]))
}

// An index must not hide an object that can't be read.
func TestIndexDoesNotHideUndecodable(t *testing.T) {
	t.Parallel()
	f := &failing{Transformer: identity.NewEncryptCheckTransformer()}
	r := newRig(t, options{transformer: f, indexers: podIndexers})
	f.set(true)
	err := r.Create(t.Context(), "/pods/ns/a", &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := everything
	o.Predicate = apistorage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.ParseSelectorOrDie("spec.nodeName=n"), GetAttrs: podAttrs, IndexFields: []string{"spec.nodeName"},
	}
	if err := r.GetList(t.Context(), "/pods/", o, &example.PodList{}); !apistorage.IsInternalError(err) {
		t.Errorf("got %v", err)
	}
}

// All watches of a change share its encoding, and none can spoil it for the others.
func TestWatchesShareEncodings(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	first := r.create("a")
	var encoded atomic.Int32
	encode := func(o runtime.Object, w io.Writer) error {
		encoded.Add(1)
		o.(*example.Pod).Name = "spoiled"
		_, err := io.WriteString(w, o.(*example.Pod).ResourceVersion)
		return err
	}
	var watches []watch.Interface
	for range 10 {
		watches = append(watches, r.watch("/pods/", from(first.ResourceVersion)))
	}
	for _, last := range []*example.Pod{r.label("a", "x"), r.delete("a")} {
		encoded.Store(0)
		for _, w := range watches {
			o := (<-w.ResultChan()).Object
			var text textWriter
			if err := o.(runtime.CacheableObject).CacheEncode("id", encode, &text); err != nil {
				t.Fatal(err)
			}
			if string(text) != last.ResourceVersion {
				t.Errorf("encoded is %s, want %s", text, last.ResourceVersion)
			}
			if name := o.(runtime.CacheableObject).GetObject().(*example.Pod).Name; name != "a" {
				t.Errorf("the object is called %s", name)
			}
		}
		if n := encoded.Load(); n != 1 {
			t.Errorf("it was encoded %d times", n)
		}
	}
}

type textWriter []byte

func (w *textWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

// Lists of one revision are equal, whatever is written meanwhile.
func TestListsOfOneRevisionAreEqual(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := fmt.Sprintf("p%03d", i%50)
			pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"l": fmt.Sprint(i % 2)}}}
			if err := r.Create(t.Context(), "/pods/ns/"+name, pod, nil, 0); apistorage.IsExist(err) {
				err = r.Delete(t.Context(), "/pods/ns/"+name, &example.Pod{}, nil, apistorage.ValidateAllObjectFunc, nil, apistorage.DeleteOptions{})
				if err != nil {
					t.Error(err)
				}
			} else if err != nil {
				t.Error(err)
			}
		}
	})
	defer writer.Wait()
	defer close(stop)
	for range 50 {
		o := withLabel(everything, "1")
		o.Predicate.Limit = 4
		first := r.list(o)
		again := withLabel(exactly(first.ResourceVersion), "1")
		again.Predicate.Limit = 4
		second := r.list(again)
		if a, b := fmt.Sprint(first.ListMeta, first.Items), fmt.Sprint(second.ListMeta, second.Items); a != b {
			t.Fatalf("first\n%s\nthen\n%s", a, b)
		}
	}
}

// A consistent read returns all writes that were acknowledged before.
func TestConsistentReadsSeeWhatWasWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.create("a")
	for i := range 100 {
		written := r.label("a", fmt.Sprint(i))
		var read sync.WaitGroup
		for range 4 {
			read.Go(func() {
				got := &example.Pod{}
				if err := r.Get(t.Context(), "/pods/ns/a", apistorage.GetOptions{}, got); err != nil || got.ResourceVersion != written.ResourceVersion {
					t.Errorf("got %s, %v; written was %s", got.ResourceVersion, err, written.ResourceVersion)
				}
				into := &example.PodList{}
				if err := r.GetList(t.Context(), "/pods/", everything, into); err != nil || into.Items[0].ResourceVersion != written.ResourceVersion {
					t.Errorf("listed %v, %v; written was %s", into.Items, err, written.ResourceVersion)
				}
			})
		}
		read.Wait()
	}
}

// The end of a storage ends its watches, without an error.
func TestStopEndsWatches(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	w := r.watch("/pods/", everything)
	r.stop()
	expect(t, w, "end")
	if err := r.ReadinessCheck(); err == nil {
		t.Error("it is ready")
	}
}

// A storage whose invariant does not hold ends, and reports the cause to its owner: it
// would answer nothing any more.
func TestInvariantViolationEndsTheStorage(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	r := newRig(t, options{failed: func(err error) { failed <- err }})
	r.create("a")
	s := r.Interface.(*storage.Storage)
	if err := s.Break(); err != nil {
		t.Fatal(err)
	}
	r.create("b")
	select {
	case err := <-failed:
		if failure := (*keepwatch.Failure)(nil); !errors.As(err, &failure) || failure.Kind != keepwatch.InvariantViolation || !strings.HasPrefix(err.Error(), "the storage of pods stopped: ") {
			t.Errorf("it ended with: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the end was not reported")
	}
	if err := s.ReadinessCheck(); err == nil {
		t.Error("it is ready")
	}
}
