package etcd_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// equal compares a store with what etcd itself says at the store's revision.
func equal(tb testing.TB, w fixture, state *store.Snapshot) {
	tb.Helper()
	answer := must(w.Client.Get(tb.Context(), w.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(state.Revision()))))(tb)
	if len(answer.Kvs) != state.Len() {
		tb.Errorf("at %d %d objects are held, etcd has %d", state.Revision(), state.Len(), len(answer.Kvs))
	}
	i := 0
	for held := range state.All() {
		if i >= len(answer.Kvs) {
			break
		}
		o, kv := held.(*etcd.Object), answer.Kvs[i]
		if w.prefix+o.Key().String() != string(kv.Key) || string(o.Value()) != string(kv.Value) ||
			int64(o.Revision()) != kv.ModRevision || int64(o.Created()) != kv.CreateRevision || o.Version() != kv.Version {
			tb.Errorf("at %d %s is held as %q, of %d, created %d, version %d; etcd has %v", state.Revision(),
				o.Key(), o.Value(), o.Revision(), o.Created(), o.Version(), kv)
		}
		i++
	}
}

// followed is a member with a reflector that follows it.
type followed struct {
	*member
	fixture
	held      *store.Store
	reflector *reflector.Reflector
	consumer  *store.Watcher
}

func follow(t *testing.T, config func(*embed.Config)) *followed {
	t.Helper()
	f := &followed{member: startMember(t, config), held: store.New(store.Options{})}
	client := dial(t, clientv3.Config{Endpoints: f.endpoints()})
	f.fixture = fixture{client, newSource(t, client, etcd.Options{}), prefixOf(t)}
	f.put(t, "a", "1")
	f.put(t, "b", "1")
	f.reflector = startReflector(t, f.Source, f.held, reflector.Options{Paged: true, Seed: 1})
	waitForRevision(t, f.held, 3)
	f.consumer = f.held.Watch(f.held.Snapshot().Cursor(), store.Filter{})
	return f
}

// next is the consumer's next delivery that is no bookmark.
func (f *followed) next(t *testing.T) keepwatch.Delivery {
	t.Helper()
	for {
		d := must(f.consumer.Next(t.Context()))(t)
		if b, ok := d.(keepwatch.Batch); !ok || !b.Bookmark() {
			return d
		}
	}
}

// A member that comes back with its data is followed on from where it stopped.
func TestRestart(t *testing.T) {
	f := follow(t, nil)
	for i := range 3 {
		f.stop()
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		end := f.putThrough(t, "a", fmt.Sprint("after restart ", i))
		b, ok := f.next(t).(keepwatch.Batch)
		if !ok || describe(b.Changes) != fmt.Sprint("~a=after restart ", i) {
			t.Errorf("restart %d is told as %+v", i, b)
		}
		equal(t, f.fixture, waitForRevision(t, f.held, end))
	}
	if p := f.reflector.Progress(); len(p.Relists) != 0 || len(p.Reconnects) == 0 {
		t.Errorf("relists: %v, reconnects: %v", p.Relists, p.Reconnects)
	}
}

// An etcd that was restored from a backup is another history, for every consumer,
// whether its revision is still behind ours when it is found or not.
func TestRestore(t *testing.T) {
	for name, overtakes := range map[string]bool{"behind": false, "ahead": true} {
		t.Run(name, func(t *testing.T) {
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
			waitForRevision(t, f.held, lost)
			for f.consumer.Cursor().Revision < lost {
				f.next(t)
			}
			f.stop()
			if overtakes {
				// Another cluster at the same place, with more in it.
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
				t.Fatalf("the restore is told as %+v", gap)
			}
			end := f.putThrough(t, "c", "new")
			equal(t, f.fixture, waitForRevision(t, f.held, end))
			if p := f.reflector.Progress(); p.Relists[keepwatch.Rewound] != 1 || len(p.Relists) != 1 {
				t.Errorf("relists: %v", p.Relists)
			}
		})
	}
}

