package envtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

// BenchmarkStart starts and stops envtest's environment with Kubernetes' programs and with those of keepwatch assets,
// keepwatch serve, and package testserver's server in this process. Beside that it measures how soon a created object
// arrives at a watch.
func BenchmarkStart(b *testing.B) {
	b.Run("kube-apiserver and etcd", func(b *testing.B) { environments(b, kubernetesPrograms(b)) })
	b.Run("assets", func(b *testing.B) { environments(b, assets(b)) })
	b.Run("serve", serves)
	b.Run("testserver", func(b *testing.B) {
		var m measures
		for b.Loop() {
			begin := time.Now()
			srv := testserver.New(b)
			config := srv.Config()
			m.ready = append(m.ready, time.Since(begin))
			m.roundTrips(b, config)
			begin = time.Now()
			srv.Close()
			m.stop = append(m.stop, time.Since(begin))
		}
		m.report(b)
	})
}

func environments(b *testing.B, dir string) {
	var m measures
	for b.Loop() {
		env := &envtest.Environment{BinaryAssetsDirectory: dir}
		begin := time.Now()
		config, err := env.Start()
		if err != nil {
			b.Fatal(err)
		}
		m.ready = append(m.ready, time.Since(begin))
		m.roundTrips(b, config)
		m.memory = append(m.memory, childrensMemory(b))
		begin = time.Now()
		if err := env.Stop(); err != nil {
			b.Fatal(err)
		}
		m.stop = append(m.stop, time.Since(begin))
	}
	m.report(b)
}

// serves starts and stops keepwatch serve with its data in memory. It is ready when it says so.
func serves(b *testing.B) {
	var m measures
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), peer.Keepwatch(b), "serve", "--listen", "127.0.0.1:0", "--kubeconfig-out",
			kubeconfig)
		stderr, err := cmd.StderrPipe()
		if err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(stderr)
		for lines.Scan() && !strings.Contains(lines.Text(), "ready in") {
		}
		m.ready = append(m.ready, time.Since(begin))
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			b.Fatal(err)
		}
		config.QPS = -1 // no limit, as in the other configurations
		m.roundTrips(b, config)
		m.memory = append(m.memory, childrensMemory(b))
		begin = time.Now()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		m.stop = append(m.stop, time.Since(begin))
	}
	m.report(b)
}

func kubernetesPrograms(b *testing.B) string {
	dir := b.TempDir()
	for _, program := range []peer.Binary{peer.KubeAPIServer, peer.Etcd, peer.Kubectl} {
		if err := os.Symlink(peer.Build(b, program), filepath.Join(dir, program.Name)); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

func assets(tb testing.TB, flags ...string) string {
	dir := tb.TempDir()
	args := append([]string{"assets", "--dir", dir}, flags...)
	if out, err := exec.CommandContext(tb.Context(), peer.Keepwatch(tb), args...).CombinedOutput(); err != nil {
		tb.Fatalf("keepwatch assets: %v\n%s", err, out)
	}
	return dir
}

// measures are those of several environments.
type measures struct {
	ready, stop, roundTrip []time.Duration
	memory                 []int64 // of the environment's processes, in bytes; none for a server in this process
}

// roundTrips creates objects one after another, and waits for each at a watch.
func (m *measures) roundTrips(b *testing.B, config *rest.Config) {
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	watch, err := c.Watch(b.Context(), &corev1.ConfigMapList{}, client.InNamespace("default"))
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	for i := range 200 {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("m", i)}}
		begin := time.Now()
		if err := c.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
		for e := range watch.ResultChan() {
			if got, ok := e.Object.(*corev1.ConfigMap); !ok {
				b.Fatal(e)
			} else if got.Name == o.Name {
				break
			}
		}
		m.roundTrip = append(m.roundTrip, time.Since(begin))
	}
}

func (m *measures) report(b *testing.B) {
	for name, of := range map[string][]time.Duration{"ready": m.ready, "stop": m.stop, "round-trip": m.roundTrip} {
		slices.Sort(of)
		b.ReportMetric(of[len(of)/2].Seconds()*1000, name+"-p50-ms")
	}
	b.ReportMetric(m.roundTrip[len(m.roundTrip)*99/100].Seconds()*1000, "round-trip-p99-ms")
	if slices.Sort(m.memory); m.memory != nil {
		b.ReportMetric(float64(m.memory[len(m.memory)/2])/1e6, "RSS-MB")
	}
}

// childrensMemory returns the resident memory of the processes that this one has started, in bytes.
func childrensMemory(b *testing.B) (sum int64) {
	b.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range tasks {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, child := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(child)
			if err != nil {
				b.Fatal(err)
			}
			memory, err := peer.MemoryOf(pid)
			if err != nil {
				b.Fatal(err)
			}
			sum += memory.Resident
		}
	}
	return sum
}
