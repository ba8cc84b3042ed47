package cycle

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/keepwatch/keepwatch/internal/backoff"
)

// run performs the plans of an object until it is idle or sleeps. It returns the handlers
// that were called, in order.
func run(t *testing.T, s Spec, seen *Seen, now time.Time, outcome func(id string) error) (called []string) {
	t.Helper()
	for range 100 {
		p := plan(t, s, *seen, now)
		var write Write
		begun := false
		switch step := p.Step.(type) {
		case Idle:
			if step.Completed {
				seen.Listed = false
			}
			return called
		case Sleep, AwaitTasks:
			return called
		case Write:
			write = step
		case Call:
			called = append(called, step.Handler.ID)
			begun = step.Purpose == Resume
			write = p.Called(step, step.Handler.Judge(outcome(step.Handler.ID), step.Retry, now.Sub(step.Started)), now).(Write)
		}
		seen.Object = apply(seen.Object, write.Edits, s.Finalizer)
		seen.Begun = seen.Begun || begun
		if write.Completed {
			seen.Listed, seen.Begun = false, false
		}
	}
	t.Fatal("it never rests")
	return nil
}

// fixed is a schedule of equal waits.
func fixed(wait time.Duration) backoff.Exponential {
	return backoff.Exponential{First: wait, Max: wait}
}

func fine(string) error { return nil }

func wantCalls(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("called %q, want %q", got, want)
	}
}

func TestFewestRetriesFirst(t *testing.T) {
	s := spec(Handler{ID: "a", Causes: Create}, Handler{ID: "b", Causes: Create}, Handler{ID: "c", Causes: Create})
	seen := Seen{Object: object(`{"spec": {}}`)}
	failures := map[string]int{"a": 2, "b": 1}
	called := run(t, s, &seen, noon, func(id string) error {
		if failures[id]--; failures[id] >= 0 {
			return &RetryAfter{errors.New("again"), 0}
		}
		return nil
	})
	wantCalls(t, called, "a", "b", "c", "a", "b", "a")
	if left := annotationsOf(seen.Object); len(left) != 1 || left[prefix+"/"+handledName] != `{"spec":{}}` {
		t.Errorf("left: %v", left)
	}
}

func TestWaitingHandlerDelaysNoOther(t *testing.T) {
	s := spec(Handler{ID: "slow", Causes: Create, Backoff: fixed(time.Minute)}, Handler{ID: "quick", Causes: Create})
	seen := Seen{Object: object(`{}`)}
	fail := func(id string) error {
		if id == "slow" {
			return errors.New("down")
		}
		return nil
	}
	wantCalls(t, run(t, s, &seen, noon, fail), "slow", "quick")
	p := plan(t, s, seen, noon.Add(59*time.Second))
	if sleep, ok := p.Step.(Sleep); !ok || !sleep.Until.Equal(noon.Add(time.Minute)) {
		t.Errorf("%#v, want to sleep until a minute later", p.Step)
	}
	wantCalls(t, run(t, s, &seen, noon.Add(time.Minute), fine), "slow")
	if p := plan(t, s, seen, noon); p.Cause != Noop {
		t.Errorf("%v in the end", p.Cause)
	}
}

