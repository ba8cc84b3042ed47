package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	pods    = flag.Int("pods", podsOfFleet, "how many pods informers are measured with")
	small   = flag.Bool("small", false, "informers are measured with pods of 1.5 KB in place of 9 KB")
	of      = flag.String("subjects", "", "a regular expression of the informers that are measured, such as protobuf")
	served  = flag.Bool("served", false, "keepwatch serve serves them, in place of kube-apiserver")
	writing = flag.Duration("writing", 20*time.Second, "how long informers are sent updates")
)

// subjects are measured one after the other. Those of a form are compared with
// client-go's, which is the first.
var subjects = []struct{ form, by string }{
	{"protobuf", "client-go"}, {"protobuf", "hook"}, {"protobuf", "direct"}, {"protobuf", "compact"},
	{"json", "client-go"}, {"json", "hook"}, {"json", "direct"},
	{"unstructured", "client-go"}, {"unstructured", "hook"}, {"unstructured", "direct"}, {"unstructured", "compact"},
	{"metadata", "client-go"}, {"metadata", "hook"}, {"metadata", "direct"},
}

// columns of the table: a value of a command's report, and its unit.
var columns = []struct {
	command, value, head string
	unit                 float64
}{
	{"sync", "seconds", "synced s", 1}, {"sync", "cpu", "CPU s", 1}, {"sync", "peak", "peak MB", 1 << 20},
	{"heap", "perObject", "heap/object B", 1},
	{"read", "get", "Get ns", 1e-9}, {"read", "list", "List µs", 1e-6}, {"read", "walk", "walk µs", 1e-6},
	{"read", "byIndex", "ByIndex µs", 1e-6},
	{"relist", "seconds", "relist s", 1}, {"relist", "cpu", "CPU s", 1}, {"relist", "growth", "growth %", 0.01},
	{"relist", "callbacks", "callbacks", 1},
	{"count", "updates", "updates", 1}, {"count", "cpu", "CPU of one µs", 1e-6},
	{"count", "p50", "p50 ms", 1e-3}, {"count", "p99", "p99 ms", 1e-3},
}

// recorded are the values that -figures.record stores.
var recorded = []struct {
	command, value, measure string
	unit                    figures.Unit
}{
	{"sync", "seconds", "time until synced", figures.Seconds}, {"sync", "cpu", "CPU until synced", figures.Seconds},
	{"sync", "peak", "peak RSS", figures.Bytes}, {"heap", "perObject", "heap of an object", figures.Bytes},
	{"relist", "seconds", "time of a relist", figures.Seconds}, {"relist", "cpu", "CPU of a relist", figures.Seconds},
	{"count", "cpu", "CPU of a change", figures.Seconds},
}

// BenchmarkInformers compares informers with client-go's on a real kube-apiserver,
// each in a process of its own: an iteration measures each once, and prints a table
// of the figures, and one of their ratios to client-go's. See -pods and -writing.
func BenchmarkInformers(b *testing.B) {
	wanted := regexp.MustCompile(*of)
	db := peer.StartEtcd(b)
	var server *peer.Server
	if *served {
		server = peer.ServeOn(b, db)
	} else {
		server = peer.KubernetesOn(b, db)
	}
	etcd, err := db.Client()
	if err != nil {
		b.Fatal(err)
	}
	defer etcd.Close()
	var edits []func(*corev1.Pod)
	if *small {
		edits = append(edits, fleet.Shrink)
	}
	if err := load.Fleet(b.Context(), server.Config(), etcd, *pods, edits...); err != nil {
		b.Fatal(err)
	}
	informed := build(b)
	start(b, informed, server.Kubeconfig(), "direct", "protobuf").ask("sync") // primes the server
	for b.Loop() {
		var base map[string]report
		absolute, ratios, run := &table{}, &table{}, figures.NewRun("bench-informers", "client-go")
		for _, s := range subjects {
			if !wanted.MatchString(s.form) {
				continue
			}
			all := measure(b, start(b, informed, server.Kubeconfig(), s.by, s.form), server)
			if s.by == "client-go" {
				base = all
			}
			absolute.row(s.form+" "+s.by, all, nil)
			ratios.row(s.form+" "+s.by, all, base)
			if s.by == "client-go" {
				continue
			}
			for _, m := range recorded {
				figure := run.Of(s.form+", "+s.by, m.measure, m.unit)
				figure.Set(figures.Ours, 0, all[m.command][m.value])
				figure.Set("client-go", 0, base[m.command][m.value])
			}
		}
		b.Logf("%d pods\n%s\nas a part of client-go's\n%s", *pods, absolute, ratios)
		if err := run.Record(); err != nil {
			b.Error(err)
		}
	}
}

