package operator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/server/internal/testonly/testmain"
)

// prefix is the default Prefix. It is stored on objects, so it must not change.
const prefix = "keepwatch.io"

// api is the server of all tests.
var (
	api     *rest.Config
	clients *kubernetes.Clientset
	objects *dynamic.DynamicClient
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(testmain.Run(m, prepare))
}

// definition is a resource with a status endpoint and a schema that rejects large sizes.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, maximum: 1000}
              color: {type: string}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties:
              pruned: {type: object}
`

// prepare creates the clients and the resource of the tests.
func prepare(ctx context.Context, cfg *rest.Config) (err error) {
	api = cfg
	if clients, err = kubernetes.NewForConfig(api); err != nil {
		return err
	}
	if objects, err = dynamic.NewForConfig(api); err != nil {
		return err
	}
	var crd unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(definition), &crd.Object); err != nil {
		return err
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	if _, err := objects.Resource(crds).Create(ctx, &crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	for end := time.Now().Add(await.Deadline); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		if _, err = objects.Resource(widgets).List(ctx, metav1.ListOptions{}); err == nil {
			return nil
		}
	}
	return err
}

type Widget struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              WidgetSpec   `json:"spec"`
	Status            WidgetStatus `json:"status"`
}

type WidgetSpec struct {
	Size  int    `json:"size,omitempty"`
	Color string `json:"color,omitempty"`
}

type WidgetStatus struct {
	Phase string `json:"phase,omitempty"`
}

// testNamespace is the namespace of one test.
type testNamespace struct {
	t    testing.TB
	name string
	log  *calls
}

func newNamespace(t testing.TB) *testNamespace {
	t.Helper()
	ns, err := objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"generateName": "test-"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &testNamespace{t: t, name: ns.GetName(), log: &calls{}}
}

// calls records the calls of handlers in order, and the log.
type calls struct {
	mu    sync.Mutex
	lines []string
	text  bytes.Buffer
}

func (r *calls) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *calls) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.lines...)
}

func (r *calls) count(line string) (n int) {
	for _, l := range r.all() {
		if l == line {
			n++
		}
	}
	return n
}

func (r *calls) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *calls) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// operator returns an operator for the namespace, which logs to its record.
func (p *testNamespace) operator(resource string, options ...operator.Option) *operator.Operator {
	logger := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return operator.New(resource, append([]operator.Option{
		operator.Namespaces(p.name), operator.Logger(logger), operator.ShutdownGrace(10 * time.Second),
	}, options...)...)
}

// start runs operators until the returned function is called, or the test ends.
func (p *testNamespace) start(ops ...*operator.Operator) (stop func() error) {
	return p.startWith(api, ops...)
}

func (p *testNamespace) startWith(cfg *rest.Config, ops ...*operator.Operator) (stop func() error) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx, cfg, ops...) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(await.Deadline):
			return errors.New("the operator doesn't stop")
		}
	})
	p.t.Cleanup(func() {
		if err := stop(); err != nil && !p.t.Failed() {
			p.t.Errorf("the operator ended with: %v", err)
		}
		if p.t.Failed() {
			p.t.Logf("the operator's log:\n%s", p.log.logged())
		}
	})
	return stop
}

func (p *testNamespace) widgets() dynamic.ResourceInterface {
	return objects.Resource(widgets).Namespace(p.name)
}

func (p *testNamespace) create(name, spec string) *unstructured.Unstructured {
	p.t.Helper()
	var w unstructured.Unstructured
	text := fmt.Sprintf("{apiVersion: example.com/v1, kind: Widget, metadata: {name: %s}, spec: %s}", name, spec)
	if err := yaml.Unmarshal([]byte(text), &w.Object); err != nil {
		p.t.Fatal(err)
	}
	made, err := p.widgets().Create(p.t.Context(), &w, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return made
}

func (p *testNamespace) patch(name, patch string) {
	p.t.Helper()
	if _, err := p.widgets().Patch(p.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *testNamespace) delete(name string) {
	p.t.Helper()
	if err := p.widgets().Delete(p.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *testNamespace) get(name string) *unstructured.Unstructured {
	p.t.Helper()
	w, err := p.widgets().Get(p.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return w
}

// waitUntil waits until done returns true. Its string explains a failure.
func (p *testNamespace) waitUntil(what string, done func() (bool, string)) {
	p.t.Helper()
	await.State(p.t, what, done)
}

func (p *testNamespace) waitFor(lines ...string) {
	p.t.Helper()
	p.waitUntil("handlers called", func() (bool, string) {
		all := p.log.all()
		return strings.Join(all, "; ") == strings.Join(lines, "; "), fmt.Sprintf("%q, want %q", all, lines)
	})
}

// waitHandled waits until an object has no progress except the last handled state.
func (p *testNamespace) waitHandled(name string) {
	p.t.Helper()
	p.waitUntil(name+" is handled", func() (bool, string) {
		var notes []string
		for key := range p.get(name).GetAnnotations() {
			if strings.HasPrefix(key, prefix+"/") {
				notes = append(notes, key)
			}
		}
		return len(notes) == 1 && notes[0] == prefix+"/last-handled-configuration", fmt.Sprintf("%q", notes)
	})
}

func (p *testNamespace) waitGone(name string) {
	p.t.Helper()
	p.waitUntil(name+" is gone", func() (bool, string) {
		w, err := p.widgets().Get(p.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprintf("%v, %v", w, err)
	})
}
