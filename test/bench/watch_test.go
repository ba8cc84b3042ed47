// Package bench measures Keepwatch and its peers, each pair in one run on the same server.
// The ratios of its figures are meaningful; no benchmark fails because of them.
package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// podsOfFleet is the number of pods.
const podsOfFleet = 50_000

// BenchmarkWatchFleet compares the cost of reading every pod of a large cluster once:
// keepwatch watch up to SYNCED, and kubectl get in pages. Run it with -benchtime 3x; an
// iteration is one run of each, alternating.
func BenchmarkWatchFleet(b *testing.B) {
	server := peer.Kubernetes(b)
	began := time.Now()
	etcd, err := server.Etcd().Client()
	if err != nil {
		b.Fatal(err)
	}
	defer etcd.Close()
	if err := load.Fleet(b.Context(), server.Config(), etcd, podsOfFleet); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d pods made in %v", podsOfFleet, time.Since(began).Round(time.Second))
	keepwatch, kubectl := peer.Keepwatch(b), peer.Build(b, peer.Kubectl)
	contenders := []contender{
		{"keepwatch watch", keepwatch, []string{"watch", "pods", "-A", "--until-synced"}},
		{"keepwatch watch --state", keepwatch, []string{"watch", "pods", "-A", "--until-synced", "--state"}},
		{"keepwatch watch --chunk-size=500", keepwatch, []string{"watch", "pods", "-A", "--until-synced",
			"--chunk-size=500"}},
		{"kubectl get --chunk-size=500", kubectl, []string{"get", "pods", "-A", "-o", "json", "--chunk-size=500"}},
	}
	contenders[0].run(b, server, 0) // primes the server, whose cache may lack the newest pods for a moment
	for b.Loop() {
		for _, c := range contenders {
			b.Log(c.run(b, server, podsOfFleet))
		}
	}
}

// contender is one way to get the pods.
type contender struct {
	name, path string
	args       []string
}

// run runs the command to its end, discards its output, and returns its measurements as
// text.
func (c contender) run(b *testing.B, server *peer.Server, want int) string {
	b.Helper()
	dir := b.TempDir()
	args := append([]string{}, c.args...)
	if args[len(args)-1] == "--state" {
		args = append(args, filepath.Join(dir, "state"))
	}
	args = append(args, "--kubeconfig", server.Kubeconfig(), "--cache-dir", filepath.Join(dir, "cache"))
	out := &counter{}
	log := filepath.Join(dir, "log")
	began := time.Now()
	process, err := peer.Start(peer.Command{Path: c.path, Args: args, Log: log, Stdout: out})
	if err != nil {
		b.Fatal(err)
	}
	if code := process.ExitCode(); code != 0 {
		text, _ := os.ReadFile(log)
		b.Fatalf("%s exits with %d: %s", c.name, code, text)
	}
	took := time.Since(began)
	if got := out.objects; want > 0 && got != want {
		b.Fatalf("%s printed %d objects, want %d", c.name, got, want)
	}
	return fmt.Sprintf("%-34s %6.2f s, %6.2f s of CPU, peak RSS %4d MB, %d MB printed", c.name,
		took.Seconds(), process.CPU().Seconds(), process.PeakRSS()>>20, out.bytes>>20)
}

// counter counts the bytes written to it, and the objects by a text that each object has
// once.
type counter struct {
	bytes, objects int
	tail           []byte
}

var mark = []byte(`"podIP":`)

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	text := append(c.tail, p...)
	c.objects += bytes.Count(text, mark)
	if i := bytes.LastIndex(text, mark); i >= 0 {
		text = text[i+len(mark):]
	}
	c.tail = append(c.tail[:0:0], text[max(0, len(text)-len(mark)+1):]...)
	return len(p), nil
}