func TestJudge(t *testing.T) {
	plain := errors.New("plain")
	soon := &RetryAfter{plain, 10 * time.Second}
	for _, test := range []struct {
		name    string
		h       Handler
		err     error
		retries int
		ran     time.Duration
		final   bool
		failed  bool
		delay   time.Duration
	}{
		{"success", Handler{}, nil, 0, 0, true, false, 0},
		{"an error is retried", Handler{Backoff: fixed(time.Minute)}, plain, 9, 0, false, true, time.Minute},
		{"unless it is to fail", Handler{OnError: Fail}, plain, 0, 0, true, true, 0},
		{"or to be ignored", Handler{OnError: Ignore}, plain, 0, 0, true, false, 0},
		{"a delay comes first", Handler{OnError: Fail, Backoff: fixed(time.Minute)}, soon, 0, 0, false, true,
			10 * time.Second},
		{"temporary waits for the backoff", Handler{OnError: Fail, Backoff: fixed(time.Minute)}, &Temporary{plain}, 0, 0,
			false, true, time.Minute},
		{"permanent too", Handler{OnError: Ignore}, &Permanent{plain}, 0, 0, true, true, 0},
		{"permanent in one with a delay", Handler{}, &RetryAfter{&Permanent{plain}, 1}, 0, 0, true, true, 0},
		{"a negative delay is none", Handler{}, &RetryAfter{plain, -5}, 0, 0, false, true, 0},
		{"the last of the calls", Handler{Retries: 3}, soon, 2, 0, true, true, 0},
		{"the last but one", Handler{Retries: 3}, soon, 1, 0, false, true, 10 * time.Second},
		{"the next call would be too late", Handler{Timeout: time.Minute}, soon, 0, 50 * time.Second, true, true, 0},
		{"or just in time", Handler{Timeout: time.Minute}, soon, 0, 49 * time.Second, false, true, 10 * time.Second},
		{"success is never too late", Handler{Timeout: time.Minute, Retries: 1}, nil, 5, time.Hour, true, false, 0},
	} {
		v := test.h.Judge(test.err, test.retries, test.ran)
		if v.Final != test.final || (v.Err != nil) != test.failed || v.Delay != test.delay {
			t.Errorf("%s: %+v", test.name, v)
		}
		if v.Err != nil && !errors.Is(v.Err, plain) {
			t.Errorf("%s: %v hides the cause", test.name, v.Err)
		}
	}
}

func TestTimeoutEndsBetweenProcesses(t *testing.T) {
	s := spec(Handler{ID: "a", Causes: Create, Timeout: time.Hour, Backoff: fixed(time.Minute)})
	seen := Seen{Object: object(`{}`)}
	wantCalls(t, run(t, s, &seen, noon, func(string) error { return errors.New("down") }), "a")
	seen.Listed = true // restarted, a day later
	wantCalls(t, run(t, s, &seen, noon.Add(24*time.Hour), fine))
	if p := plan(t, s, seen, noon.Add(24*time.Hour)); p.Cause != Noop {
		t.Errorf("%v, want it to be over", p.Cause)
	}
}