// build builds the command that runs informers.
func build(b *testing.B) (path string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "informed")
	if out, err := exec.Command("go", "build", "-o", path, "./informed").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return path
}

// measure goes through everything that is measured.
func measure(b *testing.B, p *process, server *peer.Server) map[string]report {
	defer p.end()
	all := map[string]report{"sync": p.ask("sync"), "heap": p.ask("heap"), "read": p.ask("read")}
	if got := all["sync"]["objects"]; got != float64(*pods) {
		b.Fatalf("%s: %v objects", p.name, got)
	}
	all["relist"] = p.ask("relist")
	p.ask("count")
	ctx, cancel := context.WithTimeout(b.Context(), *writing)
	defer cancel()
	written, err := write(ctx, server, (*pods+999)/1000)
	if err != nil {
		b.Fatal(err)
	}
	all["count"] = p.ask("count")
	b.Logf("%s: %d updates written", p.name, written)
	return all
}

// write stamps pods of all namespaces, as fast as the server accepts writes, until ctx
// ends.
func write(ctx context.Context, server *peer.Server, namespaces int) (written int, err error) {
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := w; ctx.Err() == nil; i += 8 {
				namespace := i % namespaces
				name := load.Pod("", namespace*1000+i/namespaces%min(1000, *pods-namespace*1000)).Name
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench.keepwatch/stamp":%q}}}`,
					strconv.FormatInt(time.Now().UnixNano(), 10))
				_, failed := client.CoreV1().Pods(fmt.Sprintf("team-%03d", namespace)).Patch(ctx, name, types.MergePatchType, patch,
					metav1.PatchOptions{})
				mu.Lock()
				switch {
				case failed == nil:
					written++
				case ctx.Err() == nil:
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	return written, err
}

// report is the answer of a command.
type report map[string]float64

// process is one that runs informers.
type process struct {
	b    *testing.B
	name string
	*peer.Process
	in  io.WriteCloser
	out *bufio.Scanner
	log string
}

func start(b *testing.B, path, kubeconfig, by, form string, args ...string) *process {
	b.Helper()
	in, stdin, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	p := &process{b: b, name: form + " " + by, in: stdin, out: bufio.NewScanner(stdout), log: filepath.Join(b.TempDir(),
		"log")}
	p.Process, err = peer.Start(peer.Command{
		Path: path, Args: append([]string{"-kubeconfig", kubeconfig, "-by", by, "-form", form}, args...),
		Log: p.log, Stdin: in, Stdout: out,
	})
	if err != nil {
		b.Fatal(err)
	}
	_ = in.Close()
	_ = out.Close()
	return p
}

func (p *process) ask(command string) report {
	p.b.Helper()
	if _, err := fmt.Fprintln(p.in, command); err != nil {
		p.fail(command, err)
	}
	if !p.out.Scan() {
		p.fail(command, p.out.Err())
	}
	var r report
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		p.fail(command, err)
	}
	return r
}

func (p *process) fail(command string, err error) {
	p.b.Helper()
	text, _ := os.ReadFile(p.log)
	p.b.Fatalf("%s: %s: %v: %s", p.name, command, err, text)
}

// end lets the process end.
func (p *process) end() {
	_ = p.in.Close()
	<-p.Done()
}

// table is for reading.
type table struct{ bytes.Buffer }

func (t *table) row(name string, of, base map[string]report) {
	if t.Len() == 0 {
		fmt.Fprintf(t, "%-24s", "")
		for _, c := range columns {
			fmt.Fprintf(t, "%14s", c.head)
		}
		t.WriteByte('\n')
	}
	fmt.Fprintf(t, "%-24s", name)
	for _, c := range columns {
		value := of[c.command][c.value]
		switch {
		case base == nil:
			fmt.Fprintf(t, "%14.2f", value/c.unit)
		case base[c.command][c.value] == 0:
			fmt.Fprintf(t, "%14s", "-")
		default:
			fmt.Fprintf(t, "%14.2f", value/base[c.command][c.value])
		}
	}
	t.WriteByte('\n')
}
