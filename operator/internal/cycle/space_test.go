package cycle

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// large returns an object with that many bytes in fields of 100 bytes, random ones if they must not be compressible.
func large(bytes int, random bool) map[string]any {
	generator := rand.New(rand.NewPCG(1, 2))
	data := map[string]any{}
	for i := range bytes / 100 {
		text := strings.Repeat("keepwatch ", 10)
		if random {
			text = ""
			for range 7 {
				text += fmt.Sprintf("%014x", generator.Uint64()>>8)
			}
		}
		data[fmt.Sprint("field-", i)] = text
	}
	return map[string]any{"kind": "Widget", "spec": map[string]any{"size": int64(1)}, "data": data}
}

// annotationBytes returns what the API bounds.
func annotationBytes(o map[string]any) (size int) {
	for key, text := range annotationsOf(o) {
		size += len(key) + len(text.(string))
	}
	return size
}

// A large object is handled like a small one, by several handlers that fail first, and with its old state: the
// annotations never exceed their limit.
func TestLargeObjectsAreHandled(t *testing.T) {
	for name, o := range map[string]map[string]any{"repetitive": large(400_000, false), "random": large(150_000, true)} {
		t.Run(name, func(t *testing.T) {
			s := spec(Handler{ID: "a", Causes: Create | Update}, Handler{ID: "b", Causes: Create | Update})
			seen := Seen{Object: o}
			failures := map[string]int{"a": 1, "b": 1}
			outcome := func(id string) error {
				if size := annotationBytes(seen.Object); size > maxAnnotations {
					t.Fatalf("the annotations have %d bytes", size)
				}
				if failures[id]--; failures[id] >= 0 {
					return &RetryAfter{errors.New("again"), 0}
				}
				return nil
			}
			wantCalls(t, run(t, s, &seen, noon, outcome), "a", "b", "a", "b")
			put(seen.Object, Path{"spec", "size"}, int64(2))
			p := plan(t, s, seen, noon)
			if size, _ := lookup(p.Old, Path{"spec", "size"}); p.Cause != Update || size != int64(1) || len(p.Diff) != 1 {
				t.Errorf("%v with %v", p.Cause, p.Diff)
			}
			failures = map[string]int{"a": 1}
			wantCalls(t, run(t, s, &seen, noon, outcome), "a", "b", "a")
			if p := plan(t, s, seen, noon); p.Step != (Idle{}) || annotationBytes(seen.Object) > maxAnnotations {
				t.Errorf("%#v with %d bytes of annotations", p.Step, annotationBytes(seen.Object))
			}
		})
	}
}

// Where progress has no space, no handler is called: neither of a change, nor a second one after the first.
func TestHandlersWithoutSpaceAreNotCalled(t *testing.T) {
	for name, test := range map[string]struct {
		object map[string]any
		status bool
	}{
		"too large for annotations": {object: large(600_000, true)},
		"too large for etcd":        {object: large(1_400_000, true), status: true},
		"almost too large for etcd": {object: large(1_350_000, false)},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(Handler{ID: "a", Causes: Create}, Handler{ID: "b", Causes: Create})
			if test.status {
				s.Status = Path{"status", "operator"}
			}
			step, ok := plan(t, s, Seen{Object: test.object}, noon).Step.(Refuse)
			if !ok || !errors.Is(step.Err, ErrNoSpace) {
				t.Fatalf("%#v", step)
			}
			small := maps.Clone(test.object)
			small["data"] = map[string]any{}
			seen := Seen{Object: small}
			wantCalls(t, run(t, s, &seen, noon, fine), "a", "b")
		})
	}
}

