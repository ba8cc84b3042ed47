package powerloss

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/ndjson"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedFlag = flag.Uint64("powerloss.seed", 0, "draw the losses as a run did that printed this seed; 0 draws anew")
	runsFlag = flag.Int("powerloss.runs", 6, "losses of power of each test")
)

func TestMain(m *testing.M) { peer.Main(m) }

// mostChanges bounds after how many changes of the disk the power is lost. The start alone makes some dozens.
const mostChanges = 300

// A stream that loses its power continues with its state: nothing that was printed before is missing or undone, and
// each deletion is printed, also one of an object that was printed before the loss.
func TestWatch(t *testing.T) {
	lose(t, func(disk string) ([]string, func() ([]byte, error)) {
		return []string{"watch", "configmaps", "-o", "ndjson", "--state", filepath.Join(disk, "state")}, nil
	})
}

// The same if stdout is a file on that disk: the cursor is never ahead of the lines.
func TestWatchIntoFile(t *testing.T) {
	lose(t, func(disk string) ([]string, func() ([]byte, error)) {
		out := filepath.Join(disk, "out.ndjson")
		return []string{"watch", "configmaps", "-o", "ndjson", "--state", filepath.Join(disk, "state"), ">>" + out},
			func() ([]byte, error) {
				text, err := os.ReadFile(out)
				return written(text), err
			}
	})
}

// written returns the lines of a file that the loss has left whole: a consumer skips the others, whose events come
// again.
func written(text []byte) (whole []byte) {
	for line := range bytes.Lines(text) {
		if json.Valid(line) {
			whole = append(whole, line...)
		}
	}
	return whole
}

// The same with the files of keepwatch sync, which are on the disk that loses its power.
func TestFiles(t *testing.T) {
	lose(t, func(disk string) ([]string, func() ([]byte, error)) {
		to := filepath.Join(disk, "changes")
		return []string{"sync", "configmaps", "--rotate-size", "20Ki", "--to", "files:" + to},
			func() (all []byte, err error) {
				names, err := filepath.Glob(filepath.Join(to, "*.ndjson"))
				slices.Sort(names)
				for _, name := range names {
					text, err := os.ReadFile(name)
					if err != nil {
						return nil, err
					}
					all = append(all, text...)
				}
				return all, err
			}
	})
}

// lose runs a command whose disk loses its power, and then again until it is synced. command returns its arguments, of
// which >>FILE is a file for stdout, and what reads its lines, if they are not on stdout.
func lose(t *testing.T, command func(disk string) ([]string, func() ([]byte, error))) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	server := peer.SharedServe(t)
	client := kubernetes.NewForConfigOrDie(server.Config())
	for run := range *runsFlag {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(run)))
			test, _, _ := strings.Cut(t.Name(), "/")
			namespace := fmt.Sprintf("powerloss-%d-%s", run, strings.ToLower(strings.TrimPrefix(test, "Test")))
			created := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			if _, err := client.CoreV1().Namespaces().Create(t.Context(), created, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			w := &writer{maps: client.CoreV1().ConfigMaps(namespace), random: random}
			disk := Mount(t, 1+random.IntN(mostChanges))
			args, read := command(disk.Path)
			args = append(args, "--kubeconfig", server.Kubeconfig(), "-n", namespace)

			first := start(t, args)
			for end := time.Now().Add(await.Deadline); !disk.Lost(); time.Sleep(2 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the power is not lost: %s", first.stderr.text())
				}
				w.change(t)
			}
			first.kill()
			if err := disk.Reboot(random); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				w.change(t)
			}
			second := start(t, append(args, "--until-synced"))
			if err := second.wait(); err != nil {
				t.Fatalf("the run after the loss: %v: %s", err, second.stderr.text())
			}
			lines := append(complete(first.stdout.bytes()), second.stdout.bytes()...)
			if read != nil {
				var err error
				if lines, err = read(); err != nil {
					t.Fatal(err)
				}
			}
			w.check(t, lines)
		})
	}
}

// complete returns the complete lines of a text.
func complete(text []byte) []byte { return text[:1+bytes.LastIndexByte(text, '\n')] }

// writer changes config maps at random.
type writer struct {
	maps   typed.ConfigMapInterface
	random *rand.Rand
	n      int
}

func (w *writer) change(t *testing.T) {
	t.Helper()
	w.n++
	name := fmt.Sprint("map-", w.random.IntN(10))
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"n": fmt.Sprint(w.n), "pad": strings.Repeat("x", w.random.IntN(2000))},
	}
	var err error
	switch _, found := w.maps.Get(t.Context(), name, metav1.GetOptions{}); {
	case found != nil:
		_, err = w.maps.Create(t.Context(), m, metav1.CreateOptions{})
	case w.random.IntN(3) == 0:
		err = w.maps.Delete(t.Context(), name, metav1.DeleteOptions{})
	default:
		_, err = w.maps.Update(t.Context(), m, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// check folds lines and compares the result with the server.
func (w *writer) check(t *testing.T, lines []byte) {
	t.Helper()
	fold := ndjson.NewFold()
	if err := fold.Read(bytes.NewReader(lines)); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range fold.Wrong {
		t.Error(wrong)
	}
	list, err := w.maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range list.Items {
		want[m.Namespace+"/"+m.Name] = m.ResourceVersion
	}
	for key, o := range fold.Objects {
		if want[key] != o.Revision {
			t.Errorf("%s is at %s, and at the server at %q", key, o.Revision, want[key])
		}
		delete(want, key)
	}
	for key := range want {
		t.Errorf("%s is missing", key)
	}
}

// process is a run of keepwatch.
type process struct {
	*exec.Cmd
	stdout, stderr *output
	ended          chan error
}

func start(t *testing.T, args []string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	t.Cleanup(cancel)
	p := &process{nil, &output{}, &output{}, make(chan error, 1)}
	p.Cmd = exec.CommandContext(ctx, peer.Keepwatch(t))
	p.Stdout, p.Stderr = p.stdout, p.stderr
	for _, arg := range args {
		path, ok := strings.CutPrefix(arg, ">>")
		if !ok {
			p.Args = append(p.Args, arg)
			continue
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() // the process has its own
		p.Stdout = file
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.Wait() }()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.wait()
}

func (p *process) wait() error {
	err := <-p.ended
	p.ended <- err
	return err
}

// output is what a process has written.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

var _ io.Writer = (*output)(nil)

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.all.Bytes())
}

func (o *output) text() string { return string(o.bytes()) }
