package proxy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

var operationsFlag = flag.Int("proxy.operations", 400, "how many operations each client of TestLinearizable performs")

// replicaLag delays all that etcd sends to the second API server.
const replicaLag = 20 * time.Millisecond

// betweenProxyAndServer is what goes wrong with the requests by which the proxy follows config maps.
const betweenProxyAndServer = `
rules:
- {match: {verb: watch, resource: configmaps}, probability: 0.4, fault: cut, after: {events: 40, random: true}}
- {match: {verb: watch, resource: configmaps}, probability: 0.4, fault: tear, after: {bytes: 20000, random: true}}
- {match: {verb: watch, resource: configmaps}, probability: 0.5, fault: stall, after: {events: 40, random: true}, for: 300ms}
- {match: {verb: list, resource: configmaps}, probability: 0.05, fault: refuse}
- {match: {verb: list, resource: configmaps}, probability: 0.1, fault: delay, for: 200ms}
- {match: {verb: list, resource: configmaps}, fault: stale, lag: 3s}
`

// The names that all clients write and read.
const linearizableNames = 6

// An operation on one name. A value is unique; the empty one is an object that does not exist.
type (
	operationKind uint8
	operation     struct {
		kind  operationKind
		name  int
		value string // of a create or an update
	}
	// outcome is what the client was told. An unknown one was interrupted: it has an effect at any time, or never.
	outcome struct {
		value   string // of a read
		unknown bool
	}
)

const (
	readOperation operationKind = iota
	createOperation
	updateOperation
	deleteOperation
)

// register is the specification: one object, whose writes and consistent reads have one order.
var register = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := make([][]porcupine.Operation, linearizableNames)
		for _, o := range history {
			name := o.Input.(operation).name
			byName[name] = append(byName[name], o)
		}
		return byName
	},
	Init: func() []any { return []any{""} },
	Step: func(before, input, output any) []any {
		state, in, out := before.(string), input.(operation), output.(outcome)
		next, lawful := state, true
		switch in.kind {
		case readOperation:
			lawful = out.value == state
		case createOperation:
			next, lawful = in.value, state == ""
		case updateOperation:
			next, lawful = in.value, state != ""
		case deleteOperation:
			next, lawful = "", state != ""
		}
		switch {
		case out.unknown && lawful:
			return []any{state, next}
		case out.unknown:
			return []any{state}
		case lawful:
			return []any{next}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()

// recording is what all clients did.
type recording struct {
	begun   time.Time
	mu      sync.Mutex
	history []porcupine.Operation
	values  atomic.Int64
}

func (r *recording) now() int64 { return int64(time.Since(r.begun)) }

func (r *recording) add(client int, called int64, in operation, out outcome) {
	returned := r.now()
	if out.unknown {
		returned = math.MaxInt64
	}
	r.addUntil(client, called, returned, in, out)
}

// addUntil adds an operation whose effect was before returned.
func (r *recording) addUntil(client int, called, returned int64, in operation, out outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, porcupine.Operation{ClientId: client, Input: in, Call: called, Output: out,
		Return: returned})
}

// linearizableClient writes and reads at one server.
type linearizableClient struct {
	id     int
	maps   corev1client.ConfigMapInterface
	random *rand.Rand
	*recording
	oldest  uint64 // the revision of the last list from the cache
	pages   int    // that follow the first ones of lists
	failed  int
	unusual error // that no client may receive
}

func (c *linearizableClient) step(ctx context.Context) {
	name := c.random.IntN(linearizableNames)
	switch c.random.IntN(12) {
	case 0:
		c.write(ctx, operation{createOperation, name, fmt.Sprint(c.values.Add(1))})
	case 1, 2:
		c.write(ctx, operation{updateOperation, name, fmt.Sprint(c.values.Add(1))})
	case 3:
		c.write(ctx, operation{deleteOperation, name, ""})
	case 4, 5:
		c.list(ctx)
	case 6:
		c.listCached(ctx, "0")
	case 7:
		c.listCached(ctx, strconv.FormatUint(c.oldest, 10))
	case 8:
		c.listPages(ctx)
	default:
		c.get(ctx, name)
	}
}

func nameOf(name int) string { return fmt.Sprint("register-", name) }

func (c *linearizableClient) write(ctx context.Context, o operation) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: nameOf(o.name)},
		Data: map[string]string{"value": o.value}}
	called := c.now()
	var err error
	switch o.kind {
	case createOperation:
		_, err = c.maps.Create(ctx, object, metav1.CreateOptions{})
	case updateOperation:
		_, err = c.maps.Update(ctx, object, metav1.UpdateOptions{})
	case deleteOperation:
		err = c.maps.Delete(ctx, object.Name, metav1.DeleteOptions{})
	}
	switch {
	case err == nil:
		c.add(c.id, called, o, outcome{})
	case apierrors.IsNotFound(err):
		c.add(c.id, called, operation{readOperation, o.name, ""}, outcome{})
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err): // it says that there is an object, but not which
	default:
		c.failed++
		c.add(c.id, called, o, outcome{unknown: true})
	}
}

