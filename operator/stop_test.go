package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// hanging is a server that does not answer patches of some objects until their requests end.
type hanging struct {
	*fakeServer
	names []string
	j     *journal
}

func (h hanging) patch(ctx context.Context, state map[string]any, r write.Request) (*unstructured.Unstructured, error) {
	if !slices.Contains(h.names, text(state, "name")) {
		return h.fakeServer.patch(ctx, state, r)
	}
	<-ctx.Done()
	h.j.add("the patch of %s ends: %v", text(state, "name"), context.Cause(ctx))
	return nil, ctx.Err()
}

// A write that the server does not answer ends with Run, whose error names its object.
func TestWritesEndWithRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(context.Context, *thing) error { return nil })
		Timer(op, time.Hour, func(_ context.Context, r *thing) error {
			r.Patch.Label("beat", "yes")
			return nil
		}, ID("beat"), When(func(o *Thing) bool { return o.Name == "timed" }))
		for _, name := range []string{"one", "other", "timed"} {
			w.create(name, spec(1))
		}
		r := startWith(t, w, op, hanging{w, []string{"one", "timed"}, j})
		time.Sleep(time.Second)
		r.stop(StopWithin(errors.New("the lease was lost"), 5*time.Second))
		err := <-r.ended
		want := "the operator has not stopped: requests were not answered: default/one, default/timed"
		if !errors.Is(err, ErrNotStopped) || err.Error() != want {
			t.Errorf("Run returns %v\nwant %s", err, want)
		}
		synctest.Wait()
		slices.Sort(j.lines)
		j.want(t, "6 the patch of one ends: the operator stops", "6 the patch of timed ends: the operator stops",
			"6 the patch of timed ends: the operator stops")
	})
}

// What a handler does that returns after Run has no effect, and no further handler is called.
func TestNothingIsWrittenAfterRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com", ShutdownGrace(time.Second))
		release := make(chan struct{})
		ignoring := func(_ context.Context, r *thing) error {
			<-release
			r.Patch.Label("late", "yes")
			if r.Stopping() != nil {
				if err := r.Apply(); !errors.Is(err, ErrStopped) {
					t.Errorf("Apply returns %v", err)
				}
			}
			j.add("%s returns", r.Object.Name)
			return nil
		}
		is := func(name string) HandlerOption { return When(func(o *Thing) bool { return o.Name == name }) }
		OnCreate(op, ignoring, ID("create"), is("created"))
		OnCreate(op, func(context.Context, *thing) error {
			j.add("another handler is called")
			return nil
		}, ID("second"), When(func(o *Thing) bool {
			if o.Name == "filtered" {
				<-release
			}
			return true
		}), is("filtered"))
		OnEvent(op, ignoring, ID("event"), is("seen"))
		OnEvent(op, func(context.Context, *thing) error {
			j.add("another handler of the event is called")
			return nil
		}, ID("next"), is("seen"))
		Daemon(op, ignoring, ID("daemon"), is("daemon"))
		for _, name := range []string{"created", "seen", "daemon", "filtered"} {
			w.create(name, spec(1))
		}
		r := startIn(t, w, op)
		time.Sleep(time.Second)
		synctest.Wait()
		w.mu.Lock()
		w.patches = nil
		w.mu.Unlock()
		if err := r.end(); !errors.Is(err, ErrNotStopped) {
			t.Errorf("Run returns %v", err)
		}
		close(release)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.patches) > 0 {
			t.Errorf("patches after Run has returned: %v", w.patches)
		}
		slices.Sort(j.lines)
		j.want(t, "7 created returns", "7 daemon returns", "7 seen returns")
	})
}

// endless is a source that does not end with its context.
type endless struct {
	*fakeServer
	release chan struct{}
}

func (s endless) run(ctx context.Context, deliver func(change), listed func()) error {
	err := s.fakeServer.run(ctx, deliver, listed)
	<-s.release
	return err
}