func TestResumeHandlersRunOnceInAProcess(t *testing.T) {
	s := spec(Handler{ID: "create", Causes: Create}, Handler{ID: "resume", Causes: Resume},
		Handler{ID: "also", Causes: Resume}, Handler{ID: "update", Causes: Update})
	seen := Seen{Object: object(`{"spec": {"size": 1}}`), Listed: true}
	wantCalls(t, run(t, s, &seen, noon, fine), "create")

	seen.Listed = true
	half := func(id string) error {
		if id == "also" {
			return &RetryAfter{errors.New("down"), time.Hour}
		}
		return nil
	}
	wantCalls(t, run(t, s, &seen, noon, half), "resume", "also")
	seen.Listed, seen.Begun = true, false // what was recorded is of another process
	wantCalls(t, run(t, s, &seen, noon, fine), "resume", "also")
	wantCalls(t, run(t, s, &seen, noon, fine))

	seen.Listed = true
	put(seen.Object, Path{"spec", "size"}, int64(2))
	wantCalls(t, run(t, s, &seen, noon, fine), "resume", "also", "update")
	if left := annotationsOf(seen.Object); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestOneFunctionForSeveralCausesRunsOnce(t *testing.T) {
	s := spec(Handler{ID: "sync", Causes: Resume}, Handler{ID: "sync", Causes: Update | Create})
	seen := Seen{Object: handled(t, s, object(`{"spec": {"size": 1}}`)), Listed: true}
	put(seen.Object, Path{"spec", "size"}, int64(2))
	wantCalls(t, run(t, s, &seen, noon, fine), "sync")
}

func TestFinalizers(t *testing.T) {
	matching, _ := labels.Parse("keep=yes")
	s := spec(Handler{ID: "create", Causes: Create}, Handler{ID: "end", Causes: Delete, Filter: Filter{Labels: matching}})
	const kept = `{"metadata": {"labels": {"keep": "yes"}, "finalizers": ["other"]}}`

	seen := Seen{Object: object(kept)}
	p := plan(t, s, seen, noon)
	if w, ok := p.Step.(Write); !ok || w.Edits.Finalizer != AddFinalizer || len(w.Edits.Annotations) > 0 {
		t.Fatalf("%#v, want nothing but the finalizer before the first handler", p.Step)
	}
	wantCalls(t, run(t, s, &seen, noon, fine), "create")
	if !s.HasFinalizer(seen.Object) {
		t.Error("the finalizer is gone")
	}

	put(seen.Object, Path{"metadata", "labels", "keep"}, "no")
	seen.RunsDaemon = true
	run(t, s, &seen, noon, fine)
	if !s.HasFinalizer(seen.Object) {
		t.Error("the finalizer went while a daemon was running")
	}
	seen.RunsDaemon = false
	run(t, s, &seen, noon, fine)
	if s.HasFinalizer(seen.Object) {
		t.Error("the finalizer stays where no handler asks for it")
	}

	put(seen.Object, Path{"metadata", "labels", "keep"}, "yes")
	run(t, s, &seen, noon, fine)
	put(seen.Object, Path{"metadata", "deletionTimestamp"}, "2026-03-01T12:00:00Z")
	seen.RunsDaemon = true
	wantCalls(t, run(t, s, &seen, noon, fine), "end")
	if p := plan(t, s, seen, noon); p.Step != (AwaitTasks{}) || !s.HasFinalizer(seen.Object) {
		t.Errorf("%#v, want to wait for the daemons", p.Step)
	}
	seen.RunsDaemon = false
	wantCalls(t, run(t, s, &seen, noon, fine))
	if s.HasFinalizer(seen.Object) {
		t.Error("the finalizer stays for ever")
	}
	if list, _ := lookup(seen.Object, Path{"metadata", "finalizers"}); len(list.([]any)) != 1 {
		t.Errorf("finalizers of others: %v", list)
	}
}

// An optional delete handler is called once while a finalizer keeps the object, ours or another; a mandatory one only
// while ours does. A resume handler that wants deletions needs none of ours either.
func TestDeletionsWithoutOurFinalizer(t *testing.T) {
	const ending = `{"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": [%s]}}`
	optional := Handler{ID: "optional", Causes: Delete, Optional: true}
	mandatory := Handler{ID: "mandatory", Causes: Delete}
	other := Handler{ID: "other", Causes: Delete, Optional: true,
		Filter: Filter{When: []func(map[string]any) bool{func(map[string]any) bool { return false }}}}
	for _, status := range []Path{nil, {"status", "operator"}} {
		for name, test := range map[string]struct {
			finalizers string
			handlers   []Handler
			listed     bool
			want       []string
		}{
			"held by another": {`"x"`, []Handler{optional}, false, []string{"optional"}},
			"held by nobody":  {``, []Handler{optional}, false, nil},
			"mandatory ones":  {`"x"`, []Handler{mandatory, optional, other}, false, []string{"optional"}},
			"held by both": {`"x", "` + finalizer + `"`, []Handler{mandatory, optional}, false,
				[]string{"mandatory", "optional"}},
			"none that applies": {`"x"`, []Handler{mandatory, other}, false, nil},
			"a resume handler": {`"x"`, []Handler{{ID: "resume", Causes: Resume, Deleting: true}}, true,
				[]string{"resume"}},
			"a resume handler, not now":  {`"x"`, []Handler{{ID: "resume", Causes: Resume, Deleting: true}}, false, nil},
			"a resume handler of others": {`"x"`, []Handler{{ID: "resume", Causes: Resume}}, true, nil},
		} {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				s := spec(test.handlers...)
				s.Status = status
				seen := Seen{Object: object(fmt.Sprintf(ending, test.finalizers)), Listed: test.listed}
				wantCalls(t, run(t, s, &seen, noon, fine), test.want...)
				wantCalls(t, run(t, s, &seen, noon, fine)) // also after the end, and in a new process
				seen.Listed = false
				wantCalls(t, run(t, s, &seen, noon.Add(time.Hour), fine))
				if len(test.want) == 0 && len(annotationsOf(seen.Object)) > 0 {
					t.Errorf("annotations of an object that is not handled: %v", annotationsOf(seen.Object))
				}
			})
		}
	}
	// Its failures are retried as others.
	s := spec(Handler{ID: "optional", Causes: Delete, Optional: true, Backoff: fixed(time.Minute)})
	seen := Seen{Object: object(fmt.Sprintf(ending, `"x"`))}
	wantCalls(t, run(t, s, &seen, noon, func(string) error { return errors.New("down") }), "optional")
	wantCalls(t, run(t, s, &seen, noon.Add(time.Hour), fine), "optional")
	wantCalls(t, run(t, s, &seen, noon.Add(2*time.Hour), fine))
}

