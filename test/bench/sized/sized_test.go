// Package sized measures what memory, processor time and disk the commands need for a number of objects.
package sized

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/test/bench/served"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// The commands.
const (
	inMemory  = "serve"
	onDisk    = "serve --data-dir"
	apiserver = "keepwatch-apiserver"
	proxy     = "proxy"
	sync      = "sync"
)

var (
	sizes    = flag.String("sizes", "5000,50000", "how many objects there are")
	commands = flag.String("commands", strings.Join([]string{inMemory, onDisk, apiserver, proxy, sync}, ","),
		"what is measured; proxy and sync are so in front of serve --data-dir, which is measured, too")
	resting = flag.Duration("settle", 30*time.Second, "how long a process rests before its memory is read")
)

const (
	namespaces = 100 // of served.GrownConfigMap
	created    = 1000
	writers    = 64
)

// BenchmarkSize starts each command with config maps of 1.3 KB, and lists them in JSON and protobuf. A row is recorded
// as soon as it is measured. Figures are memory and processor time: another program on the machine does not change them
// much.
func BenchmarkSize(b *testing.B) {
	for b.Loop() {
		run := figures.NewRun("bench-size")
		wanted := strings.Split(*commands, ",")
		in := func(some ...string) bool {
			return slices.ContainsFunc(some, func(c string) bool { return slices.Contains(wanted, c) })
		}
		for n := range numbers(b) {
			if in(inMemory) {
				b.Run(inMemory, func(b *testing.B) {
					server := subject{b, run, inMemory, n, peer.ServeInMemory(b)}
					server.fill()
					server.lists(nil)
				})
			}
			if in(onDisk, proxy, sync) {
				b.Run(onDisk, func(b *testing.B) {
					server := subject{b, run, onDisk, n, peer.Serve(b)}
					server.fill()
					server.restart()
					server.set("disk", figures.Bytes, sizeOf(b, server.Data()))
					server.lists(nil)
					if in(proxy) {
						server.proxied()
					}
					if in(sync) {
						server.synced("sqlite")
						server.synced("files")
					}
				})
			}
			if in(apiserver) {
				b.Run(apiserver, func(b *testing.B) {
					etcd := peer.StartEtcd(b)
					server := subject{b, run, apiserver, n, peer.KeepwatchAPIServerOn(b, etcd)}
					server.fill()
					server.restart()
					server.lists(nil)
					server.command = "etcd of " + apiserver
					server.memory(etcd.Process(), "RSS at rest")
					server.set("disk", figures.Bytes, sizeOf(b, filepath.Dir(etcd.Log())))
					server.record()
				})
			}
		}
		fmt.Println(run.Table())
	}
	b.ReportMetric(0, "ns/op")
}

// numbers are the sizes.
func numbers(b *testing.B) iter.Seq[int] {
	return func(yield func(int) bool) {
		for size := range strings.SplitSeq(*sizes, ",") {
			n, err := strconv.Atoi(size)
			if err != nil || n < created {
				b.Fatalf("-sizes %s: not numbers from %d on", *sizes, created)
			}
			if !yield(n) {
				return
			}
		}
	}
}

// subject is a command that is measured with n objects.
type subject struct {
	*testing.B
	run     *figures.Run
	command string
	n       int
	*peer.Server
}

func (s subject) row() string { return fmt.Sprintf("`%s`, %s objects", s.command, figures.Number(s.n)) }

func (s subject) set(measure string, unit figures.Unit, value float64) {
	s.run.Of(s.row(), measure, unit).Set(figures.Ours, 0, value)
}

func (s subject) record() {
	s.must(s.run.RecordRows())
	fmt.Println(time.Now().Format(time.TimeOnly), s.row())
}

func (s subject) must(err error) {
	if err != nil {
		s.Fatal(err)
	}
}

// fill writes the objects: the last ones through the API, and the others into etcd, if there is one.
func (s subject) fill() {
	client, err := kubernetes.NewForConfig(s.Config())
	s.must(err)
	for i := range namespaces {
		_, err := client.CoreV1().Namespaces().Create(s.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: served.GrownConfigMap(i).Namespace}}, metav1.CreateOptions{})
		s.must(err)
	}
	create := func(ctx context.Context, i int) error {
		object := served.GrownConfigMap(i)
		object.ManagedFields = nil // the server sets its own
		_, err := client.CoreV1().ConfigMaps(object.Namespace).Create(ctx, object, metav1.CreateOptions{})
		return err
	}
	last := s.n - created
	if s.command == inMemory {
		s.each(0, last, create)
	} else {
		etcd, err := s.Endpoint().Client()
		s.must(err)
		defer etcd.Close()
		s.each(0, last, func(ctx context.Context, i int) error { return served.PutGrownConfigMap(ctx, etcd, i) })
	}
	before := s.cpu()
	s.each(last, s.n, create)
	s.set("CPU of a create", figures.Seconds, (s.cpu()-before)/created)
}

