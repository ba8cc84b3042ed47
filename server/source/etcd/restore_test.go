package etcd_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// equal compares a store with a read from etcd at the store's revision.
func equal(tb testing.TB, w fixture, state *store.Snapshot) {
	tb.Helper()
	answer := must(w.Client.Get(tb.Context(), w.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(state.Revision()))))(
		tb)
	if len(answer.Kvs) != state.Len() {
		tb.Errorf("at %d the store has %d objects, etcd has %d", state.Revision(), state.Len(), len(answer.Kvs))
	}
	i := 0
	for object := range state.All() {
		if i >= len(answer.Kvs) {
			break
		}
		o, kv := object.(*etcd.Object), answer.Kvs[i]
		if w.prefix+o.Key().String() != string(kv.Key) || string(o.Value()) != string(kv.Value) ||
			int64(o.Revision()) != kv.ModRevision || int64(o.Created()) != kv.CreateRevision || o.Version() != kv.Version {
			tb.Errorf("at %d the store has %s as %q, revision %d, created %d, version %d; etcd has %v", state.Revision(),
				o.Key(), o.Value(), o.Revision(), o.Created(), o.Version(), kv)
		}
		i++
	}
}

// followed is a member, and a reflector and a consumer that follow it.
type followed struct {
	*member
	fixture
	cache     *store.Store
	reflector *reflector.Reflector
	consumer  *store.Watcher
}

func follow(t *testing.T, config func(*embed.Config)) *followed {
	t.Helper()
	f := &followed{member: startMember(t, config), cache: store.New(store.Options{})}
	client := dial(t, clientv3.Config{Endpoints: f.endpoints()})
	f.fixture = fixture{client, newSource(t, client, etcd.Options{}), prefixOf(t)}
	f.put(t, "a", "1")
	f.put(t, "b", "1")
	f.reflector = startReflector(t, f.Source, f.cache, reflector.Options{Paged: true, Seed: 1})
	waitForRevision(t, f.cache, 3)
	f.consumer = f.cache.Watch(f.cache.Snapshot().Cursor(), store.Filter{})
	return f
}

// next returns the consumer's next delivery that is not a bookmark.
func (f *followed) next(t *testing.T) keepwatch.Delivery {
	t.Helper()
	for {
		d := must(f.consumer.Next(t.Context()))(t)
		if b, ok := d.(keepwatch.Batch); !ok || !b.Bookmark() {
			return d
		}
	}
}

// When a member restarts with its data, the reflector resumes without a relist.
func TestRestart(t *testing.T) {
	t.Parallel()
	f := follow(t, nil)
	for i := range 3 {
		f.stop()
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		end := f.putThrough(t, "a", fmt.Sprint("after restart ", i))
		b, ok := f.next(t).(keepwatch.Batch)
		if !ok || describe(b.Changes) != fmt.Sprint("~a=after restart ", i) {
			t.Errorf("restart %d is delivered as %+v", i, b)
		}
		equal(t, f.fixture, waitForRevision(t, f.cache, end))
	}
	if p := f.reflector.Progress(); len(p.Relists) != 0 || len(p.Reconnects) == 0 {
		t.Errorf("relists: %v, reconnects: %v", p.Relists, p.Reconnects)
	}
}

// An etcd that was restored from a backup has another history. Consumers receive a gap,
// whether its revision is below the store's or above.
func TestRestore(t *testing.T) {
	t.Parallel()
	for name, overtakes := range map[string]bool{"behind": false, "ahead": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := "before"
			f := follow(t, func(c *embed.Config) { c.InitialClusterToken = token })
			f.stop()
			backup := f.copyData(t)
			if err := f.start(); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				f.putThrough(t, "a", fmt.Sprint(i))
			}
			f.delete(t, "b")
			lost := f.put(t, "lost", "")
			waitForRevision(t, f.cache, lost)
			for f.consumer.Cursor().Revision < lost {
				f.next(t)
			}
			f.stop()
			if overtakes {
				// Another cluster at the same address, with more revisions.
				token = "after"
				f.restore(t, emptyData(t))
			} else {
				f.restore(t, backup)
			}
			if err := f.start(); err != nil {
				t.Fatal(err)
			}
			if overtakes {
				other := dial(t, clientv3.Config{Endpoints: f.endpoints()})
				for i := range 20 {
					must(other.Put(t.Context(), f.prefix+"b", fmt.Sprint("other ", i)))(t)
				}
			}
			gap, ok := f.next(t).(keepwatch.Gap)
			if !ok || gap.Reason != keepwatch.GapRewind {
				t.Fatalf("the restore is delivered as %+v", gap)
			}
			end := f.putThrough(t, "c", "new")
			equal(t, f.fixture, waitForRevision(t, f.cache, end))
			if p := f.reflector.Progress(); p.Relists[keepwatch.Rewound] != 1 || len(p.Relists) != 1 {
				t.Errorf("relists: %v", p.Relists)
			}
		})
	}
}

