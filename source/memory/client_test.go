package memory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/memory"
)

// startEtcd runs an etcd on a socket.
func startEtcd(t *testing.T) *kubernetes.Client {
	t.Helper()
	dir := must(os.MkdirTemp("", "etcd"))(t) // sockets need short names
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "data")
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "s")}}
	config.AdvertiseClientUrls, config.ListenPeerUrls = config.ListenClientUrls, nil
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.TickMs, config.ElectionMs = 10, 100
	config.UnsafeNoFsync = true
	config.EnableGRPCGateway = false
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server := must(embed.StartEtcd(config))(t)
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	client := must(kubernetes.New(clientv3.Config{Endpoints: []string{config.ListenClientUrls[0].String()}, Logger: zap.NewNop()}))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// answer is a response of either database, in a form that can be compared.
type answer struct {
	Done     bool
	KV       []*mvccpb.KeyValue
	Count    int64
	Revision int64
	Err      string
}

func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func one(kv *mvccpb.KeyValue) []*mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	return []*mvccpb.KeyValue{kv}
}

// Random operations have the same results as in etcd: revisions, conflicts, pages, past states, and the errors
// of compacted and future revisions.
func TestAnswersAsEtcdDoes(t *testing.T) {
	etcd := startEtcd(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { compareRandomly(t, etcd, seed) })
	}
}

func compareRandomly(t *testing.T, etcd *kubernetes.Client, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	start := must(etcd.Get(t.Context(), "/", kubernetes.GetOptions{}))(t).Revision
	db := memory.New()
	defer db.Close()
	resources := []string{fmt.Sprintf("/registry/%d/pods/", seed), fmt.Sprintf("/registry/%d/pods.x/", seed)}
	clients := map[string]*kubernetes.Client{}
	for _, r := range resources {
		clients[r] = db.Client(r)
	}
	for db.Revision() < keepwatch.Revision(start) { // both begin at the same revision
		key := "/elsewhere/a"
		c := db.Client("/elsewhere/").Kubernetes
		now := must(c.Get(t.Context(), key, kubernetes.GetOptions{}))(t)
		must(c.OptimisticPut(t.Context(), key, nil, now.KV.GetModRevision(), kubernetes.PutOptions{}))(t)
	}
	for step := range 600 {
		resource := resources[random.IntN(2)]
		key := resource + []string{"a/x", "a/y", "a-b/x", "b/x", "ab", "", "a/x/y"}[random.IntN(7)]
		newest := int64(db.Revision())
		past := []int64{0, newest, max(start, newest-random.Int64N(20)), newest + 1}[random.IntN(4)]
		expected := must(etcd.Get(t.Context(), key, kubernetes.GetOptions{}))(t).KV.GetModRevision()
		if random.IntN(4) == 0 {
			expected = newest - random.Int64N(3)
		}
		onFailure := random.IntN(2) == 0
		value := []byte(fmt.Sprint(step))
		limit := random.Int64N(3)
		prefix := resource + []string{"", "a/", "a"}[random.IntN(3)]
		var what string
		var operation func(kubernetes.Interface) answer
		switch random.IntN(6) {
		case 0, 1:
			what = fmt.Sprintf("put %s at %d", key, expected)
			operation = func(c kubernetes.Interface) answer {
				r, err := c.OptimisticPut(t.Context(), key, value, expected, kubernetes.PutOptions{GetOnFailure: onFailure})
				return answer{Done: r.Succeeded, KV: one(r.KV), Revision: r.Revision, Err: errorOf(err)}
			}
		case 2:
			what = fmt.Sprintf("delete %s at %d", key, expected)
			operation = func(c kubernetes.Interface) answer {
				r, err := c.OptimisticDelete(t.Context(), key, expected, kubernetes.DeleteOptions{GetOnFailure: onFailure})
				return answer{Done: r.Succeeded, KV: one(r.KV), Revision: r.Revision, Err: errorOf(err)}
			}
		case 3:
			what = fmt.Sprintf("get %s at %d", key, past)
			operation = func(c kubernetes.Interface) answer {
				r, err := c.Get(t.Context(), key, kubernetes.GetOptions{Revision: past})
				return answer{KV: one(r.KV), Revision: r.Revision, Err: errorOf(err)}
			}
		case 4:
			options := kubernetes.ListOptions{Revision: past, Limit: limit}
			if random.IntN(2) == 0 {
				options.Continue = prefix + "a\x00"
			}
			what = fmt.Sprintf("list %s: %+v", prefix, options)
			operation = func(c kubernetes.Interface) answer {
				r, err := c.List(t.Context(), prefix, options)
				return answer{KV: r.Kvs, Count: r.Count, Revision: r.Revision, Err: errorOf(err)}
			}
		case 5:
			if step%50 == 0 && newest > start+10 {
				at := newest - random.Int64N(5)
				_, want := etcd.Compact(t.Context(), at)
				if got := db.Compact(keepwatch.Revision(at)); errorOf(got) != errorOf(want) {
					t.Fatalf("step %d: compact at %d: %v, want %v", step, at, got, want)
				}
			}
			what = "count " + prefix
			operation = func(c kubernetes.Interface) answer {
				n, err := c.Count(t.Context(), prefix, kubernetes.CountOptions{})
				return answer{Count: n, Err: errorOf(err)}
			}
		}
		want, got := operation(etcd), operation(clients[resource].Kubernetes)
		if want.Err != "" {
			want.Revision, got.Revision = 0, 0
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Fatalf("step %d: %s: (-etcd +memory)\n%s", step, what, d)
		}
	}
}