func (c *linearizableClient) get(ctx context.Context, name int) {
	called := c.now()
	m, err := c.maps.Get(ctx, nameOf(name), metav1.GetOptions{})
	switch {
	case err == nil:
		c.add(c.id, called, operation{readOperation, name, ""}, outcome{value: m.Data["value"]})
	case apierrors.IsNotFound(err):
		c.add(c.id, called, operation{readOperation, name, ""}, outcome{})
	default:
		c.failed++
	}
}

func (c *linearizableClient) list(ctx context.Context) {
	called := c.now()
	list, err := c.maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		c.failed++
		return
	}
	c.addList(called, c.now(), list.Items)
}

// addList adds a list, which read the state of one moment.
func (c *linearizableClient) addList(called, returned int64, items []corev1.ConfigMap) {
	values := map[string]string{}
	for _, m := range items {
		values[m.Name] = m.Data["value"]
	}
	for name := range linearizableNames {
		c.addUntil(c.id, called, returned, operation{readOperation, name, ""}, outcome{value: values[nameOf(name)]})
	}
}

// listPages reads pages of the state at the moment of the first one.
func (c *linearizableClient) listPages(ctx context.Context) {
	called, returned := c.now(), int64(0)
	var items []corev1.ConfigMap
	var revision string
	for page := (metav1.ListOptions{Limit: 2}); ; {
		list, err := c.maps.List(ctx, page)
		if err != nil {
			c.failed++
			return
		}
		if returned == 0 {
			returned, revision = c.now(), list.ResourceVersion
		} else if list.ResourceVersion != revision {
			c.unusual = errors.Join(c.unusual, fmt.Errorf("client %d: a page at revision %s after one at %s", c.id,
				list.ResourceVersion, revision))
		}
		items = append(items, list.Items...)
		if page.Continue = list.Continue; page.Continue == "" {
			break
		}
		c.pages++
	}
	c.addList(called, returned, items)
}

// listCached reads any state that is not older than a revision, nor than the last one that this client has read so.
func (c *linearizableClient) listCached(ctx context.Context, revision string) {
	list, err := c.maps.List(ctx, metav1.ListOptions{ResourceVersion: revision})
	if err != nil {
		c.failed++
		return
	}
	read, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil || read < c.oldest {
		c.unusual = errors.Join(c.unusual, err, fmt.Errorf("client %d: a list at revision %d after one at %d", c.id, read,
			c.oldest))
	}
	c.oldest = max(c.oldest, read)
}

