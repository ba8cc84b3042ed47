package memory_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/server/source/memory"
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
	client := must(kubernetes.New(clientv3.Config{Endpoints: []string{config.ListenClientUrls[0].String()},
		Logger: zap.NewNop()}))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// Random operations have the same results as in etcd: revisions, conflicts, pages, past states, the errors of compacted
// and future revisions, leases, and what watches from past revisions deliver.
func TestAnswersAsEtcdDoes(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // etcd's watches of the past begin at its next tick
			etcd := startEtcd(t)
			for i := range 100 * seed { // the databases begin at another revision
				must(etcd.Put(t.Context(), "/before", fmt.Sprint(i)))(t)
			}
			compareRandomly(t, etcd, seed)
		})
	}
}

func compareRandomly(t *testing.T, etcd *kubernetes.Client, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	tw := newTwins(t, etcd, fmt.Sprintf("/registry/%d/pods/", seed), fmt.Sprintf("/registry/%d/pods.x/", seed))
	defer tw.memory.Close()
	for step := range 600 {
		resource := tw.resources[random.IntN(2)]
		key := resource.prefix + []string{"a/x", "a/y", "a-b/x", "b/x", "ab", "", "a/x/y"}[random.IntN(7)]
		newest := int64(tw.memory.Revision())
		past := []int64{0, newest, max(tw.start, newest-random.Int64N(20)), newest + 1}[random.IntN(4)]
		expected := must(etcd.Get(t.Context(), key, kubernetes.GetOptions{}))(t).KV.GetModRevision()
		if random.IntN(4) == 0 {
			expected = newest - random.Int64N(3)
		}
		onFailure := random.IntN(2) == 0
		value := []byte(fmt.Sprint(step))
		limit := random.Int64N(3)
		prefix := resource.prefix + []string{"", "a/", "a"}[random.IntN(3)]
		if step%20 == 0 {
			tw.compareHistory(t, resource, keepwatch.Revision(max(tw.start, newest+1-random.Int64N(40))))
		}
		var of lease
		if random.IntN(3) == 0 {
			of = tw.anyLease(t, random)
		}
		var what string
		var operation func(kubernetes.Interface, clientv3.LeaseID) answer
		switch random.IntN(6) {
		case 0, 1:
			what = fmt.Sprintf("put %s at %d with lease %v", key, expected, of)
			operation = func(c kubernetes.Interface, lease clientv3.LeaseID) answer {
				r, err := c.OptimisticPut(t.Context(), key, value, expected, kubernetes.PutOptions{GetOnFailure: onFailure,
					LeaseID: lease})
				return answer{Done: r.Succeeded, KV: one(r.KV), Revision: r.Revision, Err: errorOf(err)}
			}
		case 2:
			what = fmt.Sprintf("delete %s at %d", key, expected)
			operation = func(c kubernetes.Interface, _ clientv3.LeaseID) answer {
				r, err := c.OptimisticDelete(t.Context(), key, expected, kubernetes.DeleteOptions{GetOnFailure: onFailure})
				return answer{Done: r.Succeeded, KV: one(r.KV), Revision: r.Revision, Err: errorOf(err)}
			}
		case 3:
			what = fmt.Sprintf("get %s at %d", key, past)
			operation = func(c kubernetes.Interface, _ clientv3.LeaseID) answer {
				r, err := c.Get(t.Context(), key, kubernetes.GetOptions{Revision: past})
				return answer{KV: one(r.KV), Revision: r.Revision, Err: errorOf(err)}
			}
		case 4:
			options := kubernetes.ListOptions{Revision: past, Limit: limit}
			if random.IntN(2) == 0 {
				options.Continue = prefix + "a\x00"
			}
			what = fmt.Sprintf("list %s: %+v", prefix, options)
			operation = func(c kubernetes.Interface, _ clientv3.LeaseID) answer {
				r, err := c.List(t.Context(), prefix, options)
				return answer{KV: r.Kvs, Count: r.Count, Revision: r.Revision, Err: errorOf(err)}
			}
		case 5:
			if step%50 == 0 && newest > tw.start+10 {
				at := newest - random.Int64N(5)
				_, want := etcd.Compact(t.Context(), at)
				if got := tw.memory.Compact(keepwatch.Revision(at)); errorOf(got) != errorOf(want) {
					t.Fatalf("step %d: compact at %d: %v, want %v", step, at, got, want)
				}
			}
			what = "count " + prefix
			operation = func(c kubernetes.Interface, _ clientv3.LeaseID) answer {
				n, err := c.Count(t.Context(), prefix, kubernetes.CountOptions{})
				return answer{Count: n, Err: errorOf(err)}
			}
		}
		want, got := tw.translated(operation(etcd, of.etcd)), operation(resource.memory.Kubernetes, of.memory)
		if want.Err != "" {
			want.Revision, got.Revision = 0, 0
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Fatalf("step %d: %s: (-etcd +memory)\n%s", step, what, d)
		}
	}
	tw.compareExpiry(t)
}

