package watchcache_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	parser "k8s.io/apiserver/pkg/sharding"
	apistorage "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

func withShards(t testing.TB, on bool) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, on)
}

// randomShard returns a selector of one to three ranges.
func randomShard(t testing.TB, rng *rand.Rand) sharding.Selector {
	field := []string{"object.metadata.uid", "object.metadata.namespace"}[rng.IntN(2)]
	bounds := []string{"0x0000000000000000", "0x10000000000000000"}
	for range 1 + rng.IntN(5) {
		bounds = append(bounds, fmt.Sprintf("0x%016x", rng.Uint64()))
	}
	slices.SortFunc(bounds, func(a, b string) int {
		if sharding.HexLess(a, b) {
			return -1
		}
		return 1
	})
	bounds = slices.Compact(bounds)
	var ranges []string
	for range 1 + rng.IntN(3) {
		i := rng.IntN(len(bounds) - 1)
		ranges = append(ranges, fmt.Sprintf("shardRange(%s, '%s', '%s')", field, bounds[i], bounds[i+1]))
	}
	selector, err := parser.Parse(strings.Join(ranges, " || "))
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

// shardWorld is a rig with widgets in some namespaces, which are written at random.
type shardWorld struct {
	*rig
	rng *rand.Rand
}

// change creates, changes or deletes a widget. A widget that is created again has another UID.
func (w shardWorld) change() (at keepwatch.Revision) {
	key := keepwatch.Key{Namespace: fmt.Sprintf("ns-%d", w.rng.IntN(4)), Name: fmt.Sprintf("w-%d", w.rng.IntN(6))}
	uid := fmt.Sprintf("%016x", w.rng.Uint64())
	w.source.mu.Lock()
	before := w.source.current[key]
	w.source.mu.Unlock()
	if before != nil {
		if w.rng.IntN(4) == 0 {
			return w.source.removeAt(key)
		}
		_, rest, _ := strings.Cut(string(before.value), `"uid":"`)
		uid, _, _ = strings.Cut(rest, `"`)
	}
	return w.source.writeAt(key,
		fmt.Appendf(nil,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":%q,"name":%q,"uid":"%s","labels":{"l":"%d"}}}`,
			key.Namespace, key.Name, uid, w.rng.IntN(2)))
}

// options returns a predicate with a shard, and sometimes a label.
func (w shardWorld) options(shard sharding.Selector) apistorage.ListOptions {
	p := apistorage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(),
		GetAttrs: apistorage.DefaultNamespaceScopedAttr, ShardSelector: shard}
	if w.rng.IntN(2) == 0 {
		p.Label = labels.SelectorFromSet(labels.Set{"l": "1"})
	}
	return apistorage.ListOptions{Predicate: p, Recursive: true}
}

// selected returns the widgets of the newest state that the API server's predicate matches, with their
// revisions.
func (w shardWorld) selected(p apistorage.SelectionPredicate) map[string]keepwatch.Revision {
	w.t.Helper()
	all := map[string]keepwatch.Revision{}
	for o := range w.Snapshot().All() {
		if w.matches(o.(*watchcache.Object), p) {
			all[o.Key().String()] = o.Revision()
		}
	}
	return all
}

func (w shardWorld) matches(o *watchcache.Object, p apistorage.SelectionPredicate) bool {
	w.t.Helper()
	decoded := decodedOf(w.t, o)
	in, err := p.Matches(decoded)
	if err != nil {
		w.t.Fatal(err)
	}
	return in
}

func decodedOf(t testing.TB, o *watchcache.Object) runtime.Object {
	t.Helper()
	decoded, err := o.Decoded()
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

// pages lists by pages of a limit, or at once without one.
func (w shardWorld) pages(o apistorage.ListOptions, limit int64) map[string]keepwatch.Revision {
	w.t.Helper()
	all, last := map[string]keepwatch.Revision{}, ""
	o.Predicate.Limit = limit
	for {
		result, err := w.List(w.t.Context(), "/widgets/", o)
		if err != nil {
			w.t.Fatal(err)
		}
		if limit > 0 && int64(result.Len()) > limit {
			w.t.Fatalf("a page has %d objects, the limit is %d", result.Len(), limit)
		}
		if result.Shard != o.Predicate.ShardSelector.String() {
			w.t.Fatalf("the list is of the shard %q", result.Shard)
		}
		for o := range result.All() {
			if key := o.Key().String(); key <= last {
				w.t.Fatalf("%s follows %s", key, last)
			}
			last = o.Key().String()
			all[last] = o.Revision()
		}
		if o.Predicate.Continue = result.Continue; o.Predicate.Continue == "" {
			return all
		}
	}
}

// A list by a shard selector shows the objects that the API server's own predicate matches.
func TestShardsAreFilteredLists(t *testing.T) {
	withShards(t, true)
	w := shardWorld{newRig(t, store.Options{}), rand.New(rand.NewPCG(1, 1))}
	for range 40 {
		var newest keepwatch.Revision
		for range 10 {
			newest = w.change()
		}
		if err := w.WaitForRevision(t.Context(), newest); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			o := w.options(randomShard(t, w.rng))
			want := w.selected(o.Predicate)
			for _, limit := range []int64{0, 1, 3} {
				if got := w.pages(o, limit); !maps.Equal(got, want) {
					t.Fatalf("%s with limit %d: %v, want %v", o.Predicate.ShardSelector, limit, got, want)
				}
			}
		}
	}
}