// A restored etcd is detected although its revision is above the store's and its cluster id is
// the same. A source whose resource had no writes since the backup detects it if it shares its
// LastWrite with a source that has seen one.
func TestRestoreAheadOfSource(t *testing.T) {
	t.Parallel()
	f := &followed{member: startMember(t, nil), cache: store.New(store.Options{})}
	client := dial(t, clientv3.Config{Endpoints: f.endpoints()})
	lastWrite := &etcd.LastWrite{}
	f.fixture = fixture{client, newSource(t, client, etcd.Options{LastWrite: lastWrite}), prefixOf(t)}
	quiet := fixture{client, newSource(t, client, etcd.Options{LastWrite: lastWrite, Prefix: "/quiet/"}), "/quiet/"}
	f.put(t, "a", "1")
	quiet.put(t, "q", "1")
	f.stop()
	backup := f.copyData(t)
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	f.reflector = startReflector(t, f.Source, f.cache, reflector.Options{Paged: true, Seed: 1})
	alone := store.New(store.Options{})
	startReflector(t, quiet.Source, alone, reflector.Options{Paged: true, Seed: 1})
	last := f.put(t, "a", "2")
	waitForRevision(t, f.cache, last)
	must(quiet.Newest(t.Context()))(t)
	waitForRevision(t, alone, last)
	f.consumer = f.cache.Watch(f.cache.Snapshot().Cursor(), store.Filter{})
	other := &followed{fixture: quiet, consumer: alone.Watch(alone.Snapshot().Cursor(), store.Filter{})}
	f.stop()

	elsewhere := newMember(shortDir(t)) // without a reader until its revision is above
	elsewhere.restore(t, backup)
	if err := elsewhere.start(); err != nil {
		t.Fatal(err)
	}
	writer := dial(t, clientv3.Config{Endpoints: elsewhere.endpoints()})
	must(writer.Put(t.Context(), "/quiet/q", "changed"))(t)
	for i := range 5 {
		must(writer.Put(t.Context(), f.prefix+"b", fmt.Sprint(i)))(t)
	}
	elsewhere.stop()
	f.restore(t, elsewhere.copyData(t))
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	for name, consumer := range map[string]*followed{"busy": f, "quiet": other} {
		if gap, ok := consumer.next(t).(keepwatch.Gap); !ok || gap.Reason != keepwatch.GapRewind {
			t.Errorf("the %s consumer receives the restore as %+v", name, gap)
		}
	}
	end := f.put(t, "c", "new")
	equal(t, f.fixture, waitForRevision(t, f.cache, end))
	must(quiet.Newest(t.Context()))(t)
	equal(t, quiet, waitForRevision(t, alone, end))
	if p := f.reflector.Progress(); p.Relists[keepwatch.Rewound] != 1 || len(p.Relists) != 1 {
		t.Errorf("relists: %v", p.Relists)
	}
}

func emptyData(t *testing.T) string { return t.TempDir() }

// Watch from above the newest revision fails instead of waiting (kubernetes #107457).
func TestWatchAhead(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	newest := w.put(t, "a", "1")
	_, err := w.Source.Watch(t.Context(), newest+1)
	wantKind(t, err, keepwatch.Rewound)
}

// In a cluster of three, a reflector resumes at another member when its own is killed, and
// a watch ends when its member has no leader.
func TestMembers(t *testing.T) {
	t.Parallel()
	members := startCluster(t)
	var all []string
	for _, m := range members {
		all = append(all, m.endpoints()...)
	}
	client := dial(t, clientv3.Config{Endpoints: all})
	w := fixture{client, newSource(t, client, etcd.Options{}), prefixOf(t)}
	from := w.putThrough(t, "a", "0")
	cache := store.New(store.Options{})
	r := startReflector(t, w.Source, cache, reflector.Options{Paged: true, Seed: 1})
	waitForRevision(t, cache, from)
	consumer := cache.Watch(cache.Snapshot().Cursor(), store.Filter{})

	for i, m := range members {
		m.kill()
		value := fmt.Sprint("without ", i)
		end := w.putThrough(t, "a", value)
		for delivered := ""; consumer.Cursor().Revision < end; {
			b, ok := must(consumer.Next(t.Context()))(t).(keepwatch.Batch)
			if delivered += describe(b.Changes); !ok || delivered != "" && delivered != "~a="+value {
				t.Errorf("without member %d the consumer receives %q", i, delivered)
			}
		}
		if err := m.start(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, w, cache.Snapshot())
	if p := r.Progress(); len(p.Relists) != 0 || len(p.Reconnects) == 0 {
		t.Errorf("relists: %v, reconnects: %v", p.Relists, p.Reconnects)
	}

	alone := newSource(t, dial(t, clientv3.Config{Endpoints: members[2].endpoints()}), etcd.Options{})
	watch := must(alone.Watch(t.Context(), cache.Revision()))(t)
	defer watch.Close()
	members[0].kill()
	members[1].kill()
	err := readToEnd(t, watch)
	wantKind(t, err, keepwatch.Unreachable)
	if err != nil && !strings.Contains(err.Error(), "no leader") {
		t.Errorf("the error is: %v", err)
	}
}