// The general API reads ranges as etcd does, and refuses what it does not have.
func TestGeneralAPI(t *testing.T) {
	db := memory.New()
	defer db.Close()
	c := db.Client("/registry/pods/")
	for _, name := range []string{"a/1", "a/2", "b/1"} {
		must(c.Kubernetes.OptimisticPut(t.Context(), "/registry/pods/"+name, []byte("v"), 0, kubernetes.PutOptions{}))(t)
	}
	all := must(c.KV.Get(t.Context(), "/registry/pods/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(2)))(t)
	if len(all.Kvs) != 2 || !all.More || all.Count != 3 || all.Kvs[0].Value != nil || string(all.Kvs[1].Key) != "/registry/pods/a/2" {
		t.Errorf("keys: %v", all)
	}
	if n := must(c.KV.Get(t.Context(), "/registry/pods/a", clientv3.WithPrefix(), clientv3.WithCountOnly()))(t); n.Count != 2 || len(n.Kvs) != 0 {
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
	db := memory.New()
	defer db.Close()
	c := db.Client("/registry/events/")
	lease := must(c.Lease.Grant(t.Context(), 1))(t).ID
	longer := must(c.Lease.Grant(t.Context(), 1000))(t).ID
	put := func(name string, expected int64, id clientv3.LeaseID) {
		t.Helper()
		r := must(c.Kubernetes.OptimisticPut(t.Context(), "/registry/events/"+name, nil, expected, kubernetes.PutOptions{LeaseID: id}))(t)
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
		left := must(each.Client("/registry/events/").Kubernetes.List(t.Context(), "/registry/events/", kubernetes.ListOptions{}))(t)
		if len(left.Kvs) != 2 || left.Revision != 7 {
			t.Errorf("after the end of a lease: %v", left)
		}
	}
	if n := must(idle.Client("/registry/events/").Kubernetes.Count(t.Context(), "/registry/events/", kubernetes.CountOptions{}))(t); n != 4 {
		t.Errorf("a closed database has %d keys", n)
	}
	// A restored state has its leases, with their whole time.
	restored := must(db.At(6))(t)
	defer restored.Close()
	if n := must(restored.Client("/registry/events/").Kubernetes.Count(t.Context(), "/registry/events/", kubernetes.CountOptions{}))(t); n != 4 {
		t.Errorf("the restored database has %d keys", n)
	}
	for restored.Revision() == 6 {
		time.Sleep(10 * time.Millisecond)
	}
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
			must(c.Kubernetes.OptimisticPut(t.Context(), key, []byte(value), now.KV.GetModRevision(), kubernetes.PutOptions{}))(t)
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
		for _, kv := range must(db.Client("/registry/pods/").Kubernetes.List(t.Context(), "/registry/pods/", kubernetes.ListOptions{}))(t).Kvs {
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
		must(c.Kubernetes.OptimisticPut(b.Context(), fmt.Sprintf("/registry/pods/ns-%d/%d", i%50, i), value, 0, kubernetes.PutOptions{}))(b)
	}
	for b.Loop() {
		db.Fork().Close()
	}
}
