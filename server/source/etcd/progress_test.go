package etcd_test

import (
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/source/etcd"
)

// Newest makes a watch without changes reach the newest revision. The idle timeout is so
// long that no other progress request is due.
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

// Newest returns at least the revision of every earlier write.
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

// An assumption of watches about etcd: it answers progress requests of a watch from its
// newest revision, although no event follows.
func TestProgressFromNewestRevision(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	newest := w.put(t, "a", "1")
	responses := w.Client.Watch(t.Context(), w.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(newest)),
		clientv3.WithCreatedNotify())
	timeout := time.NewTimer(await.Deadline)
	defer timeout.Stop()
	for progress := false; !progress; {
		select {
		case r := <-responses:
			progress = r.IsProgressNotify()
		case <-timeout.C:
			t.Fatal("no progress response")
		}
		if err := w.RequestProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
