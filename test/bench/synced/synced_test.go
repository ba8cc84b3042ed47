package synced

import (
	"flag"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/sinks/testonly/natstest"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	podsFlag    = flag.Int("synced.pods", 50_000, "how many pods are listed")
	smallFlag   = flag.Bool("synced.small", false, "pods of 1.5 KB in place of 9 KB")
	changesFlag = flag.Int("synced.changes", 100_000, "how many changes of them follow")
	sinksFlag   = flag.String("synced.sinks", ".", "a regular expression of the sinks that are measured")
	serveFlag   = flag.Bool("synced.serve", true, "measure the list of keepwatch serve, too")
)

func TestMain(m *testing.M) {
	natstest.Main()
	peer.Main(m)
}

// BenchmarkSync measures keepwatch sync --until-synced from the start of the process to its end: with an empty sink,
// and then with changes that it has missed. An iteration measures each sink once.
func BenchmarkSync(b *testing.B) {
	var served string
	if *serveFlag {
		served = serve(b, *podsFlag)
	}
	prepared, err := newCluster(*podsFlag, *smallFlag)
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(prepared)
	b.Cleanup(server.Close)
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := peer.WriteKubeconfig(kubeconfig, &rest.Config{Host: server.URL}); err != nil {
		b.Fatal(err)
	}
	wanted := regexp.MustCompile(*sinksFlag)
	for b.Loop() {
		report := figures.NewRun("bench-sync")
		for _, s := range sinks {
			if !wanted.MatchString(s.name) {
				continue
			}
			b.Run(s.name, func(b *testing.B) {
				empty := s.start(b)
				if *serveFlag {
					run(b, served, empty()).record(report, s.name, "first list of serve", *podsFlag)
				}
				arguments := empty()
				prepared.changes.Store(0)
				list := run(b, kubeconfig, arguments)
				list.record(report, s.name, "first list", *podsFlag)
				prepared.changes.Store(int64(*changesFlag))
				changes := run(b, kubeconfig, arguments)
				changes.record(report, s.name, "changes", *changesFlag)
				report.Of(s.name, "peak RSS", figures.Bytes).Set(figures.Ours, 0, float64(max(list.peak, changes.peak)))
				report.Of(s.name, "peak RSS without pages of files", figures.Bytes).Set(figures.Ours, 0,
					float64(max(list.own, changes.own)))
			})
		}
		b.Logf("%d pods, %d changes; objects per second\n%s", *podsFlag, *changesFlag, report.Table())
		if err := report.Record(); err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// measured is what one process has used.
type measured struct {
	wall, cpu time.Duration
	peak      int64 // of the resident memory
	own       int64 // the peak without pages of files
}

// record records how many of n objects a run stored in a second, and in a second of its CPU.
func (m measured) record(report *figures.Run, sink, what string, n int) {
	rate := func(measure string, took time.Duration) {
		report.Of(sink, measure, figures.Count).Set(figures.Ours, 0, math.Round(float64(n)/took.Seconds()))
	}
	rate(what, m.wall)
	rate(what+", of the command's CPU", m.cpu)
}

// run runs keepwatch sync until it is synced.
func run(b *testing.B, kubeconfig string, arguments []string) measured {
	b.Helper()
	dir, program := b.TempDir(), peer.Keepwatch(b)
	log := filepath.Join(dir, "stderr")
	began := time.Now()
	p, err := peer.Start(peer.Command{Path: program, Log: log, Args: append([]string{
		"sync", "pods", "-A", "--kubeconfig", kubeconfig, "--cache-dir", dir, "--until-synced",
	}, arguments...)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Kill)
	m := measured{}
	for running := true; running; {
		select {
		case <-p.Done():
			m.wall, m.cpu, running = time.Since(began), p.CPU(), false
		case <-time.After(10 * time.Millisecond):
			if memory, err := p.Memory(); err == nil { // it may have ended
				m.peak, m.own = max(m.peak, memory.Peak), max(m.own, memory.Anonymous)
			}
		}
	}
	if code := p.ExitCode(); code != 0 {
		text, _ := os.ReadFile(log)
		b.Fatalf("exit code %d: %s", code, text)
	}
	return m
}

// serve starts keepwatch serve with so many pods, and returns its kubeconfig.
func serve(b *testing.B, pods int) string {
	b.Helper()
	server := peer.ServeInMemory(b)
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i < pods; i += 1000 {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.Pod(i).Namespace}}
		if _, err := client.CoreV1().Namespaces().Create(b.Context(), namespace, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(8)
	for i := range pods {
		group.Go(func() error {
			pod := fleet.Pod(i)
			if *smallFlag {
				fleet.Shrink(pod)
			}
			_, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return server.Kubeconfig()
}