// A write that is too large is refused as by etcd, from the same size on but for the bytes of etcd's own number of the
// request.
func TestRefusesLargeWritesAsEtcdDoes(t *testing.T) {
	etcd := startEtcd(t)
	db := memory.New()
	defer db.Close()
	const key = "/registry/pods/large/a"
	inMemory := db.Client("/registry/pods/").Kubernetes
	value := make([]byte, 3<<20)
	put := func(c kubernetes.Interface, size int) error {
		now := must(c.Get(t.Context(), key, kubernetes.GetOptions{}))(t)
		_, err := c.OptimisticPut(t.Context(), key, value[:size], now.KV.GetModRevision(),
			kubernetes.PutOptions{GetOnFailure: now.KV != nil})
		return err
	}
	for _, bound := range []int{3 << 19, 2 << 20} { // of etcd, and of its client
		for _, size := range []int{bound - 1000, bound + 1000} {
			want, got := put(etcd, size), put(inMemory, size)
			wanted, _ := status.FromError(want)
			is, _ := status.FromError(got)
			if wanted.Code() != is.Code() || reflect.TypeOf(want) != reflect.TypeOf(got) ||
				len(errorOf(want)) != len(errorOf(got)) {
				t.Errorf("%d bytes: %v (%T), want %v (%T)", size, got, got, want, want)
			}
		}
	}
	first := func(c kubernetes.Interface) int {
		const from = 3<<19 - 500
		return from + sort.Search(500, func(n int) bool { return put(c, from+n) != nil })
	}
	if want, got := first(etcd), first(inMemory); got < want-5 || got > want {
		t.Errorf("a value is refused from %d bytes on, by etcd from %d on", got, want)
	}
	if err := put(inMemory, 1000); err != nil {
		t.Errorf("after refused writes: %v", err)
	}
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

// twins are an etcd and a memory database, to which the same happens from the same revision on.
type twins struct {
	etcd      *kubernetes.Client
	memory    *memory.DB
	start     int64
	resources []resource
	leases    []lease
}

// resource is a prefix, with the memory database's client for it.
type resource struct {
	prefix string
	memory *kubernetes.Client
}

// lease is one of both, each of which gives it a number.
type lease struct{ etcd, memory clientv3.LeaseID }

// valued is an object of either source, with what the interface does not have.
type valued struct {
	keepwatch.Object
	version int64
	value   string
}

func newTwins(t *testing.T, client *kubernetes.Client, prefixes ...string) *twins {
	t.Helper()
	tw := &twins{etcd: client, memory: memory.New(),
		start: must(client.Get(t.Context(), "/", kubernetes.GetOptions{}))(t).Revision}
	for _, prefix := range prefixes {
		tw.resources = append(tw.resources, resource{prefix, tw.memory.Client(prefix)})
	}
	for tw.memory.Revision() < keepwatch.Revision(tw.start) {
		key := "/elsewhere/a"
		c := tw.memory.Client("/elsewhere/").Kubernetes
		now := must(c.Get(t.Context(), key, kubernetes.GetOptions{}))(t)
		must(c.OptimisticPut(t.Context(), key, nil, now.KV.GetModRevision(), kubernetes.PutOptions{}))(t)
	}
	return tw
}

// grant makes a lease.
func (tw *twins) grant(t *testing.T, seconds int64) lease {
	t.Helper()
	granted := lease{
		must(tw.etcd.Grant(t.Context(), seconds))(t).ID,
		must(tw.resources[0].memory.Lease.Grant(t.Context(), seconds))(t).ID,
	}
	tw.leases = append(tw.leases, granted)
	return granted
}

// anyLease returns one of three leases, which outlive the test.
func (tw *twins) anyLease(t *testing.T, random *rand.Rand) lease {
	t.Helper()
	if len(tw.leases) < 3 {
		return tw.grant(t, 10_000)
	}
	return tw.leases[random.IntN(3)]
}

// translated gives an answer of etcd the memory database's numbers of leases.
func (tw *twins) translated(a answer) answer {
	for _, kv := range a.KV {
		for _, l := range tw.leases {
			if kv.Lease == int64(l.etcd) {
				kv.Lease = int64(l.memory)
				break
			}
		}
	}
	return a
}

// compareHistory compares what watches from a revision deliver.
func (tw *twins) compareHistory(t *testing.T, of resource, from keepwatch.Revision) {
	t.Helper()
	ofEtcd := must(etcd.New(tw.etcd.Client, etcd.Options{Prefix: of.prefix, Decode: func(o *etcd.Object,
		value []byte) (keepwatch.Object, error) {
		return valued{o, o.Version(), string(value)}, nil
	}}))(t)
	ofMemory := tw.memory.Source(memory.Options{Prefix: of.prefix, Decode: func(o *memory.Object,
		value []byte) keepwatch.Object {
		return valued{o, o.Version(), string(value)}
	}})
	to := tw.memory.Revision()
	want, got := history(t, ofEtcd, from, to), history(t, ofMemory, from, to)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("watch %s from %d to %d: (-etcd +memory)\n%s", of.prefix, from, to, d)
	}
}

