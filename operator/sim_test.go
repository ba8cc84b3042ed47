package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/operator/internal/write"
)

type thing = Request[*Thing]

// journal records calls with their times, in seconds since the start of a bubble.
type journal struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func newJournal() *journal { return &journal{start: time.Now()} }

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%g ", time.Since(j.start).Seconds())+fmt.Sprintf(format, args...))
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(j.lines, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// bubble runs a test in a synctest bubble with a fakeServer.
func bubble(t *testing.T, test func(t *testing.T, w *fakeServer, j *journal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFakeServer(), newJournal()) })
}

func TestRejectedPatchesAreThrottledAndReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(_ context.Context, r *thing) error {
			if r.Object.Name == "bad" {
				r.Patch.Set("spec.size", 9999)
			}
			j.add("%s", r.Object.Name)
			return nil
		})
		w.create("bad", spec(1))
		r := startIn(t, w, op)
		time.Sleep(11500 * time.Millisecond)
		w.create("good", spec(1))
		time.Sleep(90 * time.Second)
		want := []string{"0 bad", "1 bad", "2 bad", "4 bad", "7 bad", "11.5 good", "12 bad", "20 bad", "33 bad", "54 bad",
			"88 bad"}
		j.want(t, want...)
		var rejected, other int
		for _, p := range w.patchesOf("bad") {
			if p.code == http.StatusUnprocessableEntity {
				rejected++
			} else {
				other++
			}
		}
		if rejected != len(want)-1 || other != 1 {
			t.Errorf("%d patches rejected and %d others, want %d and the one that reports", rejected, other, len(want)-1)
		}
		if !r.engine.hasCondition(w.at("bad")) {
			t.Error("the object has no condition")
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// A handler may change its request in place: the next handler sees the server's state.
func TestHandlersGetCopiesOfDifferences(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		for _, id := range []string{"first", "second"} {
			OnUpdate(op, func(ctx context.Context, r *thing) error {
				tags := r.Diff[0].New.([]any)
				if tags[0] != "a" { // it would never end
					t.Errorf("%s gets %v", id, tags)
					<-ctx.Done()
				}
				j.add("%s %v", id, tags)
				tags[0] = "changed by " + id
				return nil
			}, ID(id))
		}
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(time.Second)
		w.change("one", "tags", []any{"a"})
		time.Sleep(time.Second)
		j.want(t, "1 first [a]", "1 second [a]")
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// wordyServer rejects patches with a new message each time.
type wordyServer struct {
	mu    sync.Mutex
	field string // that is at fault; "" for none
	count int
}

// reject sets the field that is at fault.
func (v *wordyServer) reject(field string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.field = field
}

func (v *wordyServer) fault(r write.Request, _ string) (error, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.field == "" || !strings.Contains(string(r.Body), `"spec"`) {
		return nil, false
	}
	v.count++
	err := answer(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid).(*apierrors.StatusError)
	err.ErrStatus.Message = fmt.Sprintf("the admission of try %d says no", v.count)
	err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid,
		Field: v.field, Message: err.ErrStatus.Message}}}
	return err, false
}

// reports returns how often a rejected patch was reported by an Event, and by a condition.
func (r *runningOperator) reports(w *fakeServer, name string) (events, notes int) {
	for len(r.engine.recorder.outgoing) > 0 {
		if e := <-r.engine.recorder.outgoing; e.Reason == "PatchRejected" {
			events++
		}
	}
	for _, p := range w.patchesOf(name) {
		if strings.Contains(p.body, `/handled-condition":"`) {
			notes++
		}
	}
	return events, notes
}

func TestRejectionIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		handler := func(_ context.Context, r *thing) error {
			r.Patch.Set("spec.size", r.Object.Spec.Size+1)
			return nil
		}
		OnCreate(op, handler)
		OnUpdate(op, handler, Field("spec.color"))
		server := &wordyServer{field: "spec.size"}
		w.fault = server.fault
		w.create("one", spec(1))
		r := startIn(t, w, op)
		var events int
		for _, step := range []struct {
			what string
			do   func()
			want int // so far
		}{
			{"the same in other words", func() { time.Sleep(30 * time.Second) }, 1},
			{"another field", func() { server.reject("spec.color"); time.Sleep(30 * time.Second) }, 2},
			{"it is over", func() { server.reject(""); time.Sleep(time.Minute) }, 2},
			{"it begins again", func() {
				server.reject("spec.color")
				w.change("one", "color", "red")
				time.Sleep(30 * time.Second)
			}, 3},
		} {
			step.do()
			synctest.Wait()
			more, notes := r.reports(w, "one")
			if events += more; events != step.want || notes != step.want {
				t.Errorf("%s: %d Events and %d notes, want %d", step.what, events, notes, step.want)
			}
			if there := r.engine.hasCondition(w.at("one")); there != (server.field != "") {
				t.Errorf("%s: the note is there: %v", step.what, there)
			}
		}
		if server.count < 10 {
			t.Errorf("%d tries", server.count)
		}
		_ = r.end()
	})
}

// A rejected change of an event handler does not delay the other handlers, and its accepted
// change does not clear their condition.
func TestRejectionsOfEventHandlersAreSeparate(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnEvent(op, func(_ context.Context, r *thing) error {
			r.Patch.Set("spec.seen", "yes")
			return nil
		})
		OnUpdate(op, func(_ context.Context, r *thing) error {
			if r.Object.Spec.Size == 7 {
				r.Patch.Set("spec.size", 9999)
			}
			return nil
		})
		server := &wordyServer{field: "spec.seen"}
		w.fault = server.fault
		w.create("one", spec(1))
		r := startIn(t, w, op)
		var events int
		for _, step := range []struct {
			what          string
			do            func()
			events, notes int // so far
		}{
			{"the events'", func() {
				for n := range 5 {
					w.change("one", "size", int64(n))
					time.Sleep(10 * time.Second)
				}
			}, 1, 0},
			{"the update's", func() {
				server.reject("")
				w.change("one", "size", int64(7))
				time.Sleep(30 * time.Second)
				w.change("one", "color", "red")
				time.Sleep(30 * time.Second)
			}, 2, 1},
		} {
			step.do()
			synctest.Wait()
			more, notes := r.reports(w, "one")
			if events += more; events != step.events || notes != step.notes {
				t.Errorf("%s: %d Events and %d notes, want %d and %d", step.what, events, notes, step.events, step.notes)
			}
		}
		if o := w.at("one"); !r.engine.hasCondition(o) || o["spec"].(map[string]any)["seen"] != "yes" {
			t.Errorf("want the condition, and the changes of the event handler: %v", o)
		}
		_ = r.end()
	})
}

func TestConditionIsRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(_ context.Context, r *thing) error {
			r.Patch.Set("spec.size", r.Object.Spec.Size*100)
			return nil
		})
		w.create("one", spec(99))
		r := startIn(t, w, op)
		synctest.Wait()
		if !r.engine.hasCondition(w.at("one")) {
			t.Fatal("no condition")
		}
		w.change("one", "size", int64(2))
		time.Sleep(time.Second)
		synctest.Wait()
		if o := w.at("one"); r.engine.hasCondition(o) || o["spec"].(map[string]any)["size"] != int64(200) {
			t.Errorf("%v", o)
		}
		_ = r.end()
	})
}

func TestPanicsOutsideOfHandlersAreThrottled(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com", Workers(1))
		OnCreate(op, func(_ context.Context, r *thing) error {
			j.add("%s", r.Object.Name)
			return nil
		}, When(func(o *Thing) bool {
			if o.Name == "bad" {
				j.add("filter")
				panic("no")
			}
			return true
		}))
		w.create("bad", spec(1))
		w.create("good", spec(1))
		r := startIn(t, w, op)
		time.Sleep(4500 * time.Millisecond)
		j.want(t, "0 filter", "0 good", "1 filter", "2 filter", "4 filter")
		_ = r.end()
	})
}