// No delete handler is called while a timer runs.
func TestDeletionWaitsForTimers(t *testing.T) {
	s := spec(Handler{ID: "end", Causes: Delete})
	seen := Seen{Object: object(`{"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["` + finalizer +
		`"]}}`), RunsTimer: true}
	if p := plan(t, s, seen, noon); p.Step != (AwaitTasks{}) {
		t.Errorf("%#v while a timer runs", p.Step)
	}
	seen.RunsTimer = false
	wantCalls(t, run(t, s, &seen, noon, fine), "end")
}

func TestDeletionSupersedes(t *testing.T) {
	s := spec(Handler{ID: "sync", Causes: Create | Update | Delete})
	seen := Seen{Object: object(`{"spec": {"size": 1}}`)}
	wantCalls(t, run(t, s, &seen, noon, func(string) error { return &RetryAfter{errors.New("no"), time.Hour} }), "sync")
	put(seen.Object, Path{"metadata", "deletionTimestamp"}, "2026-03-01T12:00:00Z")
	wantCalls(t, run(t, s, &seen, noon, fine), "sync")
	if left := annotationsOf(seen.Object); s.HasFinalizer(seen.Object) || len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestUnselectedObjectsGetNoProgress(t *testing.T) {
	web, _ := labels.Parse("app=web")
	s := spec(Handler{ID: "a", Causes: Create | Update | Delete, Filter: Filter{Labels: web}})
	if p := plan(t, s, Seen{Object: object(`{"spec": {}}`)}, noon); p.Step != (Idle{}) {
		t.Errorf("%#v", p.Step)
	}
	onlyEnd := spec(Handler{ID: "end", Causes: Delete, Optional: true})
	if p := plan(t, onlyEnd, Seen{Object: object(`{"spec": {}}`)}, noon); p.Step != (Idle{}) {
		t.Errorf("%#v where only deletions count", p.Step)
	}
}

func TestFilters(t *testing.T) {
	parse := func(s string) labels.Selector {
		selector, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return selector
	}
	o := object(`{"metadata": {"labels": {"app": "web"}, "annotations": {"team": "x"}}, "spec": {"size": 3}}`)
	for name, test := range map[string]struct {
		filter Filter
		want   bool
	}{
		"none":              {Filter{}, true},
		"label":             {Filter{Labels: parse("app in (web, db)")}, true},
		"other label":       {Filter{Labels: parse("app=db")}, false},
		"absent label":      {Filter{Labels: parse("!tier")}, true},
		"annotation":        {Filter{Annotations: parse("team=x")}, true},
		"absent annotation": {Filter{Annotations: parse("owner")}, false},
		"field":             {Filter{Fields: []FieldFilter{{Path: Path{"spec", "size"}}}}, true},
		"absent field":      {Filter{Fields: []FieldFilter{{Path: Path{"spec", "color"}}}}, false},
		"value":             {Filter{Fields: []FieldFilter{{Path: Path{"spec", "size"}, Values: []any{1.0, 3.0}}}}, true},
		"other value":       {Filter{Fields: []FieldFilter{{Path: Path{"spec", "size"}, Values: []any{int64(1)}}}}, false},
		"no value":          {Filter{Fields: []FieldFilter{{Path: Path{"spec", "color"}, Values: []any{nil}}}}, true},
		"a value":           {Filter{Fields: []FieldFilter{{Path: Path{"spec", "size"}, Values: []any{nil}}}}, false},
		"old, of no update": {Filter{Fields: []FieldFilter{{Path: Path{"spec", "size"}, Values: []any{int64(1)},
			Side: Before}}}, true},
		"func": {Filter{When: []func(map[string]any) bool{func(map[string]any) bool { return false }}}, false},
	} {
		if got := test.filter.Matches(o); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// sized filters by spec.size.
func sized(side Side, values ...any) Filter {
	return Filter{Fields: []FieldFilter{{Path{"spec", "size"}, values, side}}}
}

func TestUpdatesOfFields(t *testing.T) {
	s := spec(
		Handler{ID: "size", Causes: Update, Field: Path{"spec", "size"}},
		Handler{ID: "was-or-is-1", Causes: Update, Filter: sized(Either, int64(1))},
		Handler{ID: "from-1", Causes: Update, Filter: sized(Before, int64(1))},
		Handler{ID: "to-1", Causes: Update, Filter: sized(After, int64(1))},
		Handler{ID: "from-2-to-3", Causes: Update, Filter: Filter{Fields: append(sized(Before, int64(2)).Fields,
			sized(After, int64(3)).Fields...)}},
		Handler{ID: "appears", Causes: Update, Filter: sized(Before, nil)},
		Handler{ID: "disappears", Causes: Update, Filter: sized(After, nil)},
		Handler{ID: "any", Causes: Update},
	)
	for _, test := range []struct {
		before, after string
		want          []string
	}{
		{`{"spec": {"size": 1}}`, `{"spec": {"size": 2}}`, []string{"size", "was-or-is-1", "from-1", "any"}},
		{`{"spec": {"size": 2}}`, `{"spec": {"size": 1}}`, []string{"size", "was-or-is-1", "to-1", "any"}},
		{`{"spec": {"size": 2}}`, `{"spec": {"size": 3}}`, []string{"size", "from-2-to-3", "any"}},
		{`{"spec": {"size": 1}}`, `{"spec": {"size": 1, "color": "red"}}`, []string{"any"}},
		{`{"spec": {"size": 1}}`, `{}`, []string{"size", "was-or-is-1", "from-1", "disappears", "any"}},
		{`{}`, `{"spec": {"size": 5}}`, []string{"size", "appears", "any"}},
	} {
		seen := Seen{Object: changed(t, s, test.before, test.after)}
		wantCalls(t, run(t, s, &seen, noon, fine), test.want...)
	}
	seen := Seen{Object: changed(t, s, `{"spec": {"size": 1, "x": 1}}`, `{"spec": {"size": 2, "x": 2}}`)}
	p := plan(t, s, seen, noon)
	if diff := p.DiffOf(s.Handlers[0]); len(diff) != 1 || diff[0].Old != int64(1) || diff[0].New != int64(2) {
		t.Errorf("the diff of the field: %v", diff)
	}
}

// TestChangesWhileHandlersRun is where kopf loses an update: the handler that has
// succeeded sees neither a later change nor that it was taken back.
func TestChangesWhileHandlersRun(t *testing.T) {
	s := spec(Handler{ID: "a", Causes: Create | Update}, Handler{ID: "b", Causes: Create | Update})
	seen := Seen{Object: object(`{"spec": {"size": 1}}`)}
	sizes := map[string][]any{}
	blocked := true
	outcome := func(id string) error {
		size, _ := lookup(seen.Object, Path{"spec", "size"})
		sizes[id] = append(sizes[id], size)
		if id == "b" && blocked {
			return &RetryAfter{errors.New("no"), time.Minute}
		}
		return nil
	}
	run(t, s, &seen, noon, outcome)
	put(seen.Object, Path{"spec", "size"}, int64(2))
	blocked = false
	run(t, s, &seen, noon.Add(time.Minute), outcome)
	put(seen.Object, Path{"spec", "size"}, int64(3))
	blocked = true
	run(t, s, &seen, noon.Add(time.Hour), outcome)
	put(seen.Object, Path{"spec", "size"}, int64(2)) // taken back
	blocked = false
	run(t, s, &seen, noon.Add(2*time.Hour), outcome)
	for id, saw := range sizes {
		if last := saw[len(saw)-1]; last != int64(2) {
			t.Errorf("%s saw %v in the end", id, saw)
		}
	}
	if want := []any{int64(1), int64(2), int64(3), int64(2)}; !slices.Equal(sizes["a"], want) {
		t.Errorf("a saw %v, want %v", sizes["a"], want)
	}
}
