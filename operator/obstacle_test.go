package operator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
)

// conditionOf returns the condition of an object, "" if it has none.
func conditionOf(w *fakeServer, name string) string {
	text, _ := annotationOf(w.at(name), "handled-condition").(string)
	return text
}

// annotate writes an annotation with the operator's prefix, as a user may; nil removes it.
func (w *fakeServer) annotate(name, annotation string, text any) {
	w.edit(name, func(about map[string]any) {
		annotations, _ := about["annotations"].(map[string]any)
		if annotations == nil {
			annotations = map[string]any{}
		}
		if annotations[defaultPrefix+"/"+annotation] = text; text == nil {
			delete(annotations, defaultPrefix+"/"+annotation)
		}
		about["annotations"] = annotations
	})
}

// edit changes the metadata of an object.
func (w *fakeServer) edit(name string, change func(about map[string]any)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := runtime.DeepCopyJSON(w.objects[name])
	change(state["metadata"].(map[string]any))
	w.store(name, state, keepwatch.Modified)
}

// An object whose desired state is larger than its annotations may be is handled like others.
func TestLargeObjects(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		for _, id := range []string{"first", "second"} {
			OnCreate(op, func(_ context.Context, r *thing) error {
				if j.add("create %s", id); r.Retry == 0 {
					return errors.New("not yet")
				}
				return nil
			}, ID(id), Backoff(time.Second))
			OnUpdate(op, func(_ context.Context, r *thing) error {
				j.add("update %s from %d", id, r.Old.Spec.Size)
				return nil
			}, ID(id+"-update"))
		}
		w.create("one", map[string]any{"size": int64(1), "data": strings.Repeat("keepwatch ", 100_000)})
		r := startIn(t, w, op)
		time.Sleep(time.Minute)
		w.change("one", "size", int64(2))
		time.Sleep(time.Hour)
		j.want(t, "0 create first", "0 create second", "1 create first", "1 create second", "60 update first from 1",
			"60 update second from 1")
		if condition := conditionOf(w, "one"); condition != "" {
			t.Error(condition)
		}
		_ = r.end()
	})
}

// A handler whose progress has no space on the object is not called, and the object says why until there is space.
func TestNoSpaceForProgress(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		for _, id := range []string{"first", "second"} {
			OnCreate(op, func(context.Context, *thing) error {
				j.add("%s", id)
				return nil
			}, ID(id))
		}
		var incompressible strings.Builder
		random := rand.New(rand.NewPCG(1, 2))
		for incompressible.Len() < 600_000 {
			fmt.Fprintf(&incompressible, "%x", random.Uint64())
		}
		w.create("one", map[string]any{"size": int64(1), "data": incompressible.String()})
		r := startIn(t, w, op)
		time.Sleep(time.Hour)
		j.want(t)
		if condition := conditionOf(w, "one"); !strings.Contains(condition, "NoSpaceForProgress") ||
			!strings.Contains(condition, "smaller") {
			t.Errorf("the condition is %q", condition)
		}
		if n := len(w.patchesOf("one")); n != 1 {
			t.Errorf("%d patches, want that of the condition", n)
		}
		w.change("one", "data", "")
		time.Sleep(time.Hour)
		if j.mu.Lock(); len(j.lines) != 2 {
			t.Errorf("then called: %v", j.lines)
		}
		j.mu.Unlock()
		if condition := conditionOf(w, "one"); condition != "" {
			t.Errorf("the condition is still %q", condition)
		}
		_ = r.end()
	})
}

// Progress that cannot be decoded is named by the condition, which goes when a user has removed it.
func TestUnreadableProgress(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnUpdate(op, func(context.Context, *thing) error { return nil })
		w.create("one", spec(1))
		w.annotate("one", "last-handled-configuration", "{")
		r := startIn(t, w, op)
		time.Sleep(time.Hour)
		if condition := conditionOf(w, "one"); !strings.Contains(condition, "ProgressUnreadable") ||
			!strings.Contains(condition, defaultPrefix+"/last-handled-configuration") {
			t.Errorf("the condition is %q", condition)
		}
		w.annotate("one", "last-handled-configuration", nil)
		time.Sleep(time.Hour)
		if condition := conditionOf(w, "one"); condition != "" {
			t.Errorf("the condition is still %q", condition)
		}
		_ = r.end()
	})
}

// An optional delete handler is called once while another finalizer keeps the object.
func TestOptionalDeleteHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnDelete(op, func(context.Context, *thing) error {
			j.add("deleted")
			return nil
		}, Optional())
		w.create("one", spec(1))
		w.edit("one", func(about map[string]any) { about["finalizers"] = []any{"example.com/another"} })
		r := startIn(t, w, op)
		time.Sleep(time.Second)
		w.delete("one")
		time.Sleep(time.Hour)
		j.want(t, "1 deleted")
		_ = r.end()
		again := startIn(t, w, op)
		time.Sleep(time.Hour)
		j.want(t, "1 deleted")
		_ = again.end()
	})
}

// A delete handler begins when the calls of the object's timers have ended, or after their grace. Daemons run beside
// it.
func TestDeleteHandlersWaitForTimers(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		Timer(op, time.Hour, func(_ context.Context, r *thing) error {
			j.add("%s: timer begins", r.Object.Name)
			if r.Object.Name == "slow" {
				time.Sleep(10 * time.Second)
			} else {
				time.Sleep(100 * time.Second)
			}
			j.add("%s: timer ends", r.Object.Name)
			return nil
		}, StopGrace(0, 30*time.Second))
		OnDelete(op, func(_ context.Context, r *thing) error {
			j.add("%s: deleted", r.Object.Name)
			return nil
		})
		r := startIn(t, w, op)
		w.create("slow", spec(1))
		time.Sleep(5 * time.Second)
		w.delete("slow")
		time.Sleep(195 * time.Second)
		j.want(t, "0 slow: timer begins", "10 slow: timer ends", "10 slow: deleted")
		w.create("hangs", spec(1))
		time.Sleep(5 * time.Second)
		w.delete("hangs")
		time.Sleep(time.Hour)
		j.want(t, "0 slow: timer begins", "10 slow: timer ends", "10 slow: deleted", "200 hangs: timer begins",
			"235 hangs: deleted", "300 hangs: timer ends")
		_ = r.end()
	})
}
