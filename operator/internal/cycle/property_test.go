package cycle

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch/internal/backoff"
)

// simulation is an object at a server, an operator that can crash at any point, and users
// who change and delete the object.
type simulation struct {
	*rapid.T
	spec   Spec
	object map[string]any // nil once it is gone
	now    time.Time
	seen   Seen
	cycles int // completed
	// succeeded counts what was written, by handler, purpose and completed cycles.
	succeeded map[string]int
	// saw is the desired state at the last call of each handler.
	saw     map[string]map[string]any
	outcome func(call Call) error
}

func (w *simulation) init(t *rapid.T) {
	w.T, w.now = t, noon
	w.succeeded = map[string]int{}
	w.saw = map[string]map[string]any{}
	var handlers []Handler
	for i := range rapid.IntRange(1, 4).Draw(t, "handlers") {
		h := Handler{
			ID:      fmt.Sprintf("h%d", i),
			Causes:  Cause(rapid.IntRange(1, 15).Draw(t, "causes")),
			OnError: OnError(rapid.IntRange(0, 2).Draw(t, "on error")),
			Retries: rapid.IntRange(0, 4).Draw(t, "retries"),
			Timeout: time.Duration(rapid.IntRange(0, 3).Draw(t, "timeout")) * 100 * time.Second,
			Backoff: backoff.Exponential{First: time.Duration(rapid.IntRange(0, 4).Draw(t, "backoff")) * 100 * time.Millisecond,
				Max: time.Minute},
		}
		if h.Causes == Update && rapid.Bool().Draw(t, "field") {
			h.Field = Path{"spec", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")}
		}
		handlers = append(handlers, h)
	}
	w.spec = New(Spec{Keys: Keys{prefix}, Finalizer: finalizer, Handlers: handlers})
	if rapid.Bool().Draw(t, "in status") {
		w.spec.Status = Path{"status", "operator"}
	}
	w.object = object(
		`{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {"a": 1, "b": 1}}`)
	w.seen = Seen{Listed: rapid.Bool().Draw(t, "listed")}
	w.outcome = w.anything
}

func (w *simulation) anything(Call) error {
	switch rapid.IntRange(0, 3).Draw(w.T, "outcome") {
	case 0:
		return nil
	case 1:
		return &RetryAfter{errors.New("not yet"), time.Duration(rapid.IntRange(-1, 100).Draw(w.T, "delay")) * time.Second}
	case 2:
		return &Permanent{errors.New("never")}
	}
	return errors.New("some error")
}

// turn is one step of the operator; it reports whether there was something to do.
func (w *simulation) step(crash func(at string) bool) (busy bool) {
	shown := clone(w.object)
	w.seen.Object = shown
	before := clone(w.object)
	p, err := w.spec.Plan(w.seen, w.now)
	if err != nil {
		w.Fatal(err)
	}
	defer func() {
		if diff := Compare(before, shown); len(diff) > 0 {
			w.Fatalf("the object was changed by planning: %v", diff)
		}
	}()
	switch step := p.Step.(type) {
	case Idle:
		if step.Completed {
			w.seen.Listed, w.seen.Begun = false, false
		}
		return false
	case Sleep:
		if !step.Until.After(w.now) {
			w.Fatalf("sleep until %v, at %v", step.Until, w.now)
		}
		w.now = step.Until
		return true
	case Write:
		if step.Edits.Empty() && !step.Completed {
			w.Fatal("nothing to write, and no end")
		}
		w.write(p, step, crash)
		return true
	case Call:
		w.call(p, step, crash)
		return true
	}
	w.Fatalf("step %T", p.Step)
	return false
}

func (w *simulation) call(p Plan, call Call, crash func(string) bool) {
	id := call.Handler.ID
	if call.Handler.Retries > 0 && call.Retry >= call.Handler.Retries {
		w.Fatalf("%s is called after %d calls, of %d", id, call.Retry, call.Handler.Retries)
	}
	if w.succeeded[w.callKey(call)] > 0 && call.Purpose != Resume {
		w.Fatalf("%s is called for %s again after its success was written", id, call.Purpose)
	}
	if call.Purpose == Update && len(p.DiffOf(call.Handler)) == 0 {
		w.Fatalf("%s is called for an update of nothing", id)
	}
	if call.Purpose == Delete && !w.spec.HasFinalizer(w.object) && !call.Handler.Optional {
		w.Fatalf("%s is called for a deletion that does not wait for it", id)
	}
	w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 100, 50_000}).Draw(w.T, "runs")) * time.Millisecond)
	verdict := call.Handler.Judge(w.outcome(call), call.Retry, w.now.Sub(call.Started))
	if crash("after a call") {
		w.restart()
		return
	}
	step := p.Called(call, verdict, w.now)
	if r, ok := step.(Defer); ok {
		w.deferRecord(r, verdict)
		w.saw[id] = p.New
		return
	}
	write := step.(Write)
	if !w.write(p, write, crash) {
		return
	}
	w.seen.Begun = w.seen.Begun || call.Purpose == Resume && !write.Completed
	w.saw[id] = p.New
	if verdict.Final && verdict.Err == nil {
		w.succeeded[w.callKey(call)]++
	}
	if write.Completed {
		w.cycles++
	}
}

