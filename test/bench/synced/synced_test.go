package synced

import (
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/sinks/testonly/natstest"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	podsFlag    = flag.Int("synced.pods", 50_000, "how many pods are listed")
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
	prepared, err := newCluster(*podsFlag)
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
		table := &strings.Builder{}
		fmt.Fprintf(table, "%-10s %-38s %9s %10s %14s %8s %8s\n", "sink", "what", "seconds", "per second", "per CPU second",
			"peak MB", "own MB")
		for _, s := range sinks {
			if !wanted.MatchString(s.name) {
				continue
			}
			b.Run(s.name, func(b *testing.B) {
				empty := s.start(b)
				if *serveFlag {
					run(b, served, empty()).row(table, s.name, "first list, of keepwatch serve", *podsFlag)
				}
				arguments := empty()
				prepared.changes.Store(0)
				run(b, kubeconfig, arguments).row(table, s.name, "first list, of the prepared server", *podsFlag)
				prepared.changes.Store(int64(*changesFlag))
				run(b, kubeconfig, arguments).row(table, s.name, "changes, of the prepared server", *changesFlag)
			})
		}
		b.Logf("%d pods, %d changes\n%s", *podsFlag, *changesFlag, table)
	}
	b.ReportMetric(0, "ns/op")
}

// measured is what one process has used.
type measured struct {
	wall, cpu time.Duration
	peak      int64 // of the resident memory
	own       int64 // the peak without pages of files
}

func (m measured) row(table *strings.Builder, sink, what string, n int) {
	fmt.Fprintf(table, "%-10s %-38s %9.2f %10.0f %14.0f %8d %8d\n", sink, what, m.wall.Seconds(),
		float64(n)/m.wall.Seconds(), float64(n)/m.cpu.Seconds(), m.peak>>20, m.own>>20)
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
	server := peer.Serve(b, "--data-dir", "") // in memory
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
			_, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return server.Kubeconfig()
}
