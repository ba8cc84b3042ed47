package served

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

var (
	pods       = flag.Int("pods", 50_000, "how many pods there are")
	small      = flag.Bool("small", false, "pods of 1.5 KB in place of 9 KB")
	configMaps = flag.Int("configmaps", 10_000, "how many config maps there are")
	idle       = flag.Int("idle", 5000, "how many watchers are idle")
	writing    = flag.Duration("writing", 10*time.Second, "how long each fan-out is written to")
	concurrent = flag.Int("concurrent", 32, "how many lists are asked for at once")
	writes     = flag.Int("writes", 2000,
		"how many pods are created, updated, patched and deleted by each number of writers")
	forwarded = flag.Int("forwarded", 500, "how many requests of each kind a proxy forwards")
	rounds    = flag.Int("rounds", 3,
		"how often keepwatch-apiserver's modes, or kube-apiserver and a proxy, are measured in turns")
	rows     = flag.String("rows", "", "regular expression of the rows that are measured (default all)")
	peerRows = flag.String("peer-rows", "", "regular expression of the rows in which kube-apiserver is measured beside "+
		"keepwatch serve (default those of -rows, and plain Go, too)")
	growing    = flag.String("growth", "10000,40000,160000", "how many objects a collection has, in rising order")
	serveFlags = flag.String("serve", "",
		"more flags of keepwatch serve or keepwatch-apiserver, such as --watch-history=512Mi")
	informers   = flag.Int("informers", 20, "how many informers follow a restart of keepwatch serve")
	watchers    = flag.Int("watchers", 1000, "how many watchers follow a restart of keepwatch serve")
	byNamespace = flag.Bool("by-namespace", false, "clients of a restart follow a namespace each, in place of everything")
	nodes       = flag.String("nodes", "100,1000,10000", "how many watchers by node there are, in rising order")
	limit       = flag.Float64("memory-limit", 18, "how many GiB a server may hold before it is killed")
)

func scale(b *testing.B) Scale {
	klog.SetLogger(logr.Discard()) // of informers, about the restart
	only, err := regexp.Compile(*rows)
	if err != nil {
		b.Fatalf("-rows: %v", err)
	}
	return Scale{
		Pods: *pods, Idle: *idle, Writing: *writing, Writes: *writes, Forwarded: *forwarded, Rows: only,
		Restart: restartClients{*informers, *watchers, namespaces()},
		Storm:   Storm{Lists: *concurrent, MemoryLimit: int64(*limit * (1 << 30))},
	}
}

// namespaces is how many a fleet has whose namespaces are followed, or 0.
func namespaces() int {
	if !*byNamespace {
		return 0
	}
	return (*pods + 999) / 1000
}

func newReport(peers ...Contender) *Report {
	return NewReport(func(format string, args ...any) { fmt.Printf(format+"\n", args...) }, peers...)
}

// BenchmarkServe loads an etcd once and measures kube-apiserver, keepwatch serve and a
// plain Go server, one after the other, never two at a time. An iteration prints one
// table.
func BenchmarkServe(b *testing.B) {
	for b.Loop() {
		compareServe(b, scale(b))
	}
}

