package served

import (
	"flag"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

var (
	pods       = flag.Int("pods", 50_000, "how many pods there are")
	configMaps = flag.Int("configmaps", 10_000, "how many config maps there are")
	idle       = flag.Int("idle", 5000, "how many watchers are idle")
	writing    = flag.Duration("writing", 10*time.Second, "how long each fan-out is written to")
	concurrent = flag.Int("concurrent", 32, "how many lists are asked for at once")
	rows       = flag.String("rows", "", "regular expression of the rows that are measured (default all)")
	limit      = flag.Float64("memory-limit", 18, "how many GiB a server may hold before it is killed")
)

// BenchmarkServed loads an etcd once and measures kube-apiserver, keepwatch serve and a
// plain Go server, one after the other, never two at a time. An iteration prints one
// table.
func BenchmarkServed(b *testing.B) {
	klog.SetLogger(logr.Discard()) // of informers, about the restart
	only, err := regexp.Compile(*rows)
	if err != nil {
		b.Fatalf("-rows: %v", err)
	}
	for b.Loop() {
		compare(b, Scale{
			Pods: *pods, Idle: *idle, Writing: *writing, Rows: only,
			Storm: Storm{Lists: *concurrent, MemoryLimit: int64(*limit * (1 << 30))},
		})
	}
}

func compare(b *testing.B, scale Scale) {
	ctx := b.Context()
	report := NewReport(func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	peer.Keepwatch(b) // so that nothing is built while something is measured
	etcd := peer.StartEtcd(b)
	client, err := etcd.Client()
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	kubernetes := peer.KubernetesOn(b, etcd)
	if err := load.Fleet(ctx, kubernetes.Config(), client, scale.Pods); err != nil {
		b.Fatal(err)
	}
	if err := WriteConfigMaps(ctx, client, *configMaps); err != nil {
		b.Fatal(err)
	}
	writer, err := NewWriter(ctx, client, 500)
	if err != nil {
		b.Fatal(err)
	}
	report.Progress("%d pods and %d config maps are in etcd", scale.Pods, *configMaps)
	defer func() { // also if a step fails
		fmt.Printf("\n%d pods, %d config maps, %v of writing for each fan-out\n\n%s\n",
			scale.Pods, *configMaps, scale.Writing, report.Table(Targets(scale.Storm.Lists)))
	}()
	if err := report.Run(ctx, KubeAPIServer, kubernetes, writer, scale); err != nil {
		b.Fatal(err)
	}
	kubernetes.Kill()

	keepwatch := peer.ServeOn(b, etcd)
	if err := report.Run(ctx, Keepwatch, keepwatch, writer, scale); err != nil {
		b.Fatal(err)
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
