package watchcache_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"weak"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// namesIn returns the names of the widgets of a cache with a label.
func namesIn(t *testing.T, c *watchcache.Cache, label string) (names []string) {
	t.Helper()
	names, _, err := (&rig{Cache: c, t: t}).list(withLabel(label))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Still caches show their own snapshots, and what they share is the same object. A cache that begins with a snapshot
// goes on from there.
func TestCachesOfSnapshots(t *testing.T) {
	t.Parallel()
	root := newCache(t, store.Options{})
	object := func(name, label string, revision keepwatch.Revision) keepwatch.Object {
		i := &item{key: keepwatch.Key{Namespace: "ns", Name: name}, uid: keepwatch.UID(name), revision: revision,
			value: widget(name, label)}
		return root.NewObject(i, i.value)
	}
	first := (&store.Snapshot{}).With(10, nil, []keepwatch.Object{object("a", "x", 3), object("b", "x", 5)})
	second := first.With(7, []keepwatch.Key{{Namespace: "ns", Name: "b"}}, []keepwatch.Object{object("c", "x", 6)})
	for at, want := range map[*store.Snapshot][]string{first: {"a", "b"}, second: {"a", "c"}} {
		c := root.Still(at)
		if err := c.ReadinessCheck(); err != nil {
			t.Fatal(err)
		}
		if got := namesIn(t, c, "x"); !slices.Equal(got, want) {
			t.Errorf("at %d: %v, want %v", at.Revision(), got, want)
		}
		if got := namesIn(t, c, "y"); len(got) != 0 {
			t.Errorf("at %d: %v", at.Revision(), got)
		}
	}
	a, _ := first.Get(keepwatch.Key{Namespace: "ns", Name: "a"})
	if again, _ := second.Get(keepwatch.Key{Namespace: "ns", Name: "a"}); again != a {
		t.Error("an object that both snapshots have is not the same")
	}
	var source *memory
	onward, err := root.At(second, func(c *watchcache.Cache) (watchcache.Source, error) {
		source = newMemory(c)
		source.newest = second.Revision()
		return source, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- onward.Run(ctx) }()
	await.Receive(t, "the cache is ready", onward.Ready())
	source.put("d", "x")
	await.True(t, "the cache has what followed", func() bool { return onward.Revision() == second.Revision()+1 })
	if got := namesIn(t, onward, "x"); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("onward: %v", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An object of a cache that is not used any more keeps nothing of it alive but itself.
func TestObjectsKeepNoCache(t *testing.T) {
	t.Parallel()
	root := newCache(t, store.Options{})
	i := &item{key: keepwatch.Key{Namespace: "ns", Name: "a"}, uid: "a", revision: 3, value: widget("a", "x")}
	object := root.NewObject(i, i.value)
	cache := root.Still((&store.Snapshot{}).With(10, nil, []keepwatch.Object{object}))
	dropped := weak.Make(cache)
	if got := namesIn(t, cache, "x"); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("%v", got)
	}
	cache = nil
	await.True(t, "the cache is collected", func() bool { runtime.GC(); return dropped.Value() == nil })
	runtime.KeepAlive(object)
}
