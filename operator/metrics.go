package operator

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/operator/internal/queue"
)

// metrics are those of one operator. Metrics that client-go's workqueue or
// controller-runtime have too use their names, labels, types and help: dashboards find
// them, and one endpoint can show both.
type metrics struct {
	queue                       atomic.Pointer[queue.Queue[keepwatch.Key]] // nil before the operator runs
	retries                     prometheus.Counter
	queueDuration, workDuration prometheus.Observer
	reconciles                  *prometheus.CounterVec
	errors                      prometheus.Counter
	terminal                    prometheus.Counter // of the errors, the permanent ones
	panics                      prometheus.Counter
	timeouts                    prometheus.Counter
	reconcileTime               prometheus.Observer
	active                      prometheus.Gauge
	handlers                    *prometheus.HistogramVec
	patches                     *prometheus.CounterVec
	eventsDropped               prometheus.Counter
	collectors                  []prometheus.Collector
}

// priorities maps the queue's priorities to controller-runtime's numbers.
var priorities = map[queue.Priority]string{queue.Background: "-100", queue.Urgent: "0"}

var (
	// queueBuckets and reconcileBuckets are those of client-go and controller-runtime.
	queueBuckets     = prometheus.ExponentialBuckets(10e-9, 10, 12)
	reconcileBuckets = []float64{
		0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1,
		1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
	}
	handlerBuckets = prometheus.ExponentialBuckets(0.001, 4, 10)
)

func newMetrics(name string, workers int) *metrics {
	m := &metrics{}
	of := prometheus.Labels{"name": name, "controller": name}
	controller := prometheus.Labels{"controller": name}
	counter := func(name, help string, labels prometheus.Labels) prometheus.Counter {
		return collected(m, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}))
	}
	gauge := func(name, help string, labels prometheus.Labels, ask func() float64) {
		collected(m, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, ask))
	}
	histogram := func(name, help string, labels prometheus.Labels, buckets []float64) prometheus.Observer {
		return collected(m, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels,
			Buckets: buckets}))
	}

	for priority, number := range priorities {
		labels := prometheus.Labels{"name": name, "controller": name, "priority": number}
		gauge("workqueue_depth", "Current depth of workqueue by workqueue and priority", labels, func() float64 {
			return m.depth(priority)
		})
	}
	gauge("workqueue_unfinished_work_seconds",
		"How many seconds of work has been done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.", of, m.unfinished)
	gauge("workqueue_longest_running_processor_seconds",
		"How many seconds has the longest running processor for workqueue been running.", of, m.longest)
	collected(m, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "workqueue_adds_total",
		Help: "Total number of adds handled by workqueue", ConstLabels: of}, m.added))
	m.retries = counter("workqueue_retries_total",
		"Total number of items added to the workqueue with a non-zero delay (rate-limited requeues, explicit RequeueAfter or AddAfter calls)", of)
	m.queueDuration = histogram("workqueue_queue_duration_seconds",
		"How long in seconds an item stays in workqueue before being requested", of, queueBuckets)
	m.workDuration = histogram("workqueue_work_duration_seconds",
		"How long in seconds processing an item from workqueue takes.", of, queueBuckets)

	m.reconciles = collected(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "controller_runtime_reconcile_total",
		Help: "Total number of reconciliations per controller", ConstLabels: controller}, []string{"result"}))
	for _, result := range []string{resultError, resultRequeueAfter, resultSuccess} {
		m.reconciles.WithLabelValues(result) // exported as 0 before the first
	}
	m.errors = counter("controller_runtime_reconcile_errors_total", "Total number of reconciliation errors per controller",
		controller)
	m.terminal = counter("controller_runtime_terminal_reconcile_errors_total",
		"Total number of terminal reconciliation errors per controller", controller)
	m.panics = counter("controller_runtime_reconcile_panics_total", "Total number of reconciliation panics per controller",
		controller)
	m.timeouts = counter("controller_runtime_reconcile_timeouts_total",
		"Total number of reconciliation timeouts per controller", controller)
	m.reconcileTime = histogram("controller_runtime_reconcile_time_seconds",
		"Length of time per reconciliation per controller", controller, reconcileBuckets)
	m.active = collected(m, prometheus.NewGauge(prometheus.GaugeOpts{Name: "controller_runtime_active_workers",
		Help: "Number of currently used workers per controller", ConstLabels: controller}))
	gauge("controller_runtime_max_concurrent_reconciles", "Maximum number of concurrent reconciles per controller",
		controller, func() float64 { return float64(workers) })

	m.handlers = collected(m,
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "keepwatch_operator_handler_duration_seconds",
			Help: "How long handlers take.", ConstLabels: controller, Buckets: handlerBuckets}, []string{"handler", "result"}))
	m.patches = collected(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keepwatch_operator_patches_total",
		Help: "Patches that were sent, by the answer.", ConstLabels: controller}, []string{"code"}))
	m.eventsDropped = counter("keepwatch_operator_events_dropped_total",
		"Events that were dropped because the queue was full.", controller)
	return m
}

