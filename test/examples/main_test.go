// Package examples runs the examples, and the program that docs/operator.md prints, as their
// readers do: built, and started against keepwatch serve.
package examples

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// root is the repository, seen from here.
const root = "../.."

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	events     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// reader is a user who tries an example.
type reader struct {
	*testing.T
	server  *peer.Server
	client  dynamic.Interface
	running []*program
}

// newReader has widgets defined, and none left when the test ends.
func newReader(t *testing.T) *reader {
	t.Helper()
	server := peer.SharedServe(t)
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, server: server, client: client}
	var crd unstructured.Unstructured
	text, err := os.ReadFile(filepath.Join(root, "examples/widgets.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &crd.Object)
	}
	if err == nil {
		_, err = client.Resource(definitions).Create(t.Context(), &crd, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	r.eventually("widgets are served", func() (bool, string) {
		_, err := r.widgets().List(t.Context(), metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	t.Cleanup(r.clean)
	return r
}

// clean removes the objects of a test that has failed.
func (r *reader) clean() {
	ctx := context.Background()
	left, err := r.widgets().List(ctx, metav1.ListOptions{})
	if err != nil {
		r.Error(err)
		return
	}
	for _, w := range left.Items {
		_, err := r.widgets().Patch(ctx, w.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		if err == nil {
			err = r.widgets().Delete(ctx, w.GetName(), metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			r.Error(err)
		}
	}
}

func (r *reader) widgets() dynamic.ResourceInterface {
	return r.client.Resource(widgets).Namespace("default")
}

// eventually polls until done, which describes the current state if it is not done. It
// fails if a program has ended too early.
func (r *reader) eventually(what string, done func() (bool, string)) {
	r.Helper()
	for end := time.Now().Add(await.Deadline); ; {
		ok, why := done()
		if ok {
			return
		}
		if slices.ContainsFunc(r.running, func(p *program) bool { return p.ended() }) {
			r.Fatalf("a program has ended; not there yet: %s: %s", what, why)
		}
		if time.Now().After(end) {
			r.Fatalf("not within %v: %s: %s", await.Deadline, what, why)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (r *reader) create(name string, size int) {
	r.Helper()
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"size": int64(size)},
	}}
	if _, err := r.widgets().Create(r.Context(), w, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func (r *reader) patch(name, patch string, subresources ...string) {
	r.Helper()
	if _, err := r.widgets().Patch(r.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
		subresources...); err != nil {
		r.Fatal(err)
	}
}

func (r *reader) delete(name string) {
	r.Helper()
	if err := r.widgets().Delete(r.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	r.eventually(name+" is gone", func() (bool, string) {
		w, err := r.widgets().Get(r.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(w, err)
	})
}

// becomes waits until a widget is as wanted.
func (r *reader) becomes(name string, wanted func(w *unstructured.Unstructured) bool) {
	r.Helper()
	r.eventually(name+" is as wanted", func() (bool, string) {
		w, err := r.widgets().Get(r.Context(), name, metav1.GetOptions{})
		return err == nil && wanted(w), fmt.Sprint(w, err)
	})
}

// waitForEvent waits for an Event of a widget with a message.
func (r *reader) waitForEvent(message string) {
	r.Helper()
	r.eventually("an Event", func() (bool, string) {
		list, err := r.client.Resource(events).Namespace("default").List(r.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, e := range list.Items {
			if m, _, _ := unstructured.NestedString(e.Object, "message"); strings.Contains(m, message) {
				return true, ""
			}
		}
		return false, message
	})
}

func text(w *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(w.Object, path...)
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// programs are the examples, built together where the peers are.
var programs = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "keepwatch", "examples")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, build(dir, "./examples/...")
})

func build(to, what string) error {
	c := exec.CommandContext(context.Background(), "go", "build", "-o", to, what)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", what, err, out)
	}
	return nil
}

// run starts an example.
func (r *reader) run(name string, args ...string) *program {
	r.Helper()
	dir, err := programs()
	if err != nil {
		r.Fatal(err)
	}
	return r.start(filepath.Join(dir, name), append(args, "--health-probe-bind-address=0", "--metrics-bind-address=0")...)
}

// program is an example that runs.
type program struct {
	*reader
	*peer.Process
	log string
}

func (r *reader) start(path string, args ...string) *program {
	r.Helper()
	p := &program{reader: r, log: filepath.Join(r.TempDir(), "log")}
	var err error
	p.Process, err = peer.Start(peer.Command{Path: path, Args: append([]string{"--kubeconfig", r.server.Kubeconfig()},
		args...), Log: p.log})
	if err != nil {
		r.Fatal(err)
	}
	r.running = append(r.running, p)
	r.Cleanup(func() {
		p.Kill()
		if r.Failed() {
			r.Logf("the log of %s:\n%s", path, p.logged())
		}
	})
	return p
}

func (p *program) ended() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// end sends SIGTERM to the program, which must end without an error.
func (p *program) end() {
	p.Helper()
	p.running = slices.DeleteFunc(p.running, func(other *program) bool { return other == p })
	if err := p.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	if code := p.ExitCode(); code != 0 {
		p.Errorf("asked to end, it exits with %d", code)
	}
}

func (p *program) logged() string {
	p.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.Fatal(err)
	}
	return string(text)
}

// logs waits until a line of the log has all the parts.
func (p *program) logs(parts ...string) {
	p.Helper()
	p.eventually(fmt.Sprintf("a line with %q", parts), func() (bool, string) { return p.count(parts...) > 0, "" })
}

// count is how many lines of the log have all the parts.
func (p *program) count(parts ...string) (n int) {
	for line := range strings.Lines(p.logged()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			n++
		}
	}
	return n
}