// Users may fill the annotations of an object. A handler whose record has no space is not called, whatever its cause.
func TestFullAnnotations(t *testing.T) {
	s := spec(Handler{ID: "change", Causes: Create | Resume}, Handler{ID: "end", Causes: Delete})
	full := func(o map[string]any, left int) map[string]any {
		put(o, Path{"metadata", "annotations", "example.com/large"}, "")
		put(o, Path{"metadata", "annotations", "example.com/large"},
			strings.Repeat("x", maxAnnotations-annotationBytes(o)-left))
		return o
	}
	ending := `{"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["` + finalizer + `"]}}`
	handledBefore := handled(t, s, object(`{"metadata": {"finalizers": ["`+finalizer+`"]}, "spec": {}}`))
	for name, test := range map[string]struct {
		seen  Seen
		calls bool
	}{
		"create": {Seen{Object: full(object(`{"metadata": {"finalizers": ["`+finalizer+`"]}}`), 100)},
			false},
		"create, with space": {Seen{Object: full(object(`{"metadata": {"finalizers": ["`+finalizer+`"]}}`), 10_000)},
			true},
		"delete":                    {Seen{Object: full(object(ending), 100)}, false},
		"delete, with little space": {Seen{Object: full(object(ending), 2_000)}, true},
		"resume":                    {Seen{Object: full(handledBefore, 100), Listed: true}, false},
	} {
		p := plan(t, s, test.seen, noon)
		_, calls := p.Step.(Call)
		_, refuses := p.Step.(Refuse)
		if calls != test.calls || refuses == test.calls {
			t.Errorf("%s: %v: %#v", name, p.Cause, p.Step)
		}
	}
}

// What handlers saw is stored as changes of the handled state, and has no meaning beside another one.
func TestHandlingIsOfTheHandledState(t *testing.T) {
	before := object(`{"spec": {"a": 1, "b": {"c": 2}, "gone": {"x": 1}}, "data": {"k": "v"}}`)
	first := object(`{"spec": {"a": 2, "b": {}, "list": [1]}, "data": {"k": "v"}}`)
	h := handling{First: first, Also: before, Before: object(`{"spec": {}}`)}
	s := spec()
	store := func(handled map[string]any) handling {
		o := object(`{}`)
		put(o, Path{"metadata", "annotations", s.Keys.Of(handlingName, "")}, h.encode(before))
		read, err := s.handling(o, handled)
		if err != nil {
			t.Fatal(err)
		}
		return read
	}
	read := store(before)
	for name, states := range map[string][2]map[string]any{
		"first": {h.First, read.First}, "also": {h.Also, read.Also}, "before": {h.Before, read.Before},
	} {
		if !equal(states[0], states[1]) || states[1] == nil {
			t.Errorf("%s is %v, want %v", name, states[1], states[0])
		}
	}
	if read := store(first); !read.empty() {
		t.Errorf("beside another state: %v", read)
	}
	earlier := object(`{}`)
	put(earlier, Path{"metadata", "annotations", s.Keys.Of(handlingName, "")}, `{"first": {"spec": {"a": 1}}}`)
	if read, err := s.handling(earlier, before); err != nil || !read.empty() {
		t.Errorf("of an earlier version: %v, %v", read, err)
	}
	if encoded := (handling{First: before}).encode(before); strings.Contains(encoded, "data") {
		t.Errorf("a state without changes is stored as %s", encoded)
	}
}

func TestUnreadableProgress(t *testing.T) {
	s := spec(Handler{ID: "a", Causes: Create})
	for _, text := range []string{"", "{", "[]", "null", "H4sI", "H4sIAAAAAAAA/w==", "x"} {
		o := object(`{}`)
		put(o, Path{"metadata", "annotations", s.Keys.Of(handledName, "")}, text)
		if _, err := s.Plan(Seen{Object: o}, noon); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A wait that was stored by a clock that was ahead ends at the latest after the handler's own wait, and its timeout
// counts from now.
func TestTimesOfAClockThatWasAhead(t *testing.T) {
	year := 365 * 24 * time.Hour
	for name, test := range map[string]struct {
		err    error
		latest time.Duration
	}{
		"backoff":       {errors.New("down"), time.Minute},
		"a longer wait": {&RetryAfter{errors.New("down"), 2 * time.Hour}, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(Handler{ID: "a", Causes: Create, Backoff: fixed(time.Minute), Timeout: 24 * time.Hour})
			seen := Seen{Object: object(`{"spec": {}}`)}
			wantCalls(t, run(t, s, &seen, noon.Add(year), func(string) error { return test.err }), "a")
			wantCalls(t, run(t, s, &seen, noon, fine))
			sleep, ok := plan(t, s, seen, noon).Step.(Sleep)
			if wait := sleep.Until.Sub(noon); !ok || wait < test.latest || wait > test.latest+2*time.Second {
				t.Fatalf("%#v, want a sleep of %v", sleep, test.latest)
			}
			call, ok := plan(t, s, seen, sleep.Until).Step.(Call)
			if !ok || call.Retry != 1 || call.Started.Sub(noon).Abs() > time.Second {
				t.Errorf("%#v", call)
			}
		})
	}
}
