// Package sized measures what memory, processor time and disk the commands need for a number of objects.
package sized

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

var (
	sizes    = flag.String("sizes", "5000,50000", "how many objects there are, in rising order")
	commands = flag.String("commands", "serve+proxy,serve --data-dir", "what is measured; proxy is one in front of serve")
	resting  = flag.Duration("settle", 30*time.Second, "how long a process rests before its memory is read")
)

const (
	writers    = 16
	namespaces = 100
	objectSize = 1500 // about, of the JSON that is stored, with managed fields
)

// BenchmarkSize starts each command, writes config maps of 1.5 KB through the API, and lists them in JSON and protobuf.
// An iteration prints one table. Figures are memory and processor time: another program on the machine does not change
// them much.
func BenchmarkSize(b *testing.B) {
	for b.Loop() {
		fmt.Println(
			"| objects | command | CPU of a create | CPU until ready | RSS; peak | first list: JSON, protobuf | again | RSS behind lists; peak | disk |")
		fmt.Println("|---|---|---|---|---|---|---|---|---|")
		for command := range strings.SplitSeq(*commands, ",") {
			served(b, command)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// subject is a process that is measured.
type subject struct {
	args       []string
	kubeconfig string
	data       string // its folder, empty in memory
	*peer.Process
	client *http.Client
	host   string
	ready  time.Duration // processor time until it was ready
}

// start starts the command, and waits until it answers.
func (s *subject) start(b *testing.B) {
	_ = os.Remove(s.kubeconfig)
	var err error
	args := append(s.args, "--listen", "127.0.0.1:0", "--kubeconfig-out", s.kubeconfig)
	if s.Process, err = peer.Start(peer.Command{Path: peer.Keepwatch(b), Args: args, Log: s.kubeconfig +
		".log"}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Kill)
	s.eventually(b, "the kubeconfig is written", func() error {
		config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
		if err != nil {
			return err
		}
		config.QPS = -1
		s.host = config.Host
		s.client, err = rest.HTTPClientFor(config)
		return err
	})
	s.eventually(b, "it is ready", func() error { _, err := s.get(b.Context(), "/readyz", ""); return err })
	s.ready = s.cpu(b)
}

func (s *subject) stop(b *testing.B) {
	if err := s.Stop(time.Minute); err != nil {
		b.Error(err)
	}
}

func (s *subject) eventually(b *testing.B, what string, do func() error) {
	for end := time.Now().Add(10 * time.Minute); ; {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			b.Fatalf("not within 10 minutes: %s: %v; its log is %s.log", what, err, s.kubeconfig)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// get reads an answer to its end, and returns its length.
func (s *subject) get(ctx context.Context, path, accept string) (int64, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.host+path, nil)
	if err != nil {
		return 0, err
	}
	q.Header.Set("Accept", accept)
	answer, err := s.client.Do(q)
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

// create writes an object.
func (s *subject) create(ctx context.Context, path, body string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated &&
		answer.StatusCode != http.StatusConflict {
		return fmt.Errorf("POST %s answers %s: %.300s", path, answer.Status, text)
	}
	return nil
}

// fill writes the objects [from, to).
func (s *subject) fill(b *testing.B, from, to int) {
	for i := range namespaces {
		if err := s.create(b.Context(), "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":"ns%d"}}`, i)); err != nil {
			b.Fatal(err)
		}
	}
	all, ctx := errgroup.WithContext(b.Context())
	for w := range writers {
		all.Go(func() error {
			for i := from + w; i < to; i += writers {
				body := fmt.Sprintf(`{"metadata":{"name":"c%07d","labels":{"app":"a%d"}},"data":{"text":"%s%d"}}`,
					i, i%1000, strings.Repeat("x", objectSize-520), i)
				if err := s.create(ctx, fmt.Sprintf("/api/v1/namespaces/ns%d/configmaps", i%namespaces), body); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

const configMaps = "/api/v1/configmaps?resourceVersion=0"

// list lists everything, and returns its processor time.
func (s *subject) list(b *testing.B, accept string, n int) time.Duration {
	before := s.cpu(b)
	length, err := s.get(b.Context(), configMaps, accept)
	if err != nil {
		b.Fatal(err)
	}
	if length < int64(n)*objectSize/2 {
		b.Fatalf("the list of %d objects has %d bytes", n, length)
	}
	return s.cpu(b) - before
}

// cpu returns the processor time of the process until now.
func (s *subject) cpu(b *testing.B) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100)
}

// memory rests, and returns the resident memory, and the peak since the last call.
func (s *subject) memory(b *testing.B) string {
	time.Sleep(*resting)
	m, err := s.Memory()
	if err != nil {
		b.Fatal(err)
	}
	if err := s.ResetPeak(); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf("%s; %s", megabytes(m.Resident), megabytes(m.Peak))
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/1e6) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// lists returns the cells of a server with its objects, at rest.
func (s *subject) lists(b *testing.B, n int) string {
	resident := s.memory(b)
	json, protobuf := s.list(b, "application/json", n), s.list(b, "application/vnd.kubernetes.protobuf", n)
	jsonAgain, protobufAgain := s.list(b, "application/json", n), s.list(b, "application/vnd.kubernetes.protobuf", n)
	return fmt.Sprintf("%s | %s, %s | %s, %s | %s", resident, seconds(json), seconds(protobuf), seconds(jsonAgain),
		seconds(protobufAgain), s.memory(b))
}

// served measures a server as it grows, and a new proxy in front of it at each size.
func served(b *testing.B, command string) {
	command, withProxy := strings.CutSuffix(command, "+proxy")
	s := &subject{args: []string{"serve", "--controllers=false"}, kubeconfig: filepath.Join(b.TempDir(), "kubeconfig")}
	if strings.Contains(command, "--data-dir") {
		s.data = filepath.Join(b.TempDir(), "data")
		s.args = append(s.args, "--data-dir", s.data)
	}
	s.start(b)
	last := 0
	for size := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			b.Fatal(err)
		}
		before := s.cpu(b)
		s.fill(b, last, n)
		each := (s.cpu(b) - before) / time.Duration(n-last)
		last = n
		ready, disk := "", ""
		if s.data != "" {
			s.stop(b)
			s.start(b)
			ready, disk = seconds(s.ready), megabytes(sizeOf(b, s.data))
		}
		fmt.Printf("| %d | `%s` | %.2f ms | %s | %s | %s |\n", n, command, each.Seconds()*1e3, ready, s.lists(b, n), disk)
		if withProxy {
			proxied(b, s, n)
		}
	}
	s.stop(b)
}

// proxied measures a proxy in front of a server with n objects.
func proxied(b *testing.B, server *subject, n int) {
	s := &subject{args: []string{"proxy", "--kubeconfig", server.kubeconfig}, kubeconfig: filepath.Join(b.TempDir(),
		"kubeconfig")}
	s.start(b)
	first := s.list(b, "application/json", n)
	fmt.Printf("| %d | `proxy` | | %s and the first JSON list %s | %s | |\n", n, seconds(s.ready), seconds(first),
		s.lists(b, n))
	s.stop(b)
}

// sizeOf returns the bytes on disk of a folder.
func sizeOf(b *testing.B, folder string) (size int64) {
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
	return size
}
