package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/storage"
)

// everything is a list or watch of all pods.
var everything = apistorage.ListOptions{Predicate: apistorage.Everything, Recursive: true}

// An exact list of one object at a future revision fails at once and without Retry-After, as in
// kube-apiserver, which delegates it to etcd.
func TestOneObjectOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{memory: true})
		r.create("a")
		for recursive, seconds := range map[bool]int{true: 1, false: 0} {
			key := "/pods/ns"
			if !recursive {
				key += "/a"
			}
			for _, revision := range []string{"999999999", "9223372036854775808"} { // which is no revision of etcd's
				begun := time.Now()
				err := r.GetList(t.Context(), key, apistorage.ListOptions{
					ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
					Predicate: apistorage.Everything, Recursive: recursive,
				}, &example.PodList{})
				after, _ := apierrors.SuggestsClientDelay(err)
				if waited := time.Since(begun); !apistorage.IsTooLargeResourceVersion(err) || after != seconds ||
					(waited > 0) != recursive {
					t.Errorf("recursive %v: at %s, after %v: %v, Retry-After %d s", recursive, revision, waited, err, after)
				}
			}
		}
	})
}

// A page at a revision that etcd has compacted is refused at once, not only the page after it. A whole list at this
// revision is answered, as long as the cache has the state.
func TestPagesExpireWithEtcd(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.create("a")
	at := r.create("b").ResourceVersion
	page := exactly(at)
	page.Predicate.Limit = 1
	if items := r.list(page).Items; len(items) != 1 {
		t.Errorf("a page shows %v", items)
	}
	r.compactOnly(t.Context(), t, r.create("c").ResourceVersion)
	if err := r.GetList(t.Context(), "/pods/", page, &example.PodList{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v", err)
	}
	if items := r.list(exactly(at)).Items; len(items) != 2 {
		t.Errorf("a list shows %v", items)
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
	err := r.Create(t.Context(), "/pods/ns/a", &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}},
		nil, 0)
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
	err := r.Create(t.Context(), "/pods/ns/a", &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}},
		nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := everything
	o.Predicate = apistorage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.ParseSelectorOrDie("spec.nodeName=n"), GetAttrs: podAttrs,
		IndexFields: []string{"spec.nodeName"},
	}
	if err := r.GetList(t.Context(), "/pods/", o, &example.PodList{}); !apistorage.IsInternalError(err) {
		t.Errorf("got %v", err)
	}
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
			pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
				Labels: map[string]string{"l": fmt.Sprint(i % 2)}}}
			if err := r.Create(t.Context(), "/pods/ns/"+name, pod, nil, 0); apistorage.IsExist(err) {
				err = r.Delete(t.Context(), "/pods/ns/"+name, &example.Pod{}, nil, apistorage.ValidateAllObjectFunc, nil,
					apistorage.DeleteOptions{})
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
				if err := r.Get(t.Context(), "/pods/ns/a", apistorage.GetOptions{}, got); err != nil ||
					got.ResourceVersion != written.ResourceVersion {
					t.Errorf("got %s, %v; written was %s", got.ResourceVersion, err, written.ResourceVersion)
				}
				into := &example.PodList{}
				if err := r.GetList(t.Context(), "/pods/", everything, into); err != nil ||
					into.Items[0].ResourceVersion != written.ResourceVersion {
					t.Errorf("listed %v, %v; written was %s", into.Items, err, written.ResourceVersion)
				}
			})
		}
		read.Wait()
	}
}

// A storage whose invariant does not hold ends, and reports the cause to its owner.
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
		if failure := (*keepwatch.Failure)(nil); !errors.As(err, &failure) || failure.Kind != keepwatch.InvariantViolation ||
			!strings.HasPrefix(err.Error(), "the storage of pods stopped: ") {
			t.Errorf("it ended with: %v", err)
		}
	case <-time.After(await.Deadline):
		t.Fatal("the end was not reported")
	}
	if err := s.ReadinessCheck(); err == nil {
		t.Error("it is ready")
	}
}
