package storage_test

import (
	"fmt"
	"io"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch/store"
)

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
	// The history holds almost nothing: a watch that has not received "seen" when it is deleted would
	// receive neither event.
	expect(t, w, eventText(watch.Added, r.create("seen")))
	expect(t, w, eventText(watch.Deleted, r.delete("seen")))
	old := r.watch("/pods/", from(fmt.Sprint(must(r.Versioner().ParseResourceVersion(gone.ResourceVersion))(t)-1)))
	expect(t, old, eventText(watch.Deleted, gone))
}

// A watch with a selector that resumes from before the window receives the difference, too: objects that
// no longer match are DELETED, objects that match now are ADDED, and others do not appear. An object that left
// the selection and came back is DELETED and ADDED: if the watch breaks in between, and the object leaves again,
// the next watch has no event of it.
func TestSelectorBehindTheWindow(t *testing.T) {
	t.Parallel()
	r := newRigWithShortHistory(t)
	r.create("in")
	r.create("out")
	r.create("back")
	r.create("gone")
	r.create("hidden")
	r.label("out", "x")
	r.label("gone", "x")
	r.label("back", "x")
	begin := r.label("hidden", "y")
	out := r.label("out", "y")
	r.label("out", "z")
	in := r.label("in", "x")
	gone := r.delete("gone")
	r.delete("hidden")
	left := r.label("back", "z")
	r.create("between")
	between := r.label("between", "x")
	back := r.label("back", "x")
	r.dropHistory()
	w := r.watch("/pods/", withLabel(from(begin.ResourceVersion), "x"))
	expect(t, w, eventText(watch.Deleted, out), eventText(watch.Added, in), eventText(watch.Deleted, gone),
		eventText(watch.Deleted, left), eventText(watch.Added, between), eventText(watch.Added, back))
	r.label("back", "y")
	r.create("last")
	last := r.label("last", "x")
	r.dropHistory()
	expect(t, r.watch("/pods/", withLabel(from(between.ResourceVersion), "x")), eventText(watch.Added, last))
}

// The states that selectors need behind the window are bounded by AttributeBytes.
// Beyond that a watch receives 410. A watch by name does not need these states.
func TestSelectorBehindTheAttributesExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{store: store.Options{WindowBytes: 1, AttributeBytes: 1}})
	begin := r.create("a")
	r.label("a", "x")
	r.label("a", "y")
	r.dropHistory()
	expect(t, r.watch("/pods/", withLabel(from(begin.ResourceVersion), "x")), "ERROR Expired", "end")

	byName := from(begin.ResourceVersion)
	byName.Predicate = apistorage.SelectionPredicate{Label: labels.Everything(),
		Field: fields.ParseSelectorOrDie("metadata.name=a"), GetAttrs: podAttrs}
	now := r.list(everything).Items[0]
	expect(t, r.watch("/pods/", byName), eventText(watch.Modified, &now))
}

// A watch from a revision that etcd does not have ends with an error: it would wait forever (kubernetes
// #107457).
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
			if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) ||
				!strings.Contains(err.Error(), "too old resource version: "+revision) {
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

// All watches share the encoding of a change, and none can change it for the others.
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

// Each watch encodes the changes that are older than the watch, and shares those that are not.
func TestResumedWatchesEncode(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	first := r.create("a")
	labeled, deleted := r.label("a", "x"), r.delete("a")
	r.list(everything)          // waits until the storage has the deletion
	encoded := map[string]int{} // by the object's revision
	encode := func(o runtime.Object, w io.Writer) error {
		pod := o.(*example.Pod)
		encoded[pod.ResourceVersion]++
		pod.Name = "spoiled"
		_, err := io.WriteString(w, pod.ResourceVersion)
		return err
	}
	watches := []watch.Interface{r.watch("/pods/", from(first.ResourceVersion)),
		r.watch("/pods/", from(first.ResourceVersion))}
	again := r.create("a")
	for _, w := range watches {
		for range 3 {
			o := (<-w.ResultChan()).Object
			var text textWriter
			if err := o.(runtime.CacheableObject).CacheEncode("id", encode, &text); err != nil {
				t.Fatal(err)
			}
			if pod := o.(runtime.CacheableObject).GetObject().(*example.Pod); pod.Name != "a" ||
				string(text) != pod.ResourceVersion {
				t.Errorf("encoded is %s, and the object is %s at %s", text, pod.Name, pod.ResourceVersion)
			}
		}
	}
	want := map[string]int{labeled.ResourceVersion: 2, deleted.ResourceVersion: 2, again.ResourceVersion: 1}
	if !maps.Equal(encoded, want) {
		t.Errorf("encoded, by revision: %v, want %v", encoded, want)
	}
}

// Without sharing, each watch may change the objects of its events, as a registry's decorator does.
func TestUnsharedObjects(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{unshared: true})
	first := r.create("a")
	watches := []watch.Interface{r.watch("/pods/", from(first.ResourceVersion)),
		r.watch("/pods/", from(first.ResourceVersion))}
	for _, last := range []*example.Pod{r.label("a", "x"), r.delete("a")} {
		for _, w := range watches {
			pod, ok := (<-w.ResultChan()).Object.(*example.Pod)
			if !ok || pod.Name != "a" || pod.ResourceVersion != last.ResourceVersion {
				t.Fatalf("got %v, want %v", pod, last)
			}
			pod.Name = "changed"
		}
	}
}

type textWriter []byte

func (w *textWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
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

// A watch whose storage ends sends what its cache has, however late its reader takes it: the last deletions of a
// definition that was deleted have no other watch.
func TestReaderBehindTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{memory: true, follows: true})
	const n = 100
	for i := range n {
		r.create(fmt.Sprint("p", i))
	}
	w := r.watch("/pods/", everything)
	for i := range n {
		r.delete(fmt.Sprint("p", i))
	}
	r.stop()
	deleted := 0
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			deleted++
		}
	}
	if deleted != n {
		t.Errorf("%d of %d deletions arrived", deleted, n)
	}
}