func compareServe(b *testing.B, scale Scale) {
	ctx, report := b.Context(), newReport(KubeAPIServer, PlainGo)
	peer.Keepwatch(b) // so that nothing is built while something is measured
	etcd := peer.StartEtcd(b)
	kubernetes := peer.KubernetesOn(b, etcd)
	writer := fill(b, report, kubernetes, scale)
	targets := ServeTargets(scale.Storm.Lists, scale.Restart)
	defer printTable(b, report, scale, "bench-real", targets) // also if a step fails
	rowsOfPeer := scale.Rows
	if *peerRows != "" {
		rowsOfPeer = regexp.MustCompile(*peerRows)
	}
	measure := func(by Contender, api *peer.Server, rows *regexp.Regexp) {
		server, err := NewServer(by, api, 3)
		if err != nil {
			b.Fatal(err)
		}
		steps := append(server.reads(report, writer, scale), server.overload(report, writer, scale)...)
		if err := report.Run(ctx, server, steps, rows); err != nil {
			b.Fatal(err)
		}
	}
	measure(KubeAPIServer, kubernetes, rowsOfPeer)
	kubernetes.Kill()

	keepwatch := peer.ServeOn(b, etcd, strings.Fields(*serveFlags)...)
	measure(Keepwatch, keepwatch, scale.Rows)
	if *peerRows != "" {
		return
	}
	bodies, err := SaveBodies(ctx, keepwatch, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	keepwatch.Kill()

	if err := report.RunPlain(ctx, bodies, scale); err != nil {
		b.Fatal(err)
	}
	report.Progress("done")
}

// BenchmarkKubernetes loads an etcd once and measures keepwatch-apiserver in both modes, in turns, never
// two at a time. An iteration prints one table. A step that fails is a failure.
func BenchmarkKubernetes(b *testing.B) {
	for b.Loop() {
		compareKubernetes(b, scale(b))
	}
}

func compareKubernetes(b *testing.B, scale Scale) {
	report := newReport(Upstream)
	etcd := peer.StartEtcd(b)
	more := strings.Fields(*serveFlags)
	upstream := peer.KeepwatchAPIServerOn(b, etcd, slices.Concat(more, []string{"--reads=upstream"})...)
	writer := fill(b, report, upstream, scale)
	upstream.Kill()
	keepwatch := peer.KeepwatchAPIServerOn(b, etcd, slices.Concat(more, []string{"--reads=keepwatch"})...)
	keepwatch.Kill()
	defer printTable(b, report, scale, "bench-kubernetes", KubernetesTargets())
	for round := range *rounds {
		if round > 0 {
			report.NextRound()
		}
		for _, c := range []struct {
			by  Contender
			api *peer.Server
		}{{Upstream, upstream}, {Keepwatch, keepwatch}} {
			server, err := NewServer(c.by, c.api, 1)
			if err != nil {
				b.Fatal(err)
			}
			steps := append(server.reads(report, writer, scale), server.writes(report, scale)...)
			if err := report.Run(b.Context(), server, steps, scale.Rows); err != nil {
				b.Fatal(err)
			}
			server.Kill()
		}
	}
	for _, failure := range report.Failed() {
		b.Error(failure)
	}
	report.Progress("done")
}

// BenchmarkProxy loads an etcd once and measures kube-apiserver and keepwatch proxy in front of it, in turns. An
// iteration prints one table. A step that fails is a failure.
func BenchmarkProxy(b *testing.B) {
	for b.Loop() {
		compareProxy(b, scale(b))
	}
}

func compareProxy(b *testing.B, scale Scale) {
	ctx, report := b.Context(), newReport(KubeAPIServer)
	kubernetes := peer.Kubernetes(b)
	writer := fill(b, report, kubernetes, scale)
	p, err := NewProxied(kubernetes, peer.DeployedProxy(b, kubernetes), peer.DeployedProxy(b, kubernetes, "--state",
		b.TempDir()),
		peer.DeployedProxy(b, kubernetes, "--drop", "managedFields"), writer, scale)
	if err != nil {
		b.Fatal(err)
	}
	defer printTable(b, report, scale, "bench-proxy", ProxyTargets())
	for round := range *rounds {
		if round > 0 {
			report.NextRound()
		}
		if err := report.RunProxied(ctx, p); err != nil {
			b.Fatal(err)
		}
	}
	if err := report.RunProxy(ctx, p); err != nil {
		b.Fatal(err)
	}
	for _, failure := range report.Failed() {
		b.Error(failure)
	}
	report.Progress("done")
}

// BenchmarkGrowth measures lists of kube-apiserver and keepwatch serve on one etcd, while their collection grows. An
// iteration prints one table.
func BenchmarkGrowth(b *testing.B) {
	for b.Loop() {
		compareGrowth(b)
	}
}

func compareGrowth(b *testing.B) {
	report, counts := newReport(KubeAPIServer), numbers(b, "growth", *growing)
	for _, n := range counts {
		if n%1000 != 0 {
			b.Fatalf("-growth: %d is no multiple of 1,000", n)
		}
	}
	client, servers := twoOnOneEtcd(b)
	defer client.Close()
	if err := MeasureGrowth(b.Context(), report, client, servers, counts); err != nil {
		b.Fatal(err)
	}
	printFigures(b, report, "bench-growth")
}

// numbers are the values of a flag, in rising order.
func numbers(b *testing.B, name, list string) (values []int) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatalf("-%s: %v", name, err)
		}
		values = append(values, n)
	}
	return values
}