func TestHandlersWaitForOwnWrites(t *testing.T) {
	for _, test := range []struct {
		lag  time.Duration
		want []string
	}{
		{2 * time.Second, []string{"2 first", "4 second"}},
		{20 * time.Second, []string{"20 first", "25 second"}}, // it asks the server after 5 s
	} {
		bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
			w.lag = func() time.Duration { return test.lag }
			op := New("widgets.example.com")
			for _, name := range []string{"first", "second"} {
				OnCreate(op, func(_ context.Context, r *thing) error {
					j.add("%s", name)
					return nil
				}, ID(name))
			}
			r := startIn(t, w, op)
			synctest.Wait()
			w.create("one", spec(1))
			time.Sleep(test.lag + 5*time.Second)
			synctest.Wait()
			j.want(t, test.want...)
			_ = r.end()
		})
	}
}

// If the server no longer has an object, the operator waits for its deletion event.
func TestObjectDeletedBeforeItsEvent(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		w.lag = func() time.Duration { return 20 * time.Second }
		op := New("widgets.example.com")
		OnCreate(op, func(context.Context, *thing) error {
			j.add("create")
			return nil
		})
		r := startIn(t, w, op)
		synctest.Wait()
		w.create("one", spec(1))
		time.Sleep(21 * time.Second)
		w.delete("one")
		time.Sleep(time.Minute)
		j.want(t, "20 create")
		if turns := value(t, op, "workqueue_adds_total"); turns > 10 { // one every five seconds in twenty, and few others
			t.Errorf("%v turns", turns)
		}
		_ = r.end()
	})
}

func TestFailedPatchesAreSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		lost bool
	}{
		"unreachable":                {errors.New("connection refused"), false},
		"an error after it was done": {errors.New("connection reset"), true},
		"internal error":             {answer(http.StatusInternalServerError, "InternalError"), false},
		"credentials":                {answer(http.StatusUnauthorized, "Unauthorized"), false},
	} {
		bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
			op := New("widgets.example.com")
			OnCreate(op, func(_ context.Context, r *thing) error {
				j.add("called")
				r.Patch.Status("phase", "Ready")
				return nil
			})
			failures := 3
			w.fault = func(write.Request, string) (error, bool) {
				if failures--; failures >= 0 {
					return test.err, test.lost
				}
				return nil, false
			}
			w.create("one", spec(1))
			r := startIn(t, w, op)
			time.Sleep(10 * time.Second)
			j.want(t, "0 called")
			if o := w.at("one"); o["status"] == nil || annotationOf(o, "last-handled-configuration") == nil {
				t.Errorf("%s: %v", name, o)
			}
			if err := r.end(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestConflictsAreResolvedOnANewerState(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(_ context.Context, r *thing) error {
			j.add("create %v", r.Object.Finalizers)
			return nil
		})
		OnDelete(op, func(context.Context, *thing) error {
			j.add("delete")
			return nil
		})
		once := true
		w.fault = func(r write.Request, name string) (error, bool) {
			if once && r.Type == types.JSONPatchType {
				once = false
				w.change(name, "size", int64(7)) // somebody is faster
			}
			return nil, false
		}
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(10 * time.Millisecond)
		j.want(t, "0 create [keepwatch.io/finalizer]")
		codes := []int{}
		for _, p := range w.patchesOf("one") {
			codes = append(codes, p.code)
		}
		if want := []int{422, 200, 200}; !reflect.DeepEqual(codes, want) {
			t.Errorf("answers %v, want %v", codes, want)
		}
		w.setFault(func(r write.Request, name string) (error, bool) {
			if r.Type == types.JSONPatchType {
				return answer(http.StatusConflict, "Conflict"), false
			}
			return nil, false
		})
		w.delete("one")
		time.Sleep(1500 * time.Millisecond)
		w.setFault(reliable)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.at("one") != nil {
			t.Error("the object is still there")
		}
		if got := strings.Count(strings.Join(j.lines, ";"), "delete"); got != 1 {
			t.Errorf("deleted %d times", got)
		}
		if len(r.engine.objects) != 0 {
			t.Errorf("%d objects are remembered", len(r.engine.objects))
		}
		_ = r.end()
	})
}