// history returns what a watch delivers up to a revision, and the kind of its failure.
func history(t *testing.T, source keepwatch.Source, from, to keepwatch.Revision) []string {
	t.Helper()
	w, err := source.Watch(t.Context(), from)
	if err != nil {
		return []string{kind(err).String()}
	}
	defer w.Close()
	must(source.Newest(t.Context()))(t)
	var delivered []string
	for reached := from; reached < to; {
		batch, err := w.Next()
		if err != nil {
			return append(delivered, kind(err).String())
		}
		reached = batch.To
		for _, c := range batch.Changes {
			what := fmt.Sprintf("%s %s at %d", c.Type, c.Object.Key(), c.Revision)
			if o, ok := c.Object.(valued); ok && c.Type != keepwatch.Deleted {
				what += fmt.Sprintf(", created at %s, version %d: %s", o.UID(), o.version, o.value)
			}
			delivered = append(delivered, what)
		}
	}
	return delivered
}

// compareExpiry lets keys go with their lease, except one that has another lease then.
func (tw *twins) compareExpiry(t *testing.T) {
	t.Helper()
	before := tw.memory.Revision()
	ending, long := tw.grant(t, 10_000), tw.grant(t, 10_000)
	put := func(of resource, name string, l lease) {
		key := of.prefix + name
		now := must(tw.etcd.Get(t.Context(), key, kubernetes.GetOptions{}))(t).KV.GetModRevision()
		for c, id := range map[kubernetes.Interface]clientv3.LeaseID{tw.etcd: l.etcd, of.memory.Kubernetes: l.memory} {
			if r := must(c.OptimisticPut(t.Context(), key, nil, now, kubernetes.PutOptions{LeaseID: id}))(t); !r.Succeeded {
				t.Fatalf("%s is not written at %d", key, now)
			}
		}
	}
	for _, of := range tw.resources {
		for _, name := range []string{"c/z", "b/x", "c/a", "c/left"} {
			put(of, name, ending)
		}
	}
	put(tw.resources[0], "c/left", long)
	expired := tw.memory.Revision() + 1               // all keys of a lease at one revision
	must(tw.etcd.Revoke(t.Context(), ending.etcd))(t) // as when it is due: on a busy machine, a short one ends too early
	tw.memory.EndLease(ending.memory)
	for _, of := range tw.resources {
		for _, c := range []kubernetes.Interface{tw.etcd, of.memory.Kubernetes} {
			if n := must(c.Count(t.Context(), of.prefix+"c/z", kubernetes.CountOptions{}))(t); n != 0 {
				t.Errorf("after the end of a lease its key is there")
			}
		}
	}
	if newest := must(tw.etcd.Get(t.Context(), "/", kubernetes.GetOptions{}))(t).Revision; newest != int64(expired) ||
		tw.memory.Revision() != expired {
		t.Errorf("after the end of a lease etcd is at revision %d, and the memory database at %d; want %d", newest,
			tw.memory.Revision(), expired)
	}
	for _, of := range tw.resources {
		tw.compareHistory(t, of, before)
	}
}
