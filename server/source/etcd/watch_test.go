package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/etcd"
)

func TestWatch(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	from := w.put(t, "ns/a", "1")
	watch := w.watch(t, from)
	w.put(t, "ns/a", "2")
	w.put(t, "b", "1")
	w.delete(t, "ns/a")
	last := w.put(t, "ns/a", "3")
	changes := readTo(t, watch, from, last)
	if got := describe(changes); got != "~ns/a=2 +b=1 -ns/a +ns/a=3" {
		t.Errorf("the watch shows %s", got)
	}
	for i, c := range changes {
		o := c.Object.(*etcd.Object)
		if c.Revision != from+1+keepwatch.Revision(i) || o.Revision() != c.Revision || c.Prior != nil {
			t.Errorf("%v at %d, of %d, before it %v", c.Type, c.Revision, o.Revision(), c.Prior)
		}
	}
	version := func(i int) string {
		o := changes[i].Object.(*etcd.Object)
		return fmt.Sprintf("%d of %s", o.Version(), o.UID())
	}
	if got, want := version(0), fmt.Sprintf("2 of %d", from); got != want {
		t.Errorf("the update has version %s, want %s", got, want)
	}
	if got := version(2); got != "0 of " {
		t.Errorf("the deletion has version %s", got)
	}
	if got, want := version(3), fmt.Sprintf("1 of %d", last); got != want {
		t.Errorf("the key created again has version %s, want %s", got, want)
	}
}

// A transaction is one revision, and is never split over batches, whether etcd sends it in
// one message or in fragments.
func TestTransactionsAreNotSplit(t *testing.T) {
	m := startMember(t, func(c *embed.Config) { c.MaxRequestBytes = 64 << 10 }) // a message may have 512 KiB more
	client := dial(t, clientv3.Config{Endpoints: m.endpoints()})
	prefix := prefixOf(t)
	w := fixture{client, newSource(t, client, etcd.Options{}), prefix}
	fragmented := newSource(t, client, etcd.Options{})
	fragmented.LimitMessages(700 << 10)

	const transactions, keys = 16, 25
	from := w.put(t, "first", "")
	live := w.watch(t, from)
	long := strings.Repeat("k", 2000)
	value := strings.Repeat("v", 400)
	for i := range transactions {
		var puts []clientv3.Op
		for j := range keys {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%d/%s%d", prefix, i, long, j), value))
		}
		must(client.Txn(t.Context()).Then(puts...).Commit())(t)
	}
	deletion := must(client.Delete(t.Context(), prefix, clientv3.WithPrefix()))(t) // 0.8 MB of keys
	end := keepwatch.Revision(deletion.Header.Revision)

	whole := must(fragmented.Watch(t.Context(), from))(t)
	wantKind(t, readToEnd(t, whole), keepwatch.Undecodable)
	whole.Close()
	late := must(fragmented.Watch(t.Context(), from))(t)
	defer late.Close()
	for name, watch := range map[string]keepwatch.Watch{"live": live, "late": w.watch(t, from), "in fragments": late} {
		count := map[keepwatch.Revision]int{}
		for at := from; at < end; {
			b := next(t, watch)
			within := map[keepwatch.Revision]bool{}
			for _, c := range b.Changes {
				if count[c.Revision] > 0 && !within[c.Revision] {
					t.Fatalf("%s: revision %d is split over two batches", name, c.Revision)
				}
				count[c.Revision]++
				within[c.Revision] = true
			}
			at = b.To
		}
		if n := count[end]; n != transactions*keys+1 {
			t.Errorf("%s: the deletion of everything has %d changes", name, n)
		}
		for r := from + 1; r < end; r++ {
			if count[r] != keys {
				t.Errorf("%s: revision %d has %d changes", name, r, count[r])
			}
		}
	}
}

func TestCompactedWatch(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	from := w.put(t, "a", "1")
	w.delete(t, "a")
	compacted := w.put(t, "b", "1")
	must(w.Compact(t.Context(), int64(compacted)))(t)
	for r := from; r < compacted; r++ {
		_, err := w.Source.Watch(t.Context(), r)
		wantKind(t, err, keepwatch.Expired)
	}
	watch := w.watch(t, compacted)
	if got := describe(readTo(t, watch, compacted, w.delete(t, "b"))); got != "-b" {
		t.Errorf("from the compacted revision on the watch shows %s", got)
	}
}

func TestClosedWatch(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	from := w.put(t, "a", "1")

	closed := w.watch(t, from)
	closed.Close()
	closed.Close()
	wantKind(t, readToEnd(t, closed), keepwatch.Ended)

	ctx, cancel := context.WithCancel(t.Context())
	cancelled := must(w.Source.Watch(ctx, from))(t)
	defer cancelled.Close()
	cancel()
	wantKind(t, readToEnd(t, cancelled), keepwatch.Ended)
	_, err := w.Source.Watch(ctx, from)
	wantKind(t, err, keepwatch.Ended)
	_, err = w.List(ctx, keepwatch.ListRequest{})
	wantKind(t, err, keepwatch.Ended)
}

// A consumer that does not read causes a bounded amount of memory, and receives every change
// when it reads again.
func TestSlowConsumer(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	from := w.put(t, "a", "0")
	slow, quick := w.watch(t, from), w.watch(t, from)
	value := strings.Repeat("x", 64<<10)
	var end keepwatch.Revision
	for i := range 150 { // 10 MB
		end = w.put(t, fmt.Sprint(i%10), value)
	}
	readTo(t, quick, from, end) // is not delayed
	first := next(t, slow)
	bytes := 0
	for _, c := range first.Changes {
		bytes += len(c.Object.(*etcd.Object).Value())
	}
	if bytes > 1<<20 {
		t.Errorf("%d bytes were read ahead", bytes)
	}
	if n := len(first.Changes) + len(readTo(t, slow, first.To, end)); n != 150 {
		t.Errorf("of 150 changes %d were delivered", n)
	}
}