func TestObjectDeletedDuringHandler(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(_ context.Context, r *thing) error {
			j.add("create")
			w.delete("one") // while it is handled; there is no finalizer
			return errors.New("oops")
		})
		OnEvent(op, func(_ context.Context, r *thing) error {
			j.add("event %q", r.WatchEvent)
			return errors.New("ignored")
		})
		r := startIn(t, w, op)
		synctest.Wait()
		w.create("one", spec(1))
		time.Sleep(time.Hour)
		j.want(t, `0 event "ADDED"`, "0 create", `0 event "DELETED"`)
		if len(r.engine.objects) != 0 {
			t.Error("the object is remembered")
		}
		_ = r.end()
	})
}

func TestTimers(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		Timer(op, 10*time.Second, func(context.Context, *thing) error {
			j.add("plain")
			time.Sleep(3 * time.Second)
			return nil
		}, ID("plain"))
		Timer(op, 10*time.Second, func(context.Context, *thing) error {
			j.add("sharp")
			time.Sleep(3 * time.Second)
			return nil
		}, ID("sharp"), Sharp(), InitialDelay(500*time.Millisecond))
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(25 * time.Second)
		j.want(t, "0 plain", "0.5 sharp", "10.5 sharp", "13 plain", "20.5 sharp")
		w.delete("one")
		time.Sleep(time.Hour)
		j.want(t, "0 plain", "0.5 sharp", "10.5 sharp", "13 plain", "20.5 sharp")
		if len(r.engine.objects) != 0 {
			t.Error("the object is remembered")
		}
		_ = r.end()
	})
}

func TestErrorsOfTimersOverrideTheirSchedule(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		calls := 0
		Timer(op, 10*time.Second, func(_ context.Context, r *thing) error {
			j.add("retry %d", r.Retry)
			switch calls++; calls {
			case 1, 2:
				return errors.New("no")
			case 3:
				return RetryAfter(errors.New("no"), time.Second)
			case 6:
				return Permanent(errors.New("no"))
			}
			return nil
		}, Backoff(5*time.Second))
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(time.Hour)
		j.want(t, "0 retry 0", "5 retry 1", "10 retry 2", "11 retry 3", "21 retry 0", "31 retry 0")
		_ = r.end()
	})
}

func TestIdleTimersWaitUntilNothingChanges(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		Timer(op, 4*time.Second, func(_ context.Context, r *thing) error {
			j.add("size %d", r.Object.Spec.Size)
			r.Patch.Status("phase", "Idle") // is no change
			return nil
		}, Idle(10*time.Second))
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(5 * time.Second)
		w.change("one", "size", int64(2))
		time.Sleep(15 * time.Second) // 20
		w.change("one", "size", int64(3))
		time.Sleep(15 * time.Second)
		j.want(t, "15 size 2", "19 size 2", "30 size 3", "34 size 3")
		_ = r.end()
	})
}