func (w *simulation) deferRecord(r Defer, v Verdict) {
	if v.Final || v.Delay >= writeInterval || w.seen.Written.IsZero() {
		w.Fatalf("%+v is not written; %+v", v, r)
	}
	if w.seen.Deferred == nil {
		w.seen.Deferred = map[string]Record{}
	}
	w.seen.Deferred[r.Slot] = r.Record
}

// callKey identifies calls of which one may succeed.
func (w *simulation) callKey(call Call) string {
	return fmt.Sprintf("%s/%s/%d", call.Handler.ID, call.Purpose, w.cycles)
}

func (w *simulation) write(p Plan, write Write, crash func(string) bool) bool {
	if crash("before a write") {
		w.restart()
		return false
	}
	w.object = apply(w.object, write.Edits, w.spec.Finalizer)
	w.seen.Written = w.now
	if write.Completed {
		w.seen.Listed, w.seen.Begun, w.seen.Deferred = false, false, nil
		if _, called := p.Step.(Call); !called {
			w.cycles++
		}
	} else if p.Cause == Noop {
		w.cycles++
	}
	if deleting(w.object) && p.Cause != Delete {
		w.cycles++
	}
	return true
}

func (w *simulation) restart() { w.seen = Seen{Listed: true} }

// settle runs the operator without faults until it is idle.
func (w *simulation) settle() {
	for range 500 {
		if !w.step(func(string) bool { return false }) {
			return
		}
	}
	w.Fatal("the operator never rests")
}

// TestHandlersSucceedOnce is the promise of the package: for any outcomes,
// crashes, restarts and changes, no handler is called again after its success was
// written, what handlers have seen last is what is there in the end, and nothing
// is left of their progress.
func TestHandlersSucceedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w simulation
		w.init(t)
		t.Repeat(map[string]func(*rapid.T){
			"turn": func(t *rapid.T) {
				w.T = t
				w.step(func(string) bool { return false })
			},
			"crash": func(t *rapid.T) {
				w.T = t
				w.step(func(at string) bool { return rapid.Bool().Draw(t, at) })
			},
			"restart": func(t *rapid.T) { w.restart() },
			"change": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
				put(w.object, Path{"spec", name}, int64(rapid.IntRange(1, 3).Draw(t, "value")))
			},
			"delete": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 && !deleting(w.object) && w.spec.HasFinalizer(w.object) {
					put(w.object, Path{"metadata", "deletionTimestamp"}, "2026-03-01T12:00:00Z")
					w.cycles++
				}
			},
			"": func(t *rapid.T) { w.T = t },
		})
		w.outcome = func(Call) error { return nil }
		w.settle()
		if last := annotationsOf(w.object); len(last) > 0 && !w.justHandled(last, prefix+"/"+handledName) {
			w.Fatalf("left on the object: %v", last)
		}
		kept, _ := lookup(w.object, Path{"status", "operator"})
		if last, _ := kept.(map[string]any); len(last) > 0 && !w.justHandled(last, handledName) {
			w.Fatalf("left in the status: %v", last)
		}
		if deleting(w.object) {
			if w.spec.HasFinalizer(w.object) {
				w.Fatal("the finalizer is left")
			}
			return
		}
		w.sawLastState()
	})
}

// justHandled reports whether the only progress is the last handled state, and it is the
// present one.
func (w *simulation) justHandled(last map[string]any, name string) bool {
	if deleting(w.object) {
		return len(last) == 1 && last[name] != nil // the object goes with it
	}
	text, _ := last[name].(string)
	return len(last) == 1 && len(Compare(object(text), w.spec.desired(w.object))) == 0
}

// sawLastState fails if a handler of all updates has not seen the last state.
func (w *simulation) sawLastState() {
	for _, h := range w.spec.Handlers {
		saw := w.saw[h.ID]
		if saw == nil || !h.Causes.has(Update) || h.Field != nil {
			continue
		}
		if diff := Compare(saw, w.spec.desired(w.object)); len(diff) > 0 {
			w.Fatalf("%s has never seen %v", h.ID, diff)
		}
	}
}
