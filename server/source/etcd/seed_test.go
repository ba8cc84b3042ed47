package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// startReflector runs a reflector until the test ends.
func startReflector(tb testing.TB, s keepwatch.Source, target keepwatch.Target,
	options reflector.Options) *reflector.Reflector {
	tb.Helper()
	r := reflector.New(s, target, options)
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			tb.Errorf("the reflector ended: %v", err)
		}
	})
	return r
}

// waitForRevision waits until a store has reached a revision.
func waitForRevision(tb testing.TB, s *store.Store, r keepwatch.Revision) *store.Snapshot {
	tb.Helper()
	await.True(tb, fmt.Sprintf("the store has reached %d", r), func() bool { return s.Revision() >= r })
	return s.Snapshot()
}

// A seeded store delivers the exact events from before it was created.
func TestSeed(t *testing.T) {
	w := newFixture(t, etcd.Options{PageSize: 2})
	for i := range 5 {
		w.put(t, fmt.Sprintf("ns/%d", i), "1")
	}
	compacted := w.delete(t, "ns/0")
	cursor := w.put(t, "ns/1", "2")
	must(w.Compact(t.Context(), int64(compacted)))(t)
	w.delete(t, "ns/2")
	w.put(t, "ns/5", "1")
	end := w.delete(t, "ns/5")

	cache := store.New(store.Options{})
	if at := must(w.Seed(t.Context(), cache, 1_000_000))(t); at != compacted || cache.Revision() != end {
		t.Fatalf("seeded from %d to %d, want %d to %d", at, cache.Revision(), compacted, end)
	}
	r := startReflector(t, w.Source, cache, reflector.Options{})
	waitForRevision(t, cache, end)
	if n := len(r.Progress().Relists); n != 0 {
		t.Errorf("%d kinds of relists", n)
	}
	consumer := cache.Watch(store.Cursor{Revision: cursor}, store.Filter{})
	var got []keepwatch.Change
	for consumer.Cursor().Revision < end {
		d := must(consumer.Next(t.Context()))(t)
		got = append(got, d.(keepwatch.Batch).Changes...)
	}
	if text := describe(got); text != "-ns/2 +ns/5=1 -ns/5" {
		t.Errorf("a consumer from before the start receives %s", text)
	}
	if o := got[0].Object.(*etcd.Object); string(o.Value()) != "1" {
		t.Errorf("the deleted object has the value %q", o.Value())
	}
	_, err := w.Seed(t.Context(), cache, 10)
	wantKind(t, err, keepwatch.InvariantViolation)
}

func TestSeedDepth(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	w.put(t, "a", "1")
	old := w.put(t, "a", "2")
	w.put(t, "a", "3")
	newest := w.put(t, "a", "4")
	cache := store.New(store.Options{})
	if at := must(w.Seed(t.Context(), cache, newest-old))(t); at != old {
		t.Errorf("seeded at %d, want %d", at, old)
	}
	consumer := cache.Watch(store.Cursor{Revision: old}, store.Filter{})
	var changes []keepwatch.Change
	for consumer.Cursor().Revision < newest { // etcd may send the history in two parts
		changes = append(changes, must(consumer.Next(t.Context()))(t).(keepwatch.Batch).Changes...)
	}
	if text := describe(changes); text != "~a=3 ~a=4" || string(changes[0].Prior.(*etcd.Object).Value()) != "2" {
		t.Errorf("the history is %s, after %v", text, changes[0].Prior)
	}
}

// Several watches read a long history of many objects, and lose no change.
func TestSeedLongHistory(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	var puts []clientv3.Op
	for i := range 700 {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("%sns/%03d", w.prefix, i), "0"))
	}
	for chunk := range slices.Chunk(puts, 100) {
		must(w.Txn(t.Context()).Then(chunk...).Commit())(t)
	}
	from := w.put(t, "ns/last", "0")
	want := map[keepwatch.Revision]string{}
	for i := range 3500 {
		key := fmt.Sprintf("ns/%03d", i%11*60)
		if i%500 == 499 {
			want[w.delete(t, key)] = "-" + key
			want[w.put(t, key, "again")] = "+" + key + "=again"
			continue
		}
		want[w.put(t, key, fmt.Sprint(i))] = fmt.Sprintf("~%s=%d", key, i)
	}
	newest := must(w.Newest(t.Context()))(t)

	cache := store.New(store.Options{})
	if at := must(w.Seed(t.Context(), cache, newest-from))(t); at != from || cache.Revision() < newest {
		t.Fatalf("seeded from %d to %d, want %d to %d", at, cache.Revision(), from, newest)
	}
	consumer := cache.Watch(store.Cursor{Revision: from}, store.Filter{})
	for consumer.Cursor().Revision < newest {
		d := must(consumer.Next(t.Context()))(t)
		for _, c := range d.(keepwatch.Batch).Changes {
			if text := describe([]keepwatch.Change{c}); text != want[c.Revision] {
				t.Errorf("at %d the consumer receives %s, want %s", c.Revision, text, want[c.Revision])
			}
			delete(want, c.Revision)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d changes are missing, for example %v", len(want), slices.Collect(maps.Values(want))[0])
	}
}

// An etcd that has never compacted has its full history.
func TestSeedFromTheBeginning(t *testing.T) {
	m := startMember(t, nil)
	client := dial(t, clientv3.Config{Endpoints: m.endpoints()})
	w := fixture{client, newSource(t, client, etcd.Options{}), prefixOf(t)}
	cache := store.New(store.Options{})
	if at := must(w.Seed(t.Context(), cache, 100))(t); at != 1 || cache.Snapshot().Len() != 0 {
		t.Errorf("an empty etcd seeds at %d", at)
	}
	first := w.put(t, "a", "1")
	w.put(t, "a", "2")
	cache = store.New(store.Options{})
	if at := must(w.Seed(t.Context(), cache, 100))(t); at != 1 {
		t.Errorf("seeded at %d", at)
	}
	startReflector(t, w.Source, cache, reflector.Options{})
	waitForRevision(t, cache, first+1)
	if history, _ := cache.Bounds(); history != 1 {
		t.Errorf("the history begins at %d", history)
	}
}

// compacting is a target that compacts etcd when a list begins.
type compacting struct {
	*store.Store
	compact func()
}

func (c compacting) Replace(ctx context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	c.compact()
	return c.Store.Replace(ctx, relist)
}

func TestSeedAndCompaction(t *testing.T) {
	w := newFixture(t, etcd.Options{PageSize: 1})
	w.put(t, "a", "1")
	w.put(t, "b", "1")
	rounds := 3
	target := compacting{store.New(store.Options{}), func() {
		if rounds--; rounds >= 0 {
			must(w.Compact(t.Context(), int64(w.put(t, "a", fmt.Sprint(rounds)))))(t)
		}
	}}
	at := must(w.Seed(t.Context(), target, 1_000_000))(t)
	if n := target.Snapshot().Len(); n != 2 || target.Revision() != at || rounds != -1 {
		t.Errorf("after %d compactions the target has %d objects, seeded at %d, revision %d", 3-rounds, n, at,
			target.Revision())
	}
}

// When Seed fails, the target stays empty.
func TestSeedFails(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	w.put(t, "a", "1")
	cache := store.New(store.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := w.Seed(ctx, compacting{cache, cancel}, 10)
	wantKind(t, err, keepwatch.Ended)
	if cache.Revision() != 0 {
		t.Errorf("the target has revision %d", cache.Revision())
	}
}