func TestDaemons(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		Daemon(op, func(ctx context.Context, r *thing) error {
			j.add("start %v", r.Object.Finalizers)
			<-r.Stopping()
			j.add("warned")
			<-ctx.Done()
			j.add("cancelled: %v", context.Cause(ctx))
			return nil
		}, StopGrace(5*time.Second, time.Minute), When(func(o *Thing) bool { return o.Spec.Size > 0 }))
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(time.Second)
		w.change("one", "size", int64(0))
		time.Sleep(time.Second)
		w.change("one", "size", int64(1)) // it stops first
		time.Sleep(8 * time.Second)
		w.delete("one")
		time.Sleep(time.Minute)
		j.want(t,
			"0 start [keepwatch.io/finalizer]", "1 warned", "6 cancelled: the object is deleted or no longer passes the filter",
			"6 start [keepwatch.io/finalizer]", "10 warned",
			"15 cancelled: the object is deleted or no longer passes the filter")
		if w.at("one") != nil || len(r.engine.objects) != 0 {
			t.Error("the object is still there, or remembered")
		}
		_ = r.end()
	})
}

func TestDaemonThatDoesNotStopIsAbandoned(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com", ShutdownGrace(time.Second))
		release := make(chan struct{})
		Daemon(op, func(ctx context.Context, r *thing) error {
			<-release
			return nil
		}, ID("mule"), StopGrace(time.Second, 10*time.Second))
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(time.Second)
		w.delete("one")
		time.Sleep(10900 * time.Millisecond)
		synctest.Wait()
		if w.at("one") == nil {
			t.Error("the object did not wait for the daemon")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if w.at("one") != nil {
			t.Error("the object waits for ever")
		}
		err := r.end()
		if err == nil || !strings.Contains(err.Error(), "mule of default/one") {
			t.Errorf("stopped with %v; want what does not end", err)
		}
		close(release)
		synctest.Wait()
	})
}

func TestCrashingDaemonsAreRestartedSlowly(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		Daemon(op, func(_ context.Context, r *thing) error {
			j.add("start %d", r.Retry)
			if r.Retry == 5 {
				time.Sleep(time.Hour)
			}
			if r.Retry == 7 {
				return nil // it has ended
			}
			panic("at the disco")
		})
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(24 * time.Hour)
		w.change("one", "size", int64(2))
		time.Sleep(time.Hour)
		j.want(t, "0 start 0", "1 start 1", "2 start 2", "4 start 3", "7 start 4", "12 start 5", "3613 start 6",
			"3614 start 7")
		_ = r.end()
	})
}

func TestStopGrantsHandlersGrace(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com", ShutdownGrace(10*time.Second))
		OnCreate(op, func(ctx context.Context, r *thing) error {
			if r.Object.Name == "quick" {
				time.Sleep(5 * time.Second)
				return nil
			}
			<-ctx.Done()
			j.add("%s ends: %v", r.Object.Name, context.Cause(ctx))
			return ctx.Err()
		}, Retries(1))
		w.create("quick", spec(1))
		w.create("slow", spec(1))
		r := startIn(t, w, op)
		time.Sleep(time.Second)
		r.stop(nil)
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		j.want(t, "11 slow ends: the operator stops")
		if len(w.patchesOf("quick")) != 1 || len(w.patchesOf("slow")) != 0 {
			t.Error("want the success to be written, and nothing of what was cut")
		}
	})
}

func TestDeadWorkerIsFatal(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(context.Context, *thing) error {
			runtime.Goexit()
			return nil
		})
		w.create("one", spec(1))
		r := startIn(t, w, op)
		err := <-r.ended
		if err == nil || !strings.Contains(err.Error(), "a worker of widgets.example.com ended") {
			t.Errorf("ended with %v", err)
		}
	})
}

// endingSource is a source that ends without a stop and without an error.
type endingSource struct{ *fakeServer }

func (endingSource) run(context.Context, func(change), func()) error { return nil }

func TestInvariantViolationIsFatal(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(context.Context, *thing) error { return nil })
		r := startWith(t, endingSource{w}, op, w)
		if err := <-r.ended; !errors.Is(err, errInvariantViolated) || !strings.Contains(err.Error(), "widgets.example.com") {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestUserChangesComeBeforeTheFirstList(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com", Workers(1))
		OnCreate(op, func(_ context.Context, r *thing) error {
			j.add("%s", r.Object.Name)
			time.Sleep(time.Second)
			return nil
		})
		for i := range 3 {
			w.create(fmt.Sprintf("old-%d", i), spec(1))
		}
		r := startIn(t, w, op)
		time.Sleep(500 * time.Millisecond)
		w.create("new", spec(1))
		time.Sleep(time.Minute)
		j.want(t, "0 old-0", "1 new", "2 old-1", "3 old-2")
		_ = r.end()
	})
}