// A watch by a shard selector delivers the events of its objects, within the history and behind it: they
// change the shard's state where it begins to that where it ends.
func TestShardedWatchesFollowTheirShard(t *testing.T) {
	withShards(t, true)
	for name, history := range map[string]store.Options{"history": {}, "difference": {WindowBytes: 1}} {
		t.Run(name, func(t *testing.T) {
			w := shardWorld{newRig(t, history), rand.New(rand.NewPCG(2, 2))}
			type follower struct {
				options apistorage.ListOptions
				state   map[string]keepwatch.Revision
				live    *watchcache.Watch
				from    keepwatch.Revision
			}
			var all []follower
			for range 30 {
				var at keepwatch.Revision
				for range 10 {
					at = w.change()
				}
				if err := w.WaitForRevision(t.Context(), at); err != nil {
					t.Fatal(err)
				}
				o := w.options(randomShard(t, w.rng))
				o.ResourceVersion = at.String()
				live, err := w.Watch(t.Context(), "/widgets/", o)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, follower{o, w.selected(o.Predicate), live, at})
			}
			for _, f := range all {
				resumed, err := w.Watch(t.Context(), "/widgets/", f.options)
				if err != nil {
					t.Fatal(err)
				}
				for _, watch := range []*watchcache.Watch{f.live, resumed} {
					state := maps.Clone(f.state)
					w.follow(watch, f.options.Predicate, state)
					if want := w.selected(f.options.Predicate); !maps.Equal(state, want) {
						t.Fatalf("%s from %d: %v, want %v", f.options.Predicate.ShardSelector, f.from, state, want)
					}
				}
			}
		})
	}
}

// follow applies all events of a watch to a state.
func (w shardWorld) follow(from *watchcache.Watch, p apistorage.SelectionPredicate,
	state map[string]keepwatch.Revision) {
	w.t.Helper()
	for {
		events, newer, err := from.TryNext()
		if err != nil {
			w.t.Fatal(err)
		}
		if newer != nil {
			return
		}
		for _, e := range events {
			key := e.Object.Key().String()
			if _, known := state[key]; known != (e.Type != watch.Added) {
				w.t.Fatalf("%s %s, known: %v", e.Type, key, known)
			}
			if shard, err := p.MatchesSharding(decodedOf(w.t, e.Object)); err != nil || !shard {
				w.t.Fatalf("%s %s is in another shard", e.Type, key)
			}
			if e.Type == watch.Deleted {
				delete(state, key)
			} else {
				state[key] = e.Object.Revision()
			}
		}
	}
}

// A range has its start and does not have its end.
func TestShardBounds(t *testing.T) {
	withShards(t, true)
	w := shardWorld{newRig(t, store.Options{}), rand.New(rand.NewPCG(4, 4))}
	at := w.source.writeAt(keepwatch.Key{Namespace: "n", Name: "w"},
		[]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"n","name":"w","uid":"u"}}`))
	if err := w.WaitForRevision(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	for field, value := range map[string]string{"uid": "u", "namespace": "n"} {
		hash, err := strconv.ParseUint(sharding.HashField(value), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		const begin, end = "0x0000000000000000", "0x10000000000000000"
		from := func(n uint64) string { return fmt.Sprintf("0x%016x", n) }
		for bounds, want := range map[[2]string]int{
			{begin, end}: 1, {from(hash), end}: 1, {from(hash + 1), end}: 0, {begin, from(hash)}: 0, {begin, from(hash + 1)}: 1,
			{from(hash), from(hash + 1)}: 1, {from(hash - 1), from(hash)}: 0,
		} {
			selector, err := parser.Parse(fmt.Sprintf("shardRange(object.metadata.%s, '%s', '%s')", field, bounds[0], bounds[1]))
			if err != nil {
				t.Fatal(err)
			}
			o := apistorage.ListOptions{Predicate: apistorage.Everything, Recursive: true}
			o.Predicate.ShardSelector = selector
			if got := len(w.pages(o, 0)); got != want {
				t.Errorf("%s has %d objects, want %d", selector, got, want)
			}
		}
	}
}

// While the feature gate is off, a shard selector has no meaning, as in kube-apiserver.
func TestShardsWithoutTheirGate(t *testing.T) {
	w := shardWorld{newRig(t, store.Options{}), rand.New(rand.NewPCG(3, 3))}
	at := w.change()
	if err := w.WaitForRevision(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		o := apistorage.ListOptions{Predicate: apistorage.Everything, Recursive: true}
		o.Predicate.ShardSelector = randomShard(t, w.rng)
		if result, err := w.List(t.Context(), "/widgets/", o); err != nil || result.Len() != 1 || result.Shard != "" {
			t.Fatalf("the list shows %d objects: %v", result.Len(), err)
		}
	}
}

// Requirements that no API server parses are errors of the request.
func TestImpossibleShards(t *testing.T) {
	withShards(t, true)
	w := newRig(t, store.Options{})
	for _, r := range [][]sharding.ShardRangeRequirement{
		{{Key: "object.metadata.name", Start: "0x0000000000000000", End: "0x10000000000000000"}},
		{{Key: "object.metadata.uid", Start: "0x0000000000000000", End: "0x1"}, {Key: "object.metadata.namespace",
			Start: "0x0000000000000000", End: "0x1"}},
		{{Key: "object.metadata.uid", Start: "", End: "0x1"}},
		{{Key: "object.metadata.uid", Start: "0x1", End: ""}},
		{{Key: "object.metadata.uid", Start: "0x1", End: "0x0"}},
		{{Key: "object.metadata.uid", Start: "0x1", End: "0x1"}},
	} {
		o := apistorage.ListOptions{Predicate: apistorage.Everything, Recursive: true}
		o.Predicate.ShardSelector = sharding.NewSelector(r...)
		if _, err := w.List(t.Context(), "/widgets/", o); err == nil {
			t.Errorf("a list of %v", r)
		}
		if _, err := w.Watch(t.Context(), "/widgets/", o); err == nil {
			t.Errorf("a watch of %v", r)
		}
	}
}
