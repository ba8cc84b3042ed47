package memory_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/keepwatch/keepwatch/server/source/memory"
)

// The general API reads ranges as etcd does, and refuses what it does not have.
func TestGeneralAPI(t *testing.T) {
	db := memory.New()
	defer db.Close()
	c := db.Client("/registry/pods/")
	for _, name := range []string{"a/1", "a/2", "b/1"} {
		must(c.Kubernetes.OptimisticPut(t.Context(), "/registry/pods/"+name, []byte("v"), 0, kubernetes.PutOptions{}))(t)
	}
	all := must(c.KV.Get(t.Context(), "/registry/pods/", clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithLimit(2)))(t)
	if len(all.Kvs) != 2 || !all.More || all.Count != 3 || all.Kvs[0].Value != nil ||
		string(all.Kvs[1].Key) != "/registry/pods/a/2" {
		t.Errorf("keys: %v", all)
	}
	if n := must(c.KV.Get(t.Context(), "/registry/pods/a", clientv3.WithPrefix(),
		clientv3.WithCountOnly()))(t); n.Count != 2 || len(n.Kvs) != 0 {
		t.Errorf("count: %v", n)
	}
	if a := must(c.KV.Get(t.Context(), "/registry/pods/a/2"))(t); len(a.Kvs) != 1 || string(a.Kvs[0].Value) != "v" {
		t.Errorf("one key: %v", a)
	}
	stream := must(c.KV.GetStream(t.Context(), "/registry/pods/", clientv3.WithPrefix()))(t)
	if whole := must(clientv3.GetStreamToGetResponse(stream))(t); len(whole.Kvs) != 3 {
		t.Errorf("stream: %v", whole)
	}
	for name, call := range map[string]func() error{
		"a key of another resource": func() error {
			_, err := c.KV.Get(t.Context(), "/registry/podsx/a")
			return err
		},
		"a sort": func() error {
			_, err := c.KV.Get(t.Context(), "/registry/pods/", clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
			return err
		},
		"a put": func() error { _, err := c.KV.Put(t.Context(), "/registry/pods/a", ""); return err },
		"a transaction": func() error {
			_, err := c.KV.Txn(t.Context()).If().Then(clientv3.OpPut("/registry/pods/a", "")).Commit()
			return err
		},
		"an unknown lease": func() error {
			_, err := c.Kubernetes.OptimisticPut(t.Context(), "/registry/pods/c", nil, 0, kubernetes.PutOptions{LeaseID: 7})
			return err
		},
		"a lease without time": func() error { _, err := c.Lease.Grant(t.Context(), 0); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	if _, err := c.KV.Put(t.Context(), "/registry/pods/a", ""); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a put: %v", err)
	}
	if db.Revision() != 4 {
		t.Errorf("a refused write has a revision: %d", db.Revision())
	}
}

// A second at most after its lease is due, a key is deleted, with all others of the lease at one revision.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.New()
		defer db.Close()
		c := db.Client("/registry/events/")
		lease := must(c.Lease.Grant(t.Context(), 1))(t).ID
		longer := must(c.Lease.Grant(t.Context(), 1000))(t).ID
		put := func(name string, expected int64, id clientv3.LeaseID) {
			t.Helper()
			r := must(c.Kubernetes.OptimisticPut(t.Context(), "/registry/events/"+name, nil, expected,
				kubernetes.PutOptions{LeaseID: id}))(t)
			if !r.Succeeded {
				t.Fatalf("%s was not written", name)
			}
		}
		put("a", 0, lease)
		put("b", 0, lease)
		put("c", 0, lease)
		put("c", 4, longer) // leaves the first lease
		put("d", 0, clientv3.NoLease)
		fork := db.Fork()
		defer fork.Close()
		idle := db.Fork()
		idle.Close() // its leases don't end
		for _, each := range []*memory.DB{db, fork} {
			for each.Revision() == 6 {
				time.Sleep(10 * time.Millisecond)
			}
			left := must(each.Client("/registry/events/").Kubernetes.List(t.Context(), "/registry/events/",
				kubernetes.ListOptions{}))(t)
			if len(left.Kvs) != 2 || left.Revision != 7 {
				t.Errorf("after the end of a lease: %v", left)
			}
		}
		if n := must(idle.Client("/registry/events/").Kubernetes.Count(t.Context(), "/registry/events/",
			kubernetes.CountOptions{}))(t); n != 4 {
			t.Errorf("a closed database has %d keys", n)
		}
		// A restored state has its leases, with their whole time.
		restored := must(db.At(6))(t)
		defer restored.Close()
		if n := must(restored.Client("/registry/events/").Kubernetes.Count(t.Context(), "/registry/events/",
			kubernetes.CountOptions{}))(t); n != 4 {
			t.Errorf("the restored database has %d keys", n)
		}
		for restored.Revision() == 6 {
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A fork and its origin do not see each other's writes, also if both write the same keys concurrently.
func TestForksAreIndependent(t *testing.T) {
	origin := memory.New()
	defer origin.Close()
	write := func(db *memory.DB, value string) {
		c := db.Client("/registry/pods/")
		for i := range 2000 {
			key := fmt.Sprintf("/registry/pods/ns/%d", i%500)
			now := must(c.Kubernetes.Get(t.Context(), key, kubernetes.GetOptions{}))(t)
			must(c.Kubernetes.OptimisticPut(t.Context(), key, []byte(value), now.KV.GetModRevision(),
				kubernetes.PutOptions{}))(t)
		}
	}
	write(origin, "before")
	at := origin.Revision()
	forks := []*memory.DB{origin, origin.Fork(), origin.Fork(), must(origin.At(at - 100))(t)}
	done := make(chan struct{})
	for i, db := range forks {
		go func() {
			defer func() { done <- struct{}{} }()
			write(db, fmt.Sprint(i))
		}()
	}
	for range forks {
		<-done
	}
	for i, db := range forks {
		defer db.Close()
		want := at + 2000
		if i == 3 {
			want -= 100
		}
		if db.Revision() != want {
			t.Errorf("database %d is at %d, want %d", i, db.Revision(), want)
		}
		for _, kv := range must(db.Client("/registry/pods/").Kubernetes.List(t.Context(), "/registry/pods/",
			kubernetes.ListOptions{}))(t).Kvs {
			if string(kv.Value) != fmt.Sprint(i) {
				t.Fatalf("database %d has %s of database %s", i, kv.Key, kv.Value)
			}
		}
	}
	if _, err := forks[1].At(at - 1); err == nil {
		t.Error("a fork has history from before it")
	}
}

// A fork costs the same for any number of objects.
func BenchmarkFork(b *testing.B) {
	db := memory.New()
	defer db.Close()
	c := db.Client("/registry/pods/")
	value := make([]byte, 2000)
	for i := range 50_000 {
		must(c.Kubernetes.OptimisticPut(b.Context(), fmt.Sprintf("/registry/pods/ns-%d/%d", i%50, i), value, 0,
			kubernetes.PutOptions{}))(b)
	}
	for b.Loop() {
		db.Fork().Close()
	}
}
