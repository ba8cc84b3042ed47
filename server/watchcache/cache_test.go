package watchcache_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// Each resourceVersion and match selects its state.
func TestStatesOfLists(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	first := r.source.put("a", "x")
	r.source.put("b", "x")
	r.source.remove("a")
	last := r.source.put("c", "y")
	exactly := at(first, everything)
	exactly.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	for name, test := range map[string]struct {
		options apistorage.ListOptions
		want    []string
	}{
		"consistent":           {everything, []string{"b", "c"}},
		"with a selector":      {withLabel("y"), []string{"c"}},
		"not older":            {at(last, everything), []string{"b", "c"}},
		"exact":                {exactly, []string{"a"}},
		"any, which is cached": {at(0, everything), []string{"b", "c"}},
	} {
		if name == "any, which is cached" {
			if err := r.WaitForRevision(t.Context(), last); err != nil {
				t.Fatal(err)
			}
		}
		if names, _, err := r.list(test.options); err != nil || !slices.Equal(names, test.want) {
			t.Errorf("%s: %v, %v; want %v", name, names, err, test.want)
		}
	}
}

// All pages show the state of the first one.
func TestPagesShowOneState(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		r.source.put(name, "x")
	}
	var all []string
	page := everything
	for page.Predicate.Limit = 2; ; {
		names, result, err := r.list(page)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, names...)
		r.source.put("d2", "x")
		r.source.remove("e")
		r.source.put("e", "x")
		if page.Predicate.Continue = result.Continue; page.Predicate.Continue == "" {
			break
		}
	}
	if want := []string{"a", "b", "c", "d", "e"}; !slices.Equal(all, want) {
		t.Errorf("the pages show %v, want %v", all, want)
	}
}

// A consistent read waits for a source whose watch lags behind, and a read at a future revision
// fails.
func TestReadsWaitForTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{})
		r.source.lag(true)
		written := r.source.put("a", "x")
		if names, _, err := r.list(at(0, everything)); err != nil || len(names) > 0 {
			t.Errorf("any state shows %v, %v", names, err)
		}
		go func() {
			for r.source.newestReported() < written {
				<-time.After(time.Millisecond)
			}
			r.source.lag(false)
		}()
		if names, _, err := r.list(everything); err != nil || !slices.Equal(names, []string{"a"}) {
			t.Errorf("a consistent list shows %v, %v", names, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.WaitForRevision(ended, written+1000); !apistorage.IsTooLargeResourceVersion(err) {
			t.Errorf("a future revision: %v", err)
		}
	})
}

// While the source is unavailable, consistent reads fail with that error, and reads of any state succeed.
func TestUnavailableSource(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	written := r.source.put("a", "x")
	if err := r.WaitForRevision(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	r.source.fail(keepwatch.Failed(keepwatch.Unreachable, "unavailable"))
	if _, _, err := r.list(everything); !apistorage.IsUnreachable(err) {
		t.Errorf("a consistent list: %v", err)
	}
	if _, err := r.Get(t.Context(), "/widgets/ns/a", ""); !apistorage.IsUnreachable(err) {
		t.Errorf("a consistent read: %v", err)
	}
	if names, _, err := r.list(at(written, everything)); err != nil || len(names) != 1 {
		t.Errorf("what is cached: %v, %v", names, err)
	}
	var refused watchcache.RequestError
	initial := everythingBelow()
	initial.SendInitialEvents = ptr.To(true)
	if _, err := r.Watch(t.Context(), "/widgets/", initial); !errors.As(err, &refused) ||
		!apierrors.IsTooManyRequests(err) {
		t.Errorf("a watch with the newest state: %v", err)
	}
	r.source.fail(keepwatch.Failed(keepwatch.ServerError, "something else"))
	if _, _, err := r.list(everything); !errors.Is(err, watchcache.ErrNotConfirmed) {
		t.Errorf("a consistent list with another failure: %v", err)
	}
}

// Get returns the object, NotFound, or ErrNotCached for a key of another form.
func TestGet(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	r.source.put("a", "x")
	o, err := r.Get(t.Context(), "/widgets/ns/a", "")
	if err != nil || o.Labels().Get("l") != "x" || len(o.Bytes()) == 0 || o.Protobuf() {
		t.Errorf("got %v, %v", o, err)
	}
	if _, err := r.Get(t.Context(), "/widgets/ns/b", ""); !apistorage.IsNotFound(err) {
		t.Errorf("a missing object: %v", err)
	}
	if _, err := r.Get(t.Context(), "/widgets/no/such/key", ""); !errors.Is(err, watchcache.ErrNotCached) {
		t.Errorf("a key of another form: %v", err)
	}
	if r.Cached("/widgets/ns/a") != o || r.Cached("/widgets/ns/b") != nil {
		t.Error("the cached object is another one")
	}
}

// Before the cache has caught up, and after its end, reads fail.
func TestReadiness(t *testing.T) {
	t.Parallel()
	r := newCache(t, store.Options{})
	r.source.fail(keepwatch.Failed(keepwatch.Unreachable, "unavailable"))
	r.start()
	if _, _, err := r.list(everything); !errors.Is(err, apistorage.ErrStorageNotReady) {
		t.Errorf("before the start: %v", err)
	}
	r.source.fail(nil)
	r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
	r.cancel()
	<-r.Ended()
	if _, _, err := r.list(everything); !errors.Is(err, apistorage.ErrStorageNotReady) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := r.Get(t.Context(), "/widgets/ns/a", ""); !errors.Is(err, watchcache.ErrNotCached) {
		t.Errorf("after the end: %v", err)
	}
}

// A source that breaks its contract ends the cache with the cause.
func TestInvariantViolationEndsTheCache(t *testing.T) {
	t.Parallel()
	r := newRig(t, store.Options{})
	w, err := r.Watch(t.Context(), "/widgets/", at(1, everythingBelow()))
	if err != nil {
		t.Fatal(err)
	}
	r.source.breakWatch(keepwatch.Failed(keepwatch.InvariantViolation, "planted"))
	if err, failure := <-r.ended, (*keepwatch.Failure)(nil); !errors.As(err, &failure) ||
		failure.Kind != keepwatch.InvariantViolation {
		t.Errorf("it ended with: %v", err)
	}
	if err := w.Serve(t.Context(), nil, &recorder{}); err != nil {
		t.Errorf("a watch ended with: %v", err)
	}
	if err := r.ReadinessCheck(); err == nil {
		t.Error("the cache is ready")
	}
}
