package etcd_test

import (
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/etcd"
)

// A watch that nothing happens to reaches the newest revision when somebody asks
// for that, and by nothing else: it is not time yet for the sign of life.
func TestNewestAdvancesWatch(t *testing.T) {
	w := newFixture(t, etcd.Options{IdleTimeout: 10 * time.Hour})
	from := w.put(t, "a", "1")
	watch := w.watch(t, from)
	for range 20 {
		elsewhere := must(w.Client.Put(t.Context(), "/elsewhere", ""))(t).Header.Revision
		newest := must(w.Newest(t.Context()))(t)
		if newest < keepwatch.Revision(elsewhere) {
			t.Fatalf("newest is %d after %d", newest, elsewhere)
		}
		if changes := readTo(t, watch, from, newest); len(changes) != 0 {
			t.Errorf("there were changes: %s", describe(changes))
		}
		from = newest
	}
}

// Whoever reads consistently sees what was written before.
func TestNewestIsConsistent(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 20 {
				wrote := w.put(t, "a", "")
				if newest, err := w.Newest(t.Context()); err != nil || newest < wrote {
					t.Errorf("newest is %d after %d, %v", newest, wrote, err)
				}
			}
		})
	}
	readers.Wait()
}

// What watches rely on: etcd tells how far a watch has come that begins at its
// newest revision, though nothing happens.
func TestProgressFromNewestRevision(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	newest := w.put(t, "a", "1")
	responses := w.Client.Watch(t.Context(), w.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(newest)), clientv3.WithCreatedNotify())
	timeout := time.NewTimer(testTimeout)
	defer timeout.Stop()
	for progress := false; !progress; {
		select {
		case r := <-responses:
			progress = r.IsProgressNotify()
		case <-timeout.C:
			t.Fatal("it does not")
		}
		if err := w.RequestProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
