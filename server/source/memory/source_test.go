package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/source/memory"
	"github.com/keepwatch/keepwatch/store"
)

const podPrefix = "/registry/pods/"

func pods(db *memory.DB) *memory.Source { return db.Source(memory.Options{Prefix: podPrefix}) }

// put writes a key of pods, and returns its revision.
func put(t testing.TB, db *memory.DB, name string) keepwatch.Revision {
	t.Helper()
	c := db.Client(podPrefix).Kubernetes
	now := must(c.Get(t.Context(), podPrefix+name, kubernetes.GetOptions{}))(t)
	r := must(c.OptimisticPut(t.Context(), podPrefix+name, []byte("v"), now.KV.GetModRevision(),
		kubernetes.PutOptions{}))(t)
	return keepwatch.Revision(r.Revision)
}

func remove(t testing.TB, db *memory.DB, name string) keepwatch.Revision {
	t.Helper()
	c := db.Client(podPrefix).Kubernetes
	now := must(c.Get(t.Context(), podPrefix+name, kubernetes.GetOptions{}))(t)
	r := must(c.OptimisticDelete(t.Context(), podPrefix+name, now.KV.GetModRevision(), kubernetes.DeleteOptions{}))(t)
	return keepwatch.Revision(r.Revision)
}

// elsewhere writes a key of another resource.
func elsewhere(t testing.TB, db *memory.DB) keepwatch.Revision {
	t.Helper()
	c := db.Client("/registry/nodes/").Kubernetes
	now := must(c.Get(t.Context(), "/registry/nodes/a", kubernetes.GetOptions{}))(t)
	r := must(c.OptimisticPut(t.Context(), "/registry/nodes/a", nil, now.KV.GetModRevision(), kubernetes.PutOptions{}))(t)
	return keepwatch.Revision(r.Revision)
}

func kind(err error) keepwatch.FailureKind {
	var failure *keepwatch.Failure
	if !errors.As(err, &failure) {
		return 0
	}
	return failure.Kind
}

// A watch delivers the changes of its resource alone, with types and revisions, and reaches a revision of another
// resource when it is asked for.
func TestWatch(t *testing.T) {
	db := memory.New()
	defer db.Close()
	source := pods(db)
	w := must(source.Watch(t.Context(), 1))(t)
	defer w.Close()
	put(t, db, "ns/a")
	elsewhere(t, db)
	put(t, db, "ns/a")
	remove(t, db, "ns/a")
	put(t, db, "ns/a")
	var got []string
	for len(got) < 4 {
		batch := must(w.Next())(t)
		for _, c := range batch.Changes {
			got = append(got, fmt.Sprintf("%s %d %s %s %d", c.Type, c.Revision, c.Object.Key(), c.Object.UID(),
				c.Object.(*memory.Object).Version()))
		}
	}
	want := []string{"ADDED 2 ns/a 2 1", "MODIFIED 4 ns/a 2 2", "DELETED 5 ns/a  0", "ADDED 6 ns/a 6 1"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("delivered %q, want %q", got, want)
	}
	newest := elsewhere(t, db)
	go func() {
		if _, err := source.Newest(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if batch := must(w.Next())(t); !batch.Bookmark() || batch.From != 6 || batch.To != newest {
		t.Errorf("progress: %+v", batch)
	}
	w.Close()
	for range 2 {
		if _, err := w.Next(); kind(err) != keepwatch.Ended {
			t.Errorf("a closed watch: %v", err)
		}
	}
}

// A watch of a resource that does not change reaches the revision of another one's changes by itself, again and again.
func TestWatchReachesOtherChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.New()
		defer db.Close()
		w := must(pods(db).Watch(t.Context(), put(t, db, "ns/a")))(t)
		defer w.Close()
		for range 3 {
			newest := elsewhere(t, db)
			begun := time.Now()
			batch := must(w.Next())(t)
			if took := time.Since(begun); !batch.Bookmark() || batch.To != newest || took > 10*time.Second {
				t.Errorf("after %v: %+v, want a bookmark at %d", took, batch, newest)
			}
		}
	})
}

// A watch that is opened below the newest revision reaches it, although nothing of its resource changes: a caller that
// has read that revision before waits for it.
func TestWatchReachesTheRevisionOfItsOpening(t *testing.T) {
	db := memory.New()
	defer db.Close()
	source := pods(db)
	listed := put(t, db, "ns/a")
	elsewhere(t, db)
	newest := must(source.Newest(t.Context()))(t)
	w := must(source.Watch(t.Context(), listed))(t)
	defer w.Close()
	end := time.AfterFunc(await.Deadline, w.Close)
	defer end.Stop()
	if batch := must(w.Next())(t); batch.From != listed || batch.To != newest || len(batch.Changes) > 0 {
		t.Errorf("got %+v, want a batch without changes from %d to %d", batch, listed, newest)
	}
}

