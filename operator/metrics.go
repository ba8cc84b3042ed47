package operator

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/operator/internal/queue"
)

// metrics of one operator, in the spellings of client-go's workqueue and of
// controller-runtime where these have one.
type metrics struct {
	queue           atomic.Pointer[queue.Queue[keepwatch.UID]] // nil before the operator runs
	adds, retries   prometheus.Counter
	waited, worked  prometheus.Observer
	reconciles      *prometheus.CounterVec
	reconcileErrors prometheus.Counter
	reconcilePanics prometheus.Counter
	reconcileTime   prometheus.Observer
	active          prometheus.Gauge
	handlers        *prometheus.HistogramVec
	patches         *prometheus.CounterVec
	eventsDropped   prometheus.Counter
	collectors      []prometheus.Collector
}

var (
	// queueBuckets and reconcileBuckets are those of client-go and controller-runtime, so
	// that what is made for these shows operators too.
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
		return collected(m, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels, Buckets: buckets}))
	}

	gauge("workqueue_depth", "Objects that wait for a worker.", of, m.depth)
	gauge("workqueue_unfinished_work_seconds", "For how long workers have had the objects that they have in hand, all together.", of, m.unfinished)
	gauge("workqueue_longest_running_processor_seconds", "For how long the slowest worker has had the object that it has in hand.", of, m.longest)
	m.adds = counter("workqueue_adds_total", "How often something was to be done for an object that was not to be done already.", of)
	m.retries = counter("workqueue_retries_total", "How often an object was put off because of something unexpected.", of)
	m.waited = histogram("workqueue_queue_duration_seconds", "How long objects wait for a worker.", of, queueBuckets)
	m.worked = histogram("workqueue_work_duration_seconds", "How long workers take for an object.", of, queueBuckets)

	m.reconciles = collected(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "controller_runtime_reconcile_total", Help: "How workers have ended with an object.", ConstLabels: controller}, []string{"result"}))
	m.reconcileErrors = counter("controller_runtime_reconcile_errors_total", "How often something unexpected happened.", controller)
	m.reconcilePanics = counter("controller_runtime_reconcile_panics_total", "How often that was a panic.", controller)
	m.reconcileTime = histogram("controller_runtime_reconcile_time_seconds", "How long workers take for an object.", controller, reconcileBuckets)
	m.active = collected(m, prometheus.NewGauge(prometheus.GaugeOpts{Name: "controller_runtime_active_workers", Help: "Workers that have an object in hand.", ConstLabels: controller}))
	gauge("controller_runtime_max_concurrent_reconciles", "How many workers there are.", controller, func() float64 { return float64(workers) })

	m.handlers = collected(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "keepwatch_operator_handler_duration_seconds", Help: "How long handlers take.", ConstLabels: controller, Buckets: handlerBuckets}, []string{"handler", "result"}))
	m.patches = collected(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keepwatch_operator_patches_total", Help: "Patches that were sent, by the answer.", ConstLabels: controller}, []string{"code"}))
	m.eventsDropped = counter("keepwatch_operator_events_dropped_total", "Events that were too many to be posted.", controller)
	return m
}

// collected adds a collector to those that are shown.
func collected[C prometheus.Collector](m *metrics, c C) C {
	m.collectors = append(m.collectors, c)
	return c
}

// depth, unfinished and longest ask the queue.

func (m *metrics) depth() float64 {
	if q := m.queue.Load(); q != nil {
		return float64(q.Len())
	}
	return 0
}

func (m *metrics) unfinished() float64 {
	total, _ := m.inHand()
	return total.Seconds()
}

func (m *metrics) longest() float64 {
	_, longest := m.inHand()
	return longest.Seconds()
}

func (m *metrics) inHand() (total, longest time.Duration) {
	if q := m.queue.Load(); q != nil {
		return q.Unfinished()
	}
	return 0, 0
}

// Collectors are the operator's metrics, those of its informers among them, to be
// registered once.
func (op *Operator) Collectors() []prometheus.Collector {
	return append([]prometheus.Collector{op.group}, op.metrics.collectors...)
}

// ended counts how a worker has ended with an object, in controller-runtime's words:
// again is when it is to be looked at again, the zero time for when it changes.
func (m *metrics) ended(err error, again time.Time) {
	switch {
	case err != nil:
		m.reconcileErrors.Inc()
		m.reconciles.WithLabelValues("error").Inc()
	case !again.IsZero():
		m.reconciles.WithLabelValues("requeue_after").Inc()
	default:
		m.reconciles.WithLabelValues("success").Inc()
	}
}

// working counts a worker that has an object in hand, until the returned function.
func (m *metrics) working(start time.Time) func() {
	m.active.Inc()
	return func() {
		took := time.Since(start).Seconds()
		m.worked.Observe(took)
		m.reconcileTime.Observe(took)
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