func TestOneWorkerPerObject(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com", Workers(3))
		var mu sync.Mutex
		busy, most := map[string]bool{}, 0
		work := func(_ context.Context, r *thing) error {
			mu.Lock()
			if busy[r.Object.Name] {
				t.Error("two handlers of an object at a time")
			}
			busy[r.Object.Name] = true
			most = max(most, len(busy))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			delete(busy, r.Object.Name)
			mu.Unlock()
			return nil
		}
		OnCreate(op, work, ID("create"))
		OnUpdate(op, work, ID("update"))
		OnEvent(op, work, ID("event"))
		r := startIn(t, w, op)
		synctest.Wait()
		for i := range 8 {
			w.create(fmt.Sprint("w", i), spec(1))
		}
		for i := range 20 {
			time.Sleep(300 * time.Millisecond)
			w.change(fmt.Sprint("w", i%8), "size", int64(i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if most != 3 {
			t.Errorf("%d at a time, want 3", most)
		}
		_ = r.end()
	})
}

func TestIndexes(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		bySize := Index(op, func(o *Thing) map[int]string {
			if o.Name == "bad" {
				panic("no")
			}
			return map[int]string{o.Spec.Size: o.Name}
		}, When(func(o *Thing) bool { return o.Spec.Size > 0 }))
		OnEvent(op, func(_ context.Context, r *thing) error {
			j.add("%v %v", bySize.Get(1), bySize.Get(2))
			return nil
		})
		for _, name := range []string{"b", "a", "bad"} {
			w.create(name, spec(1))
		}
		r := startIn(t, w, op)
		synctest.Wait()
		w.change("a", "size", int64(2))
		synctest.Wait()
		w.change("b", "size", int64(0))
		synctest.Wait()
		w.delete("a")
		j.want(t, "0 [a b] []", "0 [a b] []", "0 [a b] []", "0 [b] [a]", "0 [] [a]", "0 [] []")
		if len(bySize.Keys()) != 0 {
			t.Errorf("keys %v", bySize.Keys())
		}
		_ = r.end()
	})
}

// The cause of the end can give handlers less time than ShutdownGrace.
func TestStopWithinShortensTheGrace(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com", ShutdownGrace(time.Minute))
		release := make(chan struct{})
		OnCreate(op, func(ctx context.Context, r *thing) error {
			<-ctx.Done()
			j.add("cancelled: %v", context.Cause(ctx))
			<-release
			return nil
		}, ID("stubborn"))
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(time.Second)
		r.stop(StopWithin(errors.New("the lease was lost"), 5*time.Second))
		err := <-r.ended
		j.add("returned")
		if err == nil || !strings.Contains(err.Error(), "stubborn of default/one") {
			t.Errorf("Run returns %v", err)
		}
		j.want(t, "3.5 cancelled: the operator stops", "6 returned")
		r.cancelHandlers(nil)
		close(release)
		synctest.Wait()
	})
}

// stalled is a source that cannot follow.
type stalled struct{ *fakeServer }

func (stalled) healthy(time.Duration) error { return errors.New("STALLED for 3m0s") }

func TestHealthyReturnsTheSourcesFailure(t *testing.T) {
	op := New("widgets.example.com")
	if err := op.Healthy(); err != nil {
		t.Errorf("before it runs: %v", err)
	}
	op.running.Store(&engine{Operator: op, source: stalled{}})
	if err := op.Healthy(); err == nil || err.Error() != "STALLED for 3m0s" {
		t.Errorf("healthy: %v", err)
	}
}