// Writes at the server and through two proxies, and consistent reads at all three, whole and in pages, are
// linearizable. The proxies' connections go to two API servers of one etcd in turn, of which one is late, while watches
// and lists are cut, torn, stalled, refused and answered from long before. Each client's lists from a cache never go
// back.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-proxy.seed %d", seed)
	etcd := peer.StartEtcd(t)
	server := peer.KubernetesOn(t, etcd)
	slowEtcd := newBalancer(t, string(etcd.Endpoint))
	late := peer.ReplicaOn(t, server, peer.Endpoint(slowEtcd.url))
	servers := newBalancer(t, server.Config().Host, late.Config().Host)
	plan, err := faults.ParsePlan([]byte(betweenProxyAndServer))
	if err != nil {
		t.Fatal(err)
	}
	plan.Seed = seed
	balanced := server.At(t, servers.url).Config()
	balanced.NextProtos = []string{"http/1.1"} // requests at the same time go to both servers
	between := faults.New(t, balanced, plan)
	first := newFront(t, proxy.Config{Server: between.Config(), SmallCollection: -1})
	second := newFront(t, proxy.Config{Server: between.Config(), SmallCollection: -1})
	all := recording{begun: time.Now()}
	var clients []*linearizableClient
	for i, config := range []*rest.Config{server.Config(), first.Config(), first.Config(), first.Config(), second.Config(),
		second.Config()} {
		config.QPS = -1
		k, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, &linearizableClient{
			id: i, maps: k.CoreV1().ConfigMaps("default"), random: rand.New(rand.NewPCG(seed, uint64(i))), recording: &all,
		})
	}
	for _, f := range []*front{first, second} {
		await.True(t, "config maps are answered from a cache", func() bool {
			clients[1].listCached(t.Context(), "0")
			clients[5].listCached(t.Context(), "0")
			return f.answered() > 0
		})
	}
	slowEtcd.setLag(0, replicaLag) // not before: a server asks etcd hundreds of times at its start
	slowEtcd.cut()
	var working sync.WaitGroup
	for _, c := range clients {
		working.Go(func() {
			for i := range *operationsFlag {
				if c.id == 0 && 8*i%*operationsFlag == 0 {
					servers.cut()
				}
				c.step(t.Context())
			}
		})
	}
	working.Wait()
	failed, pages := 0, 0
	for _, c := range clients {
		failed, pages = failed+c.failed, pages+c.pages
		if c.unusual != nil {
			t.Error(c.unusual)
		}
	}
	met := 0
	for _, e := range between.Transcript() {
		met += len(e.Faults)
	}
	answered := first.answered() + second.answered()
	atLate, err := late.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked := atLate.Sum("apiserver_request_total", peer.Labels{"resource": "configmaps"})
	t.Logf("%d operations, of which %d failed; %.0f reads from caches, %d following pages; %d faults; %.0f requests to the late server", len(all.history), failed, answered, pages, met, asked)
	if asked < float64(*operationsFlag)/2 {
		t.Errorf("this is no proof: the late server has answered %.0f requests", asked)
	}
	if failed > len(all.history)/10 || answered < float64(len(clients)**operationsFlag)/5 || pages < *operationsFlag/10 ||
		met < 10 {
		t.Errorf("this is no proof: %d of %d operations failed, %.0f reads were answered from caches, %d following pages, %d faults", failed, len(all.history), answered, pages, met)
	}
	if !porcupine.CheckOperations(register, all.history) {
		t.Error("writes and consistent reads are not linearizable")
	}
	if porcupine.CheckOperations(register, staleRead(t, all.history)) {
		t.Error("a read of a value that was replaced is not noticed")
	}
}

// staleRead returns the history, in which one more read returns a value that was replaced before it began.
func staleRead(t *testing.T, history []porcupine.Operation) []porcupine.Operation {
	t.Helper()
	for _, o := range history {
		in, out := o.Input.(operation), o.Output.(outcome)
		if in.kind != updateOperation || out.unknown {
			continue
		}
		for _, later := range history {
			of := later.Input.(operation)
			if of.kind == updateOperation && of.name == in.name && !later.Output.(outcome).unknown && later.Call > o.Return {
				return append(slices.Clone(history), porcupine.Operation{
					ClientId: 100, Input: operation{kind: readOperation, name: in.name}, Output: outcome{value: in.value},
					Call: later.Return + 1, Return: later.Return + 2,
				})
			}
		}
	}
	t.Fatal("no object was updated twice")
	return nil
}