// collected adds a collector to the exported ones.
func collected[C prometheus.Collector](m *metrics, c C) C {
	m.collectors = append(m.collectors, c)
	return c
}

// depth, added, unfinished and longest read the queue.

func (m *metrics) depth(priority queue.Priority) float64 {
	if q := m.queue.Load(); q != nil {
		return float64(q.Len(priority))
	}
	return 0
}

func (m *metrics) added() float64 {
	if q := m.queue.Load(); q != nil {
		return float64(q.Added())
	}
	return 0
}

func (m *metrics) unfinished() float64 {
	total, _ := m.unfinishedWork()
	return total.Seconds()
}

func (m *metrics) longest() float64 {
	_, longest := m.unfinishedWork()
	return longest.Seconds()
}

func (m *metrics) unfinishedWork() (total, longest time.Duration) {
	if q := m.queue.Load(); q != nil {
		return q.Unfinished()
	}
	return 0, 0
}

// Collectors returns the operator's metrics and those of its informers. Register them once. All have the label
// controller, which is the operator's [Operator.Name], so that one registry takes those of several names.
func (op *Operator) Collectors() []prometheus.Collector {
	informers := prometheus.WrapCollectorWith(prometheus.Labels{"controller": op.Name()}, op.group)
	return append([]prometheus.Collector{informers}, op.metrics.collectors...)
}

// The results of processing an object, in controller-runtime's words.
const (
	resultError        = "error"
	resultRequeueAfter = "requeue_after"
	resultSuccess      = "success"
)

// ended counts the result of processing an object. next is when it is processed again, the
// zero time for its next change.
func (m *metrics) ended(failed bool, next time.Time, took time.Duration) {
	m.reconcileTime.Observe(took.Seconds())
	if !next.IsZero() {
		m.retries.Inc()
	}
	switch {
	case failed:
		m.errors.Inc()
		m.reconciles.WithLabelValues(resultError).Inc()
	case !next.IsZero():
		m.reconciles.WithLabelValues(resultRequeueAfter).Inc()
	default:
		m.reconciles.WithLabelValues(resultSuccess).Inc()
	}
}

// trackWorker counts an active worker until the returned function is called.
func (m *metrics) trackWorker(start time.Time) func() {
	m.active.Inc()
	return func() {
		m.workDuration.Observe(time.Since(start).Seconds())
		m.active.Dec()
	}
}

func (m *metrics) called(handler string, took time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.handlers.WithLabelValues(handler, result).Observe(took.Seconds())
}

func (m *metrics) patched(err error) {
	code := "200"
	if err != nil {
		code = string(apierrors.ReasonForError(err))
		if code == "" {
			code = "Unreachable"
		}
	}
	m.patches.WithLabelValues(code).Inc()
}
