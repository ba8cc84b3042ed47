package watchcache_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// While the source's watch lags, a list waits for it once, and reads of one object do not wait after that: the source
// answers both. When the cache has caught up, it answers again.
func TestReadsWaitOnceForALateSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, store.Options{})
		r.source.put("a", "x")
		synctest.Wait()
		r.source.lag(true)
		r.source.put("b", "x")

		took := func(what string, want time.Duration, read func()) {
			t.Helper()
			began := time.Now()
			if read(); time.Since(began) != want {
				t.Errorf("%s took %v, want %v", what, time.Since(began), want)
			}
		}
		late := func(err error) {
			t.Helper()
			if !apistorage.IsTooLargeResourceVersion(err) {
				t.Error(err)
			}
		}
		one := apistorage.ListOptions{Predicate: apistorage.Everything}
		initial := everythingBelow()
		initial.SendInitialEvents = ptr.To(true)
		ctx := watchcache.Waited(t.Context())
		took("a list", 3*time.Second, func() {
			_, err := r.List(t.Context(), "/widgets/", everythingBelow())
			late(err)
		})
		took("a list that has waited", 0, func() {
			_, err := r.List(ctx, "/widgets/", everythingBelow())
			late(err)
		})
		took("a watch that has waited", 0, func() {
			_, err := r.Watch(ctx, "/widgets/", initial)
			late(err)
		})
		took("a read of a future state that has waited", 0, func() { late(r.WaitForRevision(ctx, 1000)) })
		took("one object", 0, func() {
			if _, err := r.Get(t.Context(), "/widgets/ns/b", ""); !errors.Is(err, watchcache.ErrNotConfirmed) {
				t.Error(err)
			}
		})
		took("a list of one object", 0, func() {
			_, err := r.List(t.Context(), "/widgets/ns/b", one)
			late(err)
		})

		r.source.lag(false)
		synctest.Wait()
		if names, _, err := r.list(everything); err != nil || !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%v, %v", names, err)
		}
		r.source.lag(true)
		r.source.put("c", "x")
		time.AfterFunc(time.Second, func() { r.source.lag(false) })
		took("one object, of a cache that was not late", time.Second, func() {
			if _, err := r.Get(t.Context(), "/widgets/ns/c", ""); err != nil {
				t.Error(err)
			}
		})
	})
}