// A restored etcd that has overtaken what is held, under the same cluster id, is another history,
// too: also for a source whose resource was quiet before the restore, if it shares its past with
// one that has seen a write since the backup.
func TestRestoreAheadOfSource(t *testing.T) {
	f := &followed{member: startMember(t, nil), held: store.New(store.Options{})}
	client := dial(t, clientv3.Config{Endpoints: f.endpoints()})
	past := &etcd.LastWrite{}
	f.fixture = fixture{client, newSource(t, client, etcd.Options{LastWrite: past}), prefixOf(t)}
	quiet := fixture{client, newSource(t, client, etcd.Options{LastWrite: past, Prefix: "/quiet/"}), "/quiet/"}
	f.put(t, "a", "1")
	quiet.put(t, "q", "1")
	f.stop()
	backup := f.copyData(t)
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	f.reflector = startReflector(t, f.Source, f.held, reflector.Options{Paged: true, Seed: 1})
	alone := store.New(store.Options{})
	startReflector(t, quiet.Source, alone, reflector.Options{Paged: true, Seed: 1})
	last := f.put(t, "a", "2")
	waitForRevision(t, f.held, last)
	must(quiet.Newest(t.Context()))(t)
	waitForRevision(t, alone, last)
	f.consumer = f.held.Watch(f.held.Snapshot().Cursor(), store.Filter{})
	other := &followed{fixture: quiet, consumer: alone.Watch(alone.Snapshot().Cursor(), store.Filter{})}
	f.stop()

	elsewhere := newMember(shortDir(t)) // where nobody follows it until it is ahead
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
			t.Errorf("the restore is delivered to the %s one as %+v", name, gap)
		}
	}
	end := f.put(t, "c", "new")
	equal(t, f.fixture, waitForRevision(t, f.held, end))
	must(quiet.Newest(t.Context()))(t)
	equal(t, quiet, waitForRevision(t, alone, end))
	if p := f.reflector.Progress(); p.Relists[keepwatch.Rewound] != 1 || len(p.Relists) != 1 {
		t.Errorf("relists: %v", p.Relists)
	}
}

func emptyData(t *testing.T) string { return t.TempDir() }

// A watch that is opened ahead of the newest revision does not wait for it
// (kubernetes #107457).
func TestWatchAhead(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	newest := w.put(t, "a", "1")
	_, err := w.Source.Watch(t.Context(), newest+1)
	wantKind(t, err, keepwatch.Rewound)
}

// Three members: a watch goes on with another one when its own goes away, and ends
// when there is no leader any more.
func TestMembers(t *testing.T) {
	members := startCluster(t)
	var all []string
	for _, m := range members {
		all = append(all, m.endpoints()...)
	}
	client := dial(t, clientv3.Config{Endpoints: all})
	w := fixture{client, newSource(t, client, etcd.Options{}), prefixOf(t)}
	from := w.putThrough(t, "a", "0")
	held := store.New(store.Options{})
	r := startReflector(t, w.Source, held, reflector.Options{Paged: true, Seed: 1})
	waitForRevision(t, held, from)
	consumer := held.Watch(held.Snapshot().Cursor(), store.Filter{})

	for i, m := range members {
		m.kill()
		value := fmt.Sprint("without ", i)
		end := w.putThrough(t, "a", value)
		for told := ""; consumer.Cursor().Revision < end; {
			b, ok := must(consumer.Next(t.Context()))(t).(keepwatch.Batch)
			if told += describe(b.Changes); !ok || told != "" && told != "~a="+value {
				t.Errorf("without member %d comes %q", i, told)
			}
		}
		if err := m.start(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, w, held.Snapshot())
	if p := r.Progress(); len(p.Relists) != 0 || len(p.Reconnects) == 0 {
		t.Errorf("relists: %v, reconnects: %v", p.Relists, p.Reconnects)
	}

	alone := newSource(t, dial(t, clientv3.Config{Endpoints: members[2].endpoints()}), etcd.Options{})
	watch := must(alone.Watch(t.Context(), held.Revision()))(t)
	defer watch.Close()
	members[0].kill()
	members[1].kill()
	err := readToEnd(t, watch)
	wantKind(t, err, keepwatch.Unreachable)
	if err != nil && !strings.Contains(err.Error(), "no leader") {
		t.Errorf("it says: %v", err)
	}
}
