package cycle

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/backoff"
)

// failure plans a call of a handler that fails, and returns the step after it.
func failure(t *testing.T, s Spec, seen Seen, now time.Time) Step {
	t.Helper()
	p := plan(t, s, seen, now)
	call, ok := p.Step.(Call)
	if !ok {
		t.Fatalf("%#v, want a call", p.Step)
	}
	return p.Called(call, call.Handler.Judge(errors.New("down"), call.Retry, now.Sub(call.Started)), now)
}

// failedOnce returns an object whose handler has failed at noon.
func failedOnce(t *testing.T, s Spec) Seen {
	t.Helper()
	seen := Seen{Object: object(`{"spec": {"size": 1}}`)}
	write, ok := failure(t, s, seen, noon).(Write)
	if !ok {
		t.Fatal("the first failure is not written")
	}
	seen.Object, seen.Written = apply(seen.Object, write.Edits, finalizer), noon
	return seen
}

func TestSecondFailureIsDeferredOrWritten(t *testing.T) {
	later := func(d time.Duration) time.Time { return noon.Add(d) }
	for _, test := range []struct {
		name    string
		backoff time.Duration
		change  func(*Seen)
		at      time.Time
		written bool
	}{
		{"soon after a write, and soon again", 5 * time.Millisecond, nil, later(20 * time.Millisecond), false},
		{"a second after the write", 5 * time.Millisecond, nil, later(time.Second), true},
		{"the retry comes later", 2 * time.Second, nil, later(2 * time.Second), true},
		{"in a new process", 5 * time.Millisecond, func(s *Seen) { s.Written = time.Time{} }, later(20 * time.Millisecond),
			true},
		{"the call saw another state", 5 * time.Millisecond, func(s *Seen) { put(s.Object, Path{"spec", "size"}, int64(2)) },
			later(20 * time.Millisecond), true},
	} {
		s := spec(Handler{ID: "a", Causes: Create, Backoff: backoff.Exponential{First: test.backoff, Max: time.Minute}})
		seen := failedOnce(t, s)
		if test.change != nil {
			test.change(&seen)
		}
		if _, written := failure(t, s, seen, test.at).(Write); written != test.written {
			t.Errorf("%s: written is %v, want %v", test.name, written, test.written)
		}
	}
}

func TestDeferredRecordContinues(t *testing.T) {
	s := spec(Handler{ID: "a", Causes: Create, Backoff: fixed(5 * time.Millisecond), Retries: 4})
	seen := failedOnce(t, s)
	now := noon.Add(20 * time.Millisecond)
	r := failure(t, s, seen, now).(Defer)
	seen.Deferred = map[string]Record{r.Slot: r.Record}
	p := plan(t, s, seen, now)
	if want := (Sleep{now.Add(5 * time.Millisecond)}); !reflect.DeepEqual(p.Step, want) {
		t.Errorf("%#v, want %#v", p.Step, want)
	}
	p = plan(t, s, seen, now.Add(time.Minute))
	if call := p.Step.(Call); call.Retry != 2 || !call.Started.Equal(noon) {
		t.Errorf("%+v, want the third call since noon", call)
	}

	// Without the record on the object, which a user may remove, the handler starts again.
	seen.Object = object(`{"spec": {"size": 1}}`)
	if call := plan(t, s, seen, now).Step.(Call); call.Retry != 0 {
		t.Errorf("%+v, want the first call", call)
	}
}

func TestWriteIncludesDeferredRecords(t *testing.T) {
	s := spec(Handler{ID: "a", Causes: Create, Backoff: fixed(5 * time.Millisecond)}, Handler{ID: "b", Causes: Create})
	seen := failedOnce(t, s)
	seen.Written = time.Time{}
	now := noon.Add(time.Millisecond)
	p := plan(t, s, seen, now) // b, which was never called, is first
	call := p.Step.(Call)
	if call.Handler.ID != "b" {
		t.Fatalf("%+v, want b", call)
	}
	seen.Deferred = map[string]Record{prefix + "/a": {Started: noon, Purpose: "create", Retries: 7,
		Delayed: now.Add(time.Hour), Wait: 3600}}
	p = plan(t, s, seen, now)
	edits := p.Called(call, Verdict{Final: true}, now).(Write).Edits
	if text := edits.Annotations[prefix+"/a"]; text == nil || !strings.Contains(*text, `"retries":7`) {
		t.Errorf("%v, want the record of a", edits.Annotations)
	}
	seen.Object = apply(seen.Object, edits, finalizer)
	wantCalls(t, run(t, s, &seen, now.Add(2*time.Hour), fine), "a")
	if left := annotationsOf(seen.Object); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// Another handler's recent write does not make a first failure one to remember.
func TestFirstFailureIsWritten(t *testing.T) {
	s := spec(Handler{ID: "a", Causes: Create, Backoff: fixed(time.Hour)}, Handler{ID: "b", Causes: Create,
		Backoff: fixed(5 * time.Millisecond)})
	seen := failedOnce(t, s)
	if step, ok := failure(t, s, seen, noon.Add(time.Millisecond)).(Write); !ok ||
		step.Edits.Annotations[prefix+"/b"] == nil {
		t.Errorf("%#v, want the record of b to be written", step)
	}
}