// each calls write with the objects [from, to), by some goroutines.
func (s subject) each(from, to int, write func(context.Context, int) error) {
	all, ctx := errgroup.WithContext(s.Context())
	for w := range writers {
		all.Go(func() error {
			for i := from + w; i < to; i += writers {
				if err := write(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	s.must(all.Wait())
}

// restart starts the server again, and measures its processor time until it answers with the newest object.
func (s subject) restart() {
	client, err := kubernetes.NewForConfig(s.Config())
	s.must(err)
	newest := served.GrownConfigMap(s.n - 1)
	newest, err = client.CoreV1().ConfigMaps(newest.Namespace).Get(s.Context(), newest.Name, metav1.GetOptions{})
	s.must(err)
	s.must(s.Stop())
	s.must(s.Restart(s.Context()))
	s.wait(s.Process(), func() bool {
		_, err := s.get(missing+"?resourceVersionMatch=NotOlderThan&resourceVersion="+url.QueryEscape(newest.ResourceVersion),
			encodings[0].accept)
		return err == nil
	})
	s.set(untilComplete, figures.Seconds, s.cpu())
}

const (
	missing       = "/api/v1/namespaces/nobody/configmaps"
	everything    = "/api/v1/configmaps?resourceVersion=0"
	untilComplete = "CPU until complete"
)

var encodings = []struct{ name, accept string }{
	{"JSON", "application/json"}, {"protobuf", "application/vnd.kubernetes.protobuf"},
}

// lists measures a command at rest, its lists, and it at rest again. follow, if there is one, waits until the command
// answers in an encoding from memory.
func (s subject) lists(follow func(accept string)) {
	for i, as := range encodings {
		if follow != nil {
			follow(as.accept)
		}
		if i == 0 {
			s.memory(s.Process(), "RSS at rest")
		}
		for _, which := range []string{"the first list", "a list"} {
			before := s.cpu()
			length, err := s.get(everything, as.accept)
			s.must(err)
			if least := int64(s.n) * 700; length < least {
				s.Fatalf("%s: the list has %d bytes, not %d or more", s.row(), length, least)
			}
			s.set(fmt.Sprintf("CPU of %s as %s", which, as.name), figures.Seconds, s.cpu()-before)
		}
	}
	s.memory(s.Process(), "RSS after lists")
	s.record()
}

// proxied measures a proxy in front of the server.
func (s subject) proxied() {
	p := subject{s.B, s.run, proxy, s.n, peer.Proxy(s.B, s.Server)}
	p.lists(func(accept string) {
		forwarded := func() float64 {
			metrics, err := p.Metrics(p.Context())
			p.must(err)
			return metrics.Sum("keepwatch_proxy_forwarded_total", peer.Labels{"resource": "configmaps"})
		}
		p.wait(p.Process(), func() bool {
			before := forwarded()
			_, err := p.get(missing+"?resourceVersion=0", accept) // the first one begins it
			p.must(err)
			return forwarded() == before
		})
		if accept == encodings[0].accept {
			p.set(untilComplete, figures.Seconds, p.cpu())
		}
	})
	p.must(p.Stop())
}

// synced measures keepwatch sync of the server into a sink on this machine.
func (s subject) synced(sink string) {
	dir := s.TempDir()
	log, target := filepath.Join(dir, "stderr"), filepath.Join(dir, "target")
	s.must(os.Mkdir(target, 0o755))
	p, err := peer.Start(peer.Command{Path: peer.Keepwatch(s.B), Log: log, Args: []string{sync, "configmaps", "-A",
		"--kubeconfig", s.Kubeconfig(), "--cache-dir", dir, "--to", sink + ":" + filepath.Join(target, "state")}})
	s.must(err)
	s.Cleanup(p.Kill)
	s.wait(p, func() bool {
		text, err := os.ReadFile(log)
		s.must(err)
		return bytes.Contains(text, []byte("synced at"))
	})
	s.command = sync + " --to " + sink
	s.set(untilComplete, figures.Seconds, cpuOf(s.B, p))
	s.memory(p, "RSS at rest")
	s.must(p.Stop(time.Minute))
	s.set("disk", figures.Bytes, sizeOf(s.B, target))
	s.must(os.RemoveAll(target))
	s.record()
}

// wait waits until is returns true, as long as the process runs.
func (s subject) wait(p *peer.Process, is func() bool) {
	for !is() {
		select {
		case <-p.Done():
			s.Fatalf("%s: it ended with exit code %d", s.row(), p.ExitCode())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// get reads an answer to its end, and returns its length.
func (s subject) get(path, accept string) (int64, error) {
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		return 0, err
	}
	q, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.Config().Host+path, nil)
	if err != nil {
		return 0, err
	}
	q.Header.Set("Accept", accept)
	answer, err := client.Do(q)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s answers %s", path, answer.Status)
	}
	return n, err
}

func (s subject) cpu() float64 { return cpuOf(s.B, s.Process()) }

// cpuOf returns the seconds of processor time of a process until now.
func cpuOf(b *testing.B, p *peer.Process) float64 {
	d, err := p.ProcessorTime()
	if err != nil {
		b.Fatal(err)
	}
	return d.Seconds()
}

// memory rests, and measures the resident memory and its peak until now.
func (s subject) memory(p *peer.Process, measure string) {
	select {
	case <-time.After(*resting):
	case <-p.Done():
	}
	m, err := p.Memory()
	s.must(err)
	s.set(measure, figures.Bytes, float64(m.Resident))
	s.set(measure+" without pages of files", figures.Bytes, float64(m.Anonymous))
	s.set("peak RSS", figures.Bytes, float64(m.Peak))
}

// sizeOf returns the bytes on disk of a folder.
func sizeOf(b *testing.B, folder string) float64 {
	var size int64
	if err := filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	}); err != nil {
		b.Fatal(err)
	}
	return float64(size)
}
