package operator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// failing declares a handler that fails a number of times.
func failing(op *Operator, j *journal, failures int, options ...HandlerOption) {
	OnCreate(op, func(_ context.Context, r *thing) error {
		if j.add("retry %d", r.Retry); r.Retry < failures {
			return errors.New("not yet")
		}
		return nil
	}, append(options, ID("make"))...)
}

// gaps returns the times between the patches of an object.
func gaps(w *fakeServer, name string) (gaps []time.Duration) {
	patches := w.patchesOf(name)
	for n := 1; n < len(patches); n++ {
		gaps = append(gaps, patches[n].at.Sub(patches[n-1].at))
	}
	return gaps
}

// recordOf returns the stored progress of a handler.
func recordOf(t *testing.T, w *fakeServer, name, id string) (r cycle.Record) {
	t.Helper()
	text, _ := annotationOf(w.at(name), id).(string)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("progress %q: %v", text, err)
	}
	return r
}

func TestFailedHandlersAreRetriedSoon(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		failing(op, j, 7)
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(time.Minute)
		j.want(t, "0 retry 0", "0.005 retry 1", "0.015 retry 2", "0.035 retry 3", "0.075 retry 4", "0.155 retry 5",
			"0.315 retry 6", "0.635 retry 7")
		if patches := w.patchesOf("one"); len(patches) != 2 || !strings.Contains(patches[0].body, "not yet") {
			t.Errorf("want the first failure and the success to be written, got %v", patches)
		}
		if left := annotationOf(w.at("one"), "make"); left != nil {
			t.Errorf("left on the object: %v", left)
		}
		_ = r.end()
	})
}

func TestRetriesGrowToAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		failing(op, j, 1000)
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(10 * time.Minute)
		_ = r.end()
		between := gaps(w, "one")
		if len(between) < 10 || between[len(between)-1] != time.Minute {
			t.Fatalf("patches after %v, want the last after a minute", between)
		}
		if least := slices.Min(between); least < time.Second {
			t.Errorf("two patches within %v: %v", least, between)
		}
	})
}

// A fixed backoff or a RetryAfter can be short for ever.
func TestShortDelaysAreWrittenOnceASecond(t *testing.T) {
	for name, option := range map[string]HandlerOption{"fixed": Backoff(10 * time.Millisecond), "none": Backoff(0)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
				op := New("widgets.example.com")
				calls := 0
				OnCreate(op, func(context.Context, *thing) error {
					calls++
					time.Sleep(time.Millisecond)
					return errors.New("no")
				}, ID("make"), option)
				w.create("one", spec(1))
				r := startIn(t, w, op)
				time.Sleep(10 * time.Second)
				_ = r.end()
				if n := len(w.patchesOf("one")); n < 9 || n > 11 || calls < 500 {
					t.Errorf("%d patches for %d calls in 10 s", n, calls)
				}
				if stored := recordOf(t, w, "one", "make"); stored.Retries < calls*8/10 {
					t.Errorf("%d of %d calls are stored", stored.Retries, calls)
				}
			})
		})
	}
}

func TestKopfsFixedDelay(t *testing.T) {
	for name, options := range map[string]struct {
		operator []Option
		handler  []HandlerOption
		want     []string
	}{
		"of the operator": {[]Option{DefaultBackoff(time.Minute)}, nil, []string{"0 retry 0", "60 retry 1", "120 retry 2"}},
		"of a handler":    {nil, []HandlerOption{Backoff(time.Minute)}, []string{"0 retry 0", "60 retry 1", "120 retry 2"}},
		"of both": {[]Option{DefaultBackoff(time.Minute)}, []HandlerOption{Backoff(time.Second)},
			[]string{"0 retry 0", "1 retry 1", "2 retry 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
				op := New("widgets.example.com", options.operator...)
				failing(op, j, 2, options.handler...)
				w.create("one", spec(1))
				r := startIn(t, w, op)
				time.Sleep(time.Hour)
				j.want(t, options.want...)
				_ = r.end()
			})
		})
	}
}

// A new process continues with the stored count.
func TestRetriesContinueAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		failing(op, j, 11)
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(100 * time.Millisecond) // after the fifth call
		if stored := recordOf(t, w, "one", "make"); stored.Retries != 1 ||
			!stored.Delayed.Equal(j.start.Add(5*time.Millisecond).UTC()) {
			t.Errorf("stored %+v", stored)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
		op = New("widgets.example.com")
		failing(op, j, 11)
		r = startIn(t, w, op)
		time.Sleep(1400 * time.Millisecond) // after the failure that is followed by a long delay
		if stored := recordOf(t, w, "one", "make"); stored.Retries != 9 {
			t.Errorf("stored %+v, want 9 retries", stored)
		}
		time.Sleep(time.Hour)
		j.want(t, "0 retry 0", "0.005 retry 1", "0.015 retry 2", "0.035 retry 3", "0.075 retry 4",
			"0.1 retry 1", "0.11 retry 2", "0.13 retry 3", "0.17 retry 4", "0.25 retry 5", "0.41 retry 6", "0.73 retry 7",
			"1.37 retry 8",
			"2.65 retry 9", "5.21 retry 10", "10.33 retry 11")
		if left := annotationOf(w.at("one"), "make"); left != nil {
			t.Errorf("left on the object: %v", left)
		}
		_ = r.end()
	})
}

// The changes of a failing handler are sent after each call.
func TestPatchesOfFailingHandlersAreSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(_ context.Context, r *thing) error {
			j.add("retry %d", r.Retry)
			if r.Retry == 3 {
				return nil
			}
			r.Patch.Status("phase", "Failing") // the same each time: the object does not change
			return errors.New("no")
		}, ID("make"))
		w.create("one", spec(1))
		r := startIn(t, w, op)
		time.Sleep(time.Minute)
		j.want(t, "0 retry 0", "0.005 retry 1", "0.015 retry 2", "0.035 retry 3")
		if status := w.at("one")["status"].(map[string]any); status["phase"] != "Failing" {
			t.Errorf("status %v", status)
		}
		_ = r.end()
	})
}

// A 404 of a load balancer, or of a server that does not serve the type yet, is no deletion: the handler's result is
// written again. Nor is one that names the object: a resource that has lost its status subresource answers so.
func TestNotFoundIsNoDeletion(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for name, missing := range map[string]error{
		"a load balancer": apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", resource, "one",
			"404 page not found", 0, true),
		"the subresource": apierrors.NewNotFound(resource, "one"),
		"410":             apierrors.NewGenericServerResponse(http.StatusGone, "patch", resource, "one", "", 0, true),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
				op := New("widgets.example.com")
				failing(op, j, 0)
				w.create("one", spec(1))
				refused := 0
				w.setFault(func(write.Request, string) (error, bool) {
					if refused++; refused <= 2 {
						return missing, false
					}
					return nil, false
				})
				r := startIn(t, w, op)
				time.Sleep(time.Minute)
				if stored := annotationOf(w.at("one"), "last-handled-configuration"); stored == nil {
					t.Errorf("the result of the handler is not written: %v", w.patchesOf("one"))
				}
				j.want(t, "0 retry 0")
				_ = r.end()
			})
		})
	}
}
