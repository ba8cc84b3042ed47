package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/operator"
)

// goodObjects returns the number of objects that can be handled, beside bad ones or alone.
func goodObjects() int {
	if testing.Short() {
		return 90
	}
	return 490
}

// faultRun is an operator with good objects and some bad ones. The server rejects half of
// the bad ones, and the handler panics for the others.
type faultRun struct {
	*testNamespace
	*gateway
	rejected, panicking []string
	latencies           []time.Duration // of good objects from their creation to the last patch, sorted
}

// handleBeside creates objects while the operator runs, and waits until the good ones are
// handled.
func handleBeside(t testing.TB, bad int) *faultRun {
	t.Helper()
	f := &faultRun{testNamespace: newNamespace(t), gateway: newGateway(t)}
	op := f.operator("widgets.example.com")
	operator.OnCreate(op, func(_ context.Context, r *request) error {
		switch r.Object.Spec.Color {
		case "rejected":
			r.Patch.Set("spec.size", 9999)
		case "panicking":
			panic("at the disco")
		}
		r.Patch.Status("phase", "Ready")
		return nil
	})
	f.startWith(f.config(), op)
	for i := range bad {
		f.rejected = append(f.rejected, fmt.Sprintf("rejected-%d", i))
		f.panicking = append(f.panicking, fmt.Sprintf("panicking-%d", i))
		f.create(f.rejected[i], "{color: rejected}")
		f.create(f.panicking[i], "{color: panicking}")
	}
	good := goodObjects()
	created := make([]time.Time, good)
	var creating sync.WaitGroup
	for part := range 10 {
		creating.Go(func() {
			for i := part; i < good; i += 10 {
				created[i] = time.Now()
				f.create(fmt.Sprintf("fine-%d", i), "{color: fine}")
			}
		})
	}
	creating.Wait()
	for i := range good {
		name := fmt.Sprintf("fine-%d", i)
		f.waitUntil(name+" is handled", func() (bool, string) {
			done := f.answersTo(name, http.StatusOK) // the status, then the note that it is handled
			if len(done) < 2 {
				return false, fmt.Sprint(done)
			}
			f.latencies = append(f.latencies, done[1].Sub(created[i]))
			return true, ""
		})
	}
	slices.Sort(f.latencies)
	return f
}

func (f *faultRun) p50() time.Duration { return f.latencies[len(f.latencies)/2] }
func (f *faultRun) p99() time.Duration { return f.latencies[len(f.latencies)*99/100] }

// TestBadObjectsDelayNoOther has 5 objects that the server rejects and 5 whose handler
// panics, among many good ones. The good ones are handled, and the patches of the bad ones
// are throttled.
func TestBadObjectsDelayNoOther(t *testing.T) {
	t.Parallel()
	beside := handleBeside(t, 5)
	good := goodObjects()
	t.Logf("p99 of %d good objects beside 10 bad ones: %v", good, beside.p99())
	for _, name := range beside.rejected {
		beside.waitUntil("the throttle was met", func() (bool, string) {
			n := len(beside.answersTo(name, http.StatusUnprocessableEntity))
			return n >= 4, fmt.Sprint(n)
		})
		beside.wantThrottled(name)
	}
	for _, name := range beside.panicking {
		beside.wantBackoff(name)
	}
	beside.waitUntil("an Event for each", func() (bool, string) {
		list, err := clients.CoreV1().Events(beside.name).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=PatchRejected"})
		return err == nil && len(list.Items) == len(beside.rejected), fmt.Sprint(len(list.Items), err)
	})
	list, err := beside.widgets().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := 0
	for _, w := range list.Items {
		if phase, _, _ := unstructured.NestedString(w.Object, "status", "phase"); phase == "Ready" &&
			strings.HasPrefix(w.GetName(), "fine") {
			ready++
		}
	}
	if ready != good {
		t.Errorf("%d objects are handled, want %d", ready, good)
	}
}

// wantThrottled compares the patches of a rejected object with the throttle.
func (f *faultRun) wantThrottled(name string) {
	f.t.Helper()
	times := f.answersTo(name, http.StatusUnprocessableEntity)
	for n := 1; n < len(times); n++ {
		least := []time.Duration{1, 1, 2, 3, 5, 8, 13, 21}[n-1] * time.Second
		if gap := times[n].Sub(times[n-1]); gap < least-50*time.Millisecond {
			f.t.Errorf("%s: try %d came %v after the one before, want %v", name, n+1, gap, least)
		}
	}
	f.waitUntil("the condition is written", func() (bool, string) {
		note := f.get(name).GetAnnotations()[prefix+"/handled-condition"]
		return strings.Contains(note, "spec.size"), note
	})
	// Its status is accepted before the rejection, and the condition is written once. A try
	// may be running.
	other, rejected := len(f.answersTo(name, http.StatusOK)), len(f.answersTo(name, http.StatusUnprocessableEntity))
	if other < 2 || other > rejected+2 {
		f.t.Errorf("%s: %d patches taken beside %d rejected", name, other, rejected)
	}
}

// wantBackoff fails if progress of a panicking handler was written more than twice in a second. A
// failure whose retry is due later than a second is written at once, also soon after an earlier one.
func (f *faultRun) wantBackoff(name string) {
	f.t.Helper()
	times := f.answersTo(name, http.StatusOK)
	if len(times) == 0 {
		f.t.Errorf("%s: no patch records the error", name)
	}
	for n := 2; n < len(times); n++ {
		if gap := times[n].Sub(times[n-2]); gap < 950*time.Millisecond {
			f.t.Errorf("%s: patches %d to %d came within %v", name, n-1, n+1, gap)
		}
	}
}

// BenchmarkBesideBadObjects measures the latency of good objects, alone and beside bad ones.
func BenchmarkBesideBadObjects(b *testing.B) {
	for _, bad := range []int{0, 5} {
		b.Run(fmt.Sprintf("bad=%d", 2*bad), func(b *testing.B) {
			var p50, p99 time.Duration
			for b.Loop() {
				f := handleBeside(b, bad)
				p50, p99 = p50+f.p50(), p99+f.p99()
			}
			b.ReportMetric(float64(p50.Milliseconds())/float64(b.N), "p50-ms")
			b.ReportMetric(float64(p99.Milliseconds())/float64(b.N), "p99-ms")
		})
	}
}
