package clientgo_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/internal/podtest"
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
	podtest.Eventually(t, func() bool { return len(r.told()) >= len(lines) }, func() string {
		return fmt.Sprintf("told %q, want %q", r.told(), lines)
	})
	if got := r.told(); !slices.Equal(got, lines) {
		t.Fatalf("told:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

// hears waits until all of these lines were among those told.
func (r *recorder) hears(t *testing.T, lines ...string) {
	t.Helper()
	podtest.Eventually(t, func() bool {
		told := r.told()
		return !slices.ContainsFunc(lines, func(line string) bool { return !slices.Contains(told, line) })
	}, func() string { return fmt.Sprintf("told %q, want %q among it", r.told(), lines) })
}