// A watch and a past state from before the history are Expired, and from the future Rewound.
func TestWatchesOutsideTheHistory(t *testing.T) {
	db := memory.New()
	defer db.Close()
	source := pods(db)
	open := must(source.Watch(t.Context(), 1))(t)
	defer open.Close()
	for i := range 10 {
		put(t, db, fmt.Sprintf("ns/%d", i))
	}
	if err := db.Compact(8); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[keepwatch.Revision]keepwatch.FailureKind{
		0: keepwatch.InvariantViolation, 7: keepwatch.Expired, 8: 0, 11: 0, 12: keepwatch.Rewound,
	} {
		w, err := source.Watch(t.Context(), from)
		if kind(err) != want {
			t.Errorf("watch from %d: %v", from, err)
		}
		if err == nil {
			w.Close()
		}
	}
	if batch := must(open.Next())(t); len(batch.Changes) == 0 || batch.Changes[0].Revision != 2 {
		t.Errorf("an open watch after the compaction: %+v", batch)
	}
	if _, err := source.List(t.Context(), keepwatch.ListRequest{NotOlderThan: 12}); kind(err) != keepwatch.Rewound {
		t.Errorf("list of the future: %v", err)
	}
}

// A seed loads the oldest state, and the history since: watches can resume from any revision of it.
func TestSeed(t *testing.T) {
	db := memory.New()
	defer db.Close()
	for i := range 100 {
		put(t, db, fmt.Sprintf("ns/%d", i%7))
		elsewhere(t, db)
	}
	remove(t, db, "ns/3")
	for _, c := range []struct{ back, from keepwatch.Revision }{{1000, 1}, {50, db.Revision() - 50}, {0, db.Revision()}} {
		target := store.New(store.Options{})
		from := must(pods(db).Seed(t.Context(), target, c.back))(t)
		history, _ := target.Bounds()
		if from != c.from || history != from || target.Revision() != db.Revision() || target.Snapshot().Len() != 6 {
			t.Errorf("seed of %d: from %d, history %d, revision %d, %d objects", c.back, from, history, target.Revision(),
				target.Snapshot().Len())
		}
		if _, err := pods(db).Seed(t.Context(), target, 0); err == nil {
			t.Error("a target is seeded twice")
		}
	}
}

// A reflector keeps a store equal to its resource, whatever is written, and keys that are not accepted are absent.
func TestReflects(t *testing.T) {
	db := memory.New()
	defer db.Close()
	source := db.Source(memory.Options{Prefix: podPrefix, Accept: func(k keepwatch.Key) bool { return k.Namespace != "" }})
	target := store.New(store.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- reflector.New(source, target, reflector.Options{}).Run(ctx) }()
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		name := fmt.Sprintf("ns/%d", random.IntN(50))
		switch random.IntN(5) {
		case 0:
			name = "stray"
			fallthrough
		case 1, 2:
			put(t, db, name)
		case 3:
			elsewhere(t, db)
		case 4:
			remove(t, db, name)
		}
	}
	newest := must(source.Newest(t.Context()))(t)
	watcher := target.Watch(store.Cursor{}, store.Filter{})
	for target.Revision() < newest {
		must(watcher.Next(t.Context()))(t)
	}
	want := must(source.List(t.Context(), keepwatch.ListRequest{}))(t).Objects
	if target.Snapshot().Len() != len(want) {
		t.Errorf("the store has %d objects, want %d", target.Snapshot().Len(), len(want))
	}
	for _, o := range want {
		if got, ok := target.Snapshot().Get(o.Key()); !ok || got.Revision() != o.Revision() {
			t.Errorf("%s: %v", o.Key(), got)
		}
	}
	cancel()
	<-ended
}

// Unchanged finds changes of the resource, and none of others.
func TestUnchanged(t *testing.T) {
	db := memory.New()
	t.Cleanup(db.Close)
	put(t, db, "ns/a")
	from := put(t, db, "ns/b")
	quiet := elsewhere(t, db)
	deleted := remove(t, db, "ns/a")
	added := put(t, db, "ns/c")
	for name, test := range map[string]struct {
		from, to keepwatch.Revision
		want     keepwatch.FailureKind // 0 for unchanged
	}{
		"another resource": {from, quiet, 0},
		"a deletion":       {from, deleted, keepwatch.Silent},
		"an addition":      {deleted, added, keepwatch.Silent},
		"both":             {from, added, keepwatch.Silent},
	} {
		if err := pods(db).Unchanged(t.Context(), test.from, test.to); kind(err) != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
