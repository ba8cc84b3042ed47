package operator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// value is what a metric of an operator says: a counter, a gauge, or how often a
// histogram has observed, over all its series.
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

// TestMetrics holds the names to those that dashboards for client-go's workqueue and
// for controller-runtime ask for, and the values to what happens.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, j *journal) {
		op := New("widgets.example.com", Workers(2))
		OnCreate(op, func(_ context.Context, r *thing) error {
			switch r.Object.Name {
			case "slow":
				time.Sleep(10 * time.Second)
			case "slower":
				time.Sleep(20 * time.Second)
			case "again":
				return Temporary(errors.New("not yet"), time.Hour)
			case "bad":
				r.Patch.Set("spec.size", 9999)
			}
			return nil
		}, When(func(o *Thing) bool {
			if o.Name == "panics" {
				panic("at the disco")
			}
			return true
		}))
		want := func(values map[string]float64) {
			t.Helper()
			synctest.Wait()
			for name, want := range values {
				if got := value(t, op, name); got != want {
					t.Errorf("after %v %s is %v, want %v", time.Since(j.start), name, got, want)
				}
			}
		}
		want(map[string]float64{"workqueue_depth": 0, "workqueue_unfinished_work_seconds": 0, "controller_runtime_max_concurrent_reconciles": 2})
		for _, name := range []string{"slow", "slower", "again", "bad", "panics"} {
			w.create(name, spec(1))
		}
		r := live(t, w, op)
		time.Sleep(4 * time.Second)
		want(map[string]float64{
			"workqueue_depth": 3, "workqueue_adds_total": 5, "workqueue_queue_duration_seconds": 2, "workqueue_work_duration_seconds": 0,
			"workqueue_unfinished_work_seconds": 8, "workqueue_longest_running_processor_seconds": 4, "controller_runtime_active_workers": 2,
		})
		time.Sleep(6500 * time.Millisecond)
		want(map[string]float64{
			"workqueue_depth": 0, "workqueue_unfinished_work_seconds": 10.5, "workqueue_longest_running_processor_seconds": 10.5,
			"controller_runtime_active_workers": 1, "workqueue_retries_total": 2,
			"controller_runtime_reconcile_panics_total": 1, "keepwatch_operator_handler_duration_seconds": 3,
		})
		time.Sleep(20 * time.Second)
		if errs := value(t, op, "controller_runtime_reconcile_errors_total"); errs < 2 {
			t.Errorf("%v errors", errs)
		}
		want(map[string]float64{
			"workqueue_unfinished_work_seconds": 0, "workqueue_longest_running_processor_seconds": 0, "controller_runtime_active_workers": 0,
			"keepwatch_operator_events_dropped_total": 0,
		})
		if all, took := value(t, op, "controller_runtime_reconcile_total"), value(t, op, "controller_runtime_reconcile_time_seconds"); all == 0 || all > took {
			t.Errorf("%v ends of %v times", all, took)
		}
		if patches := value(t, op, "keepwatch_operator_patches_total"); patches != float64(len(w.patches)) {
			t.Errorf("%v patches, %d have arrived", patches, len(w.patches))
		}
		_ = r.end()
	})
}