// twoOnOneEtcd starts kube-apiserver and keepwatch serve on one etcd. They run at the same time, and are measured in
// turns.
func twoOnOneEtcd(b *testing.B) (*clientv3.Client, []*Server) {
	peer.Keepwatch(b) // so that nothing is built while something is measured
	etcd := peer.StartEtcd(b)
	client, err := etcd.Client()
	if err != nil {
		b.Fatal(err)
	}
	var servers []*Server
	for _, c := range []struct {
		by  Contender
		api *peer.Server
	}{{KubeAPIServer, peer.KubernetesOn(b, etcd)}, {Keepwatch, peer.ServeOn(b, etcd)}} {
		server, err := NewServer(c.by, c.api, 3)
		if err != nil {
			b.Fatal(err)
		}
		servers = append(servers, server)
	}
	return client, servers
}

// printFigures prints a report without targets, and records it.
func printFigures(b *testing.B, report *Report, target string) {
	run := report.Figures(target, nil)
	fmt.Println(run.Table())
	if err := run.Record(); err != nil {
		b.Error(err)
	}
}

// BenchmarkNodes measures the watches of kubelets of kube-apiserver and keepwatch serve on one etcd. An iteration
// prints one table.
func BenchmarkNodes(b *testing.B) {
	for b.Loop() {
		compareNodes(b)
	}
}

func compareNodes(b *testing.B) {
	const rate = 500
	report := newReport(KubeAPIServer)
	client, servers := twoOnOneEtcd(b)
	defer client.Close()
	counts := numbers(b, "nodes", *nodes)
	writer, err := WriteNodePods(b.Context(), client, counts[len(counts)-1])
	if err != nil {
		b.Fatal(err)
	}
	defer printFigures(b, report, "bench-nodes")
	for round := range *rounds {
		if round > 0 {
			report.NextRound()
		}
		for _, n := range counts {
			for _, s := range servers {
				if err := s.measureNodes(b.Context(), report, writer, n, rate, *writing); err != nil {
					b.Error(err)
				}
			}
		}
	}
}

// fill writes the data through a server and into its etcd.
func fill(b *testing.B, report *Report, server *peer.Server, scale Scale) *Writer {
	ctx := b.Context()
	client, err := server.Etcd().Client()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	var edits []func(*corev1.Pod)
	if *small {
		edits = append(edits, fleet.Shrink)
	}
	if err := load.Fleet(ctx, server.Config(), client, scale.Pods, edits...); err != nil {
		b.Fatal(err)
	}
	if err := WriteConfigMaps(ctx, client, *configMaps); err != nil {
		b.Fatal(err)
	}
	writer, err := NewWriter(ctx, client, max(500, namespaces()))
	if err != nil {
		b.Fatal(err)
	}
	report.Progress("%d pods and %d config maps are in etcd", scale.Pods, *configMaps)
	return writer
}

func printTable(b *testing.B, report *Report, scale Scale, target string, targets []Target) {
	run := report.Figures(target, targets)
	fmt.Printf("\n%d pods, %d config maps, %v of writing for each fan-out\n\n%s\n",
		scale.Pods, *configMaps, scale.Writing, run.Table())
	for _, failure := range report.Failed() {
		fmt.Println(failure)
	}
	if err := run.Record(); err != nil {
		b.Error(err)
	}
}
