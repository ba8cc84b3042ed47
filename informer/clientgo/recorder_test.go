package clientgo_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// recorder is a handler that records its events as lines.
type recorder struct {
	mu    sync.Mutex
	lines []string
	react func(line string) // is called with each line, if not nil
}

func (r *recorder) OnAdd(obj any, initial bool) {
	if initial {
		r.record("add! %s", describe(obj))
	} else {
		r.record("add %s", describe(obj))
	}
}
func (r *recorder) OnUpdate(old, obj any) { r.record("update %s to %s", describe(old), describe(obj)) }
func (r *recorder) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		r.record("delete? %s", describe(unknown.Obj))
		return
	}
	r.record("delete %s", describe(obj))
}

// describe returns "name@revision", with the label "mark" in brackets.
func describe(obj any) string {
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

func (r *recorder) record(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.lines = append(r.lines, line)
	r.mu.Unlock()
	if r.react != nil {
		r.react(line)
	}
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = nil
}

// want waits until exactly these events were recorded.
func (r *recorder) want(t *testing.T, lines ...string) {
	t.Helper()
	podtest.Eventually(t, func() bool { return len(r.all()) >= len(lines) }, func() string {
		return fmt.Sprintf("events %q, want %q", r.all(), lines)
	})
	if got := r.all(); !slices.Equal(got, lines) {
		t.Fatalf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

// wantSome waits until all of these events were recorded, perhaps with others.
func (r *recorder) wantSome(t *testing.T, lines ...string) {
	t.Helper()
	podtest.Eventually(t, func() bool {
		events := r.all()
		return !slices.ContainsFunc(lines, func(line string) bool { return !slices.Contains(events, line) })
	}, func() string { return fmt.Sprintf("events %q, want %q among it", r.all(), lines) })
}