// An informer that does not end is named, like the functions that nothing counts.
func TestInformerThatDoesNotEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, _ *journal) {
		op := New("widgets.example.com")
		OnCreate(op, func(context.Context, *thing) error { return nil })
		release := make(chan struct{})
		err := startWith(t, endless{w, release}, op, w).end()
		const want = "the operator has not stopped: a filter or an index function did not return, or the informer did not end"
		if err == nil || err.Error() != want {
			t.Errorf("Run returns %v", err)
		}
		close(release)
		synctest.Wait()
	})
}

// A stop while OnStart waits is a stop like any other.
func TestStopDuringOnStart(t *testing.T) {
	for name, test := range map[string]struct {
		start func(context.Context, *rest.Config) error
		stop  error
		want  string
		after time.Duration
	}{
		"it returns its context's error": {
			start: func(ctx context.Context, _ *rest.Config) error { <-ctx.Done(); return ctx.Err() },
		},
		"it returns another error": {
			start: func(ctx context.Context, _ *rest.Config) error { <-ctx.Done(); return errors.New("no cache") },
		},
		"it ignores its context": {
			start: func(context.Context, *rest.Config) error { time.Sleep(time.Hour); return nil },
			want:  "operator of widgets.example.com: OnStart: the operator has not stopped: it did not return",
			after: 25 * time.Second,
		},
		"it ignores its context after a lost election": {
			start: func(context.Context, *rest.Config) error { time.Sleep(time.Hour); return nil },
			stop:  StopWithin(errors.New("the lease was lost"), 5*time.Second),
			want:  "operator of widgets.example.com: OnStart: the operator has not stopped: it did not return",
			after: 5 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				op := New("widgets.example.com")
				OnCreate(op, func(context.Context, *thing) error { return nil })
				OnStart(op, test.start)
				ctx, stop := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { stop(test.stop) })
				begun, got := time.Now(), ""
				if err := Run(ctx, &rest.Config{Host: "http://no.example"}, op); err != nil {
					got = err.Error()
				}
				if after := time.Since(begun) - time.Second; got != test.want || after != test.after {
					t.Errorf("Run returns %q after %v, want %q after %v", got, after, test.want, test.after)
				}
				time.Sleep(time.Hour) // OnStart returns
			})
		})
	}
}

// After a stop no further function of OnStart is called, and the time that the running one takes is not given again.
func TestStopBetweenOnStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op := New("widgets.example.com")
		OnCreate(op, func(context.Context, *thing) error { return nil })
		OnStart(op, func(context.Context, *rest.Config) error { time.Sleep(5 * time.Second); return nil })
		OnStart(op, func(context.Context, *rest.Config) error { t.Error("the second OnStart is called"); return nil })
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(StopWithin(errors.New("the lease was lost"), 5*time.Second)) })
		begun := time.Now()
		if err := Run(ctx, &rest.Config{Host: "http://no.example"}, op); err != nil || time.Since(begun) != 5*time.Second {
			t.Errorf("Run returns %v after %v", err, time.Since(begun))
		}
	})
}

// The time of StopWithin begins once: what was waited for before takes its part of it.
func TestStopWithinBeginsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{}
		p.begin(t.Context())
		p.stop(StopWithin(errors.New("the lease was lost"), 5*time.Second))
		ops := []*Operator{New("pods")}
		for _, want := range []time.Duration{5 * time.Second, time.Second, 0} {
			grace, timeout := p.limits(ops)
			if grace+timeout != want || grace < 0 || timeout < 0 {
				t.Errorf("%v and %v are left, want %v together", grace, timeout, want)
			}
			time.Sleep(4 * time.Second)
		}
	})
}

