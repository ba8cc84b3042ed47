package operator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keepwatch/keepwatch/informer/health"
)

// value returns the sum of a metric over its series; of a histogram, its count.
func value(t *testing.T, op *Operator, name string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(op.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		var sum float64
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// TestMetrics checks the names against those of client-go's workqueue and of
// controller-runtime, and the values.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com", Workers(2))
		OnCreate(op, func(_ context.Context, r *thing) error {
			switch r.Object.Name {
			case "slow":
				time.Sleep(10 * time.Second)
			case "slower":
				time.Sleep(20 * time.Second)
			case "again":
				return RetryAfter(errors.New("not yet"), time.Hour)
			case "bad":
				r.Patch.Set("spec.size", 9999)
			case "over":
				return Permanent(errors.New("never"))
			case "jumps":
				panic("off a cliff")
			}
			return nil
		}, ID("make"), Backoff(time.Minute), When(func(o *Thing) bool {
			if o.Name == "panics" {
				panic("at the disco")
			}
			return true
		}))
		OnCreate(op, func(ctx context.Context, r *thing) error {
			<-ctx.Done()
			return ctx.Err()
		}, ID("late"), Timeout(5*time.Second), When(func(o *Thing) bool { return o.Name == "late" }))
		want := func(values map[string]float64) {
			t.Helper()
			synctest.Wait()
			for name, want := range values {
				if got := value(t, op, name); got != want {
					t.Errorf("after %v %s is %v, want %v", time.Since(j.start), name, got, want)
				}
			}
		}
		want(map[string]float64{"workqueue_depth": 0, "workqueue_unfinished_work_seconds": 0,
			"controller_runtime_max_concurrent_reconciles": 2})
		for _, name := range []string{"slow", "slower", "again", "bad", "panics"} {
			w.create(name, spec(1))
		}
		r := startIn(t, w, op)
		time.Sleep(4 * time.Second)
		want(map[string]float64{
			"workqueue_depth": 3, "workqueue_adds_total": 5, "workqueue_queue_duration_seconds": 2,
			"workqueue_work_duration_seconds":   0,
			"workqueue_unfinished_work_seconds": 8, "workqueue_longest_running_processor_seconds": 4,
			"controller_runtime_active_workers": 2,
		})
		time.Sleep(6500 * time.Millisecond)
		want(map[string]float64{
			"workqueue_depth": 0, "workqueue_unfinished_work_seconds": 10.5, "workqueue_longest_running_processor_seconds": 10.5,
			"controller_runtime_active_workers": 1, "workqueue_retries_total": 3, "controller_runtime_reconcile_errors_total": 3,
			"controller_runtime_reconcile_panics_total": 1, "keepwatch_operator_handler_duration_seconds": 3,
		})
		time.Sleep(20 * time.Second)
		want(map[string]float64{
			"workqueue_unfinished_work_seconds": 0, "workqueue_longest_running_processor_seconds": 0,
			"controller_runtime_active_workers":       0,
			"keepwatch_operator_events_dropped_total": 0, "controller_runtime_terminal_reconcile_errors_total": 0,
		})
		panics := value(t, op, "controller_runtime_reconcile_panics_total")
		for _, name := range []string{"over", "jumps", "late"} {
			w.create(name, spec(1))
		}
		time.Sleep(500 * time.Millisecond) // between two tries of what panics in its filter
		want(map[string]float64{
			"controller_runtime_reconcile_panics_total": panics + 1, "controller_runtime_terminal_reconcile_errors_total": 1,
			"controller_runtime_active_workers": 1, "controller_runtime_reconcile_timeouts_total": 0,
		})
		time.Sleep(5 * time.Second)
		want(map[string]float64{"controller_runtime_terminal_reconcile_errors_total": 2,
			"controller_runtime_reconcile_timeouts_total": 1})
		if all, took := value(t, op, "controller_runtime_reconcile_total"), value(t, op,
			"controller_runtime_reconcile_time_seconds"); all == 0 || all != took {
			t.Errorf("%v ends of %v times", all, took)
		}
		if patches := value(t, op, "keepwatch_operator_patches_total"); patches != float64(len(w.patches)) {
			t.Errorf("%v patches, %d have arrived", patches, len(w.patches))
		}
		_ = r.end()
	})
}

// One registry takes two operators of a resource, also while their informers run.
func TestMetricsOfTwoOperators(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	ops := []*Operator{New("widgets.example.com"), New("widgets.example.com", Prefix("example.com"))}
	for _, op := range ops {
		op.group.Add(idle{})
		registry.MustRegister(op.Collectors()...)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		found := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" {
					found[l.GetValue()] = true
				}
			}
		}
		if len(found) != 2 || !found["widgets.example.com"] || !found["widgets.example.com@example.com"] {
			t.Errorf("%s has the controllers %v", f.GetName(), found)
		}
	}
}

// idle is an informer that has done nothing yet.
type idle struct{}

func (idle) Name() string          { return "Widget" }
func (idle) Status() health.Status { return health.Status{} }
func (idle) Queued() int           { return 0 }
func (idle) Latency() (uint64, float64, map[float64]uint64) {
	return 0, 0, nil
}

// TestLabels checks that the labels are controller-runtime's and no others.
func TestLabels(t *testing.T) {
	const queued, reconciled = "name=widgets.example.com controller=widgets.example.com", "controller=widgets.example.com"
	want := map[string][]string{
		"workqueue_depth":                             {queued + " priority=-100", queued + " priority=0"},
		"workqueue_adds_total":                        {queued},
		"workqueue_queue_duration_seconds":            {queued},
		"workqueue_work_duration_seconds":             {queued},
		"workqueue_unfinished_work_seconds":           {queued},
		"workqueue_longest_running_processor_seconds": {queued},
		"workqueue_retries_total":                     {queued},
		"controller_runtime_reconcile_total": {reconciled + " result=error", reconciled +
			" result=requeue_after", reconciled + " result=success"},
		"controller_runtime_reconcile_errors_total":          {reconciled},
		"controller_runtime_terminal_reconcile_errors_total": {reconciled},
		"controller_runtime_reconcile_panics_total":          {reconciled},
		"controller_runtime_reconcile_timeouts_total":        {reconciled},
		"controller_runtime_reconcile_time_seconds":          {reconciled},
		"controller_runtime_active_workers":                  {reconciled},
		"controller_runtime_max_concurrent_reconciles":       {reconciled},
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(New("widgets.example.com").Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "workqueue_") && !strings.HasPrefix(name, "controller_runtime_") {
			continue
		}
		var got []string
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			var line []string
			for _, label := range []string{"name", "controller", "priority", "result"} {
				if v, ok := labels[label]; ok {
					line = append(line, label+"="+v)
				}
			}
			if len(line) != len(labels) {
				t.Errorf("%s has labels %v", name, labels)
			}
			got = append(got, strings.Join(line, " "))
		}
		slices.Sort(got)
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("there is no %s", name)
	}
}
