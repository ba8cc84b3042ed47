package informer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// recorder is a handler that writes down what it is told.
type recorder struct {
	mu    sync.Mutex
	lines []string
	react func(line string) // is called with each line, if not nil
}

func (r *recorder) OnAdd(obj any, initial bool) {
	if initial {
		r.note("add! %s", about(obj))
	} else {
		r.note("add %s", about(obj))
	}
}
func (r *recorder) OnUpdate(old, obj any) { r.note("update %s to %s", about(old), about(obj)) }
func (r *recorder) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		r.note("delete? %s", about(unknown.Obj))
		return
	}
	r.note("delete %s", about(obj))
}

// about is "name@revision", with what marks the content in brackets.
func about(obj any) string {
	o, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Sprintf("%T", obj)
	}
	text := o.GetName()
	if o.GetResourceVersion() != "" {
		text += "@" + o.GetResourceVersion()
	}
	if mark := o.GetLabels()["mark"]; mark != "" {
		text += "[" + mark + "]"
	}
	return text
}

func (r *recorder) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.lines = append(r.lines, line)
	r.mu.Unlock()
	if r.react != nil {
		r.react(line)
	}
}

func (r *recorder) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = nil
}

// wants waits until exactly these lines were told.
func (r *recorder) wants(t *testing.T, lines ...string) {
	t.Helper()
	eventually(t, func() bool { return len(r.told()) >= len(lines) }, func() string {
		return fmt.Sprintf("told %q, want %q", r.told(), lines)
	})
	if got := r.told(); !slices.Equal(got, lines) {
		t.Fatalf("told:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

// hears waits until all of these lines were among those told.
func (r *recorder) hears(t *testing.T, lines ...string) {
	t.Helper()
	eventually(t, func() bool {
		told := r.told()
		return !slices.ContainsFunc(lines, func(line string) bool { return !slices.Contains(told, line) })
	}, func() string { return fmt.Sprintf("told %q, want %q among it", r.told(), lines) })
}

// eventually waits for a condition: only a hang reaches its deadline.
func eventually(t *testing.T, condition func() bool, complaint func() string) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatal(complaint())
		}
		time.Sleep(time.Millisecond)
	}
}

// run runs an informer until the test is over, or until stop is called, which
// waits for its end.
func run(t *testing.T, inf interface{ RunWithContext(context.Context) }) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// awaitSync waits until informers or handlers have synced.
func awaitSync(t *testing.T, synced ...interface{ HasSynced() bool }) {
	t.Helper()
	for _, s := range synced {
		eventually(t, s.HasSynced, func() string { return fmt.Sprintf("%T has not synced", s) })
	}
}

// pod is "ns/name" in a state that mark tells from others.
func pod(name string, options ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, o := range options {
		o(p)
	}
	return p
}

func marked(mark string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"mark": mark} }
}

func uid(uid string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = types.UID(uid) } }

func at(revision int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.ResourceVersion = fmt.Sprint(revision) }
}