// Operators of one resource that would take each other's records for their own do not run.
func TestOperatorsThatShareRecords(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for want, ops := range map[string][2]*Operator{
		"operators of Pods: two have the prefix keepwatch.io; set Prefix": {New("pods"), New("Pods")},
		"operators of pods: two have the finalizer example.com/mine; set Finalizer": {
			New("pods", Prefix("a.example.com"), Finalizer("example.com/mine")),
			New("pods", Prefix("b.example.com"), Finalizer("example.com/mine")),
		},
		"operators of pods: two have the field of ProgressInStatus: status.a.b": {
			New("pods", Prefix("a.example.com"), ProgressInStatus("status.a")),
			New("pods", Prefix("b.example.com"), ProgressInStatus("status.a.b")),
		},
		"operators of Pods: two have the prefix shop.example.com; set Prefix": {
			New("pods", Prefix("shop.example.com"), Namespaces("b", "a")),
			New("Pods", Prefix("shop.example.com"), Namespaces("a", "c")),
		},
		"operators of Pods: two have the prefix all.example.com; set Prefix": {
			New("pods", Prefix("all.example.com"), Namespaces("a")), New("Pods", Prefix("all.example.com"), Namespaces("b", "")),
		},
		"operators of Pods: two have the prefix default.example.com; set Prefix": {
			New("pods", Prefix("default.example.com")), New("Pods", Prefix("default.example.com"), Namespaces("a")),
		},
		"":                   {New("pods"), New("pods", Prefix("b.example.com"))},
		"<other resources>":  {New("pods"), New("nodes")},
		"<other namespaces>": {New("pods", Namespaces("a", "b")), New("pods", Namespaces("c"))},
	} {
		for _, op := range ops {
			OnCreate(op, func(context.Context, *thing) error { return nil })
		}
		got := ""
		if err := Run(ctx, &rest.Config{Host: "http://no.example"}, ops[0], ops[1]); err != nil {
			got = err.Error()
		}
		if got != want && (got != "" || !strings.HasPrefix(want, "<")) {
			t.Errorf("Run returns %q, want %q", got, want)
		}
	}
}

// A version in the name of the resource does not hide that two operators have the same one, and namespaces do not keep
// operators of a resource without namespaces apart.
func TestOperatorsThatShareRecordsOnceDiscovered(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],
				"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`)
		case "/apis/apps":
			fmt.Fprint(w, `{"kind":"APIGroup","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],
				"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}`)
		case "/apis/apps/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"apps/v1",
				"resources":[{"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["list"]},
				{"name":"planets","kind":"Planet","namespaced":false,"verbs":["list"]}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	for name, ops := range map[string][]*Operator{
		"deployments.apps": {New("deployments.v1.apps"), New("deployments.apps")},
		"planets.apps":     {New("planets.apps", Namespaces("a")), New("planets.apps", Namespaces("b"))},
	} {
		for _, op := range ops {
			OnCreate(op, func(context.Context, *thing) error { return nil })
		}
		err := Run(t.Context(), &rest.Config{Host: s.URL}, ops...)
		if err == nil || err.Error() != "operators of "+name+": two have the prefix keepwatch.io; set Prefix" {
			t.Errorf("Run returns %v", err)
		}
	}
}

// silentEvents is a server that does not answer requests about Events.
type silentEvents struct{ typedcorev1.EventInterface }

func (e silentEvents) Events(string) typedcorev1.EventInterface { return e }
func (silentEvents) Create(ctx context.Context, _ *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Events that cannot be posted delay Run by a second, and never beyond the time of StopWithin.
func TestEventsDoNotDelayTheEnd(t *testing.T) {
	const short = 10 * time.Millisecond
	for within, want := range map[time.Duration]time.Duration{0: flushTimeout, short: short} {
		synctest.Test(t, func(t *testing.T) {
			p := &process{}
			p.begin(t.Context())
			defer p.stop(nil)
			recorder := newEventRecorder(silentEvents{}, slog.New(slog.DiscardHandler))
			end := p.record(recorder)
			for n := range 3 {
				about := corev1.ObjectReference{Name: fmt.Sprint(n)}
				recorder.outgoing <- &corev1.Event{InvolvedObject: about, Count: 1}
			}
			synctest.Wait()
			begun := time.Now()
			if within > 0 {
				p.deadline = begun.Add(within)
			}
			end()
			if after := time.Since(begun); after != want {
				t.Errorf("with %v left, the recorder ends after %v, want %v", within, after, want)
			}
		})
	}
}
