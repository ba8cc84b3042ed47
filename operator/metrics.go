package operator

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// metrics of one operator, in the spellings of client-go's workqueue and of
// controller-runtime where these have one.
type metrics struct {
	depth           *depth
	adds, retries   prometheus.Counter
	waited, worked  prometheus.Observer
	reconciles      *prometheus.CounterVec
	reconcileErrors prometheus.Counter
	reconcileTime   prometheus.Observer
	handlers        *prometheus.HistogramVec
	patches         *prometheus.CounterVec
	eventsDropped   prometheus.Counter
	collectors      []prometheus.Collector
	active          prometheus.Gauge
}

func newMetrics(name string) *metrics {
	m := &metrics{}
	queue := prometheus.Labels{"name": name}
	controller := prometheus.Labels{"controller": name}
	counter := func(name, help string, labels prometheus.Labels) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
		m.collectors = append(m.collectors, c)
		return c
	}
	histogram := func(name, help string, labels prometheus.Labels) prometheus.Observer {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels, Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10)})
		m.collectors = append(m.collectors, h)
		return h
	}
	gauge := func(name, help string, labels prometheus.Labels) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		m.collectors = append(m.collectors, g)
		return g
	}
	m.depth = newDepth(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "Objects that wait for a worker.", ConstLabels: queue})
	m.adds = counter("workqueue_adds_total", "How often something was to be done for an object that was not to be done already.", queue)
	m.retries = counter("workqueue_retries_total", "How often an object was put off because of something unexpected.", queue)
	m.waited = histogram("workqueue_queue_duration_seconds", "How long objects wait for a worker.", queue)
	m.worked = histogram("workqueue_work_duration_seconds", "How long workers take for an object.", queue)
	m.reconcileErrors = counter("controller_runtime_reconcile_errors_total", "How often something unexpected happened.", controller)
	m.reconcileTime = histogram("controller_runtime_reconcile_time_seconds", "How long workers take for an object.", controller)
	m.active = gauge("controller_runtime_active_workers", "Workers that have an object in hand.", controller)
	m.eventsDropped = counter("keepwatch_operator_events_dropped_total", "Events that were too many to be posted.", controller)
	m.reconciles = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "controller_runtime_reconcile_total", Help: "How workers have ended with an object.", ConstLabels: controller}, []string{"result"})
	m.handlers = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "keepwatch_operator_handler_duration_seconds", Help: "How long handlers take.", ConstLabels: controller, Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"handler", "result"})
	m.patches = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keepwatch_operator_patches_total", Help: "Patches that were sent, by the answer.", ConstLabels: controller}, []string{"code"})
	m.collectors = append(m.collectors, m.depth, m.reconciles, m.handlers, m.patches)
	return m
}

// Collectors are the operator's metrics, those of its informers among them, to be
// registered once.
func (op *Operator) Collectors() []prometheus.Collector {
	return append([]prometheus.Collector{op.group}, op.metrics.collectors...)
}

func (m *metrics) result(result string) {
	m.reconciles.WithLabelValues(result).Inc()
	if result != "success" {
		m.reconcileErrors.Inc()
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

// depth is a gauge that asks when it is collected.
type depth struct {
	prometheus.Collector
	mu  sync.Mutex
	ask func() int
}

func newDepth(o prometheus.GaugeOpts) *depth {
	d := &depth{}
	d.Collector = prometheus.NewGaugeFunc(o, func() float64 {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.ask == nil {
			return 0
		}
		return float64(d.ask())
	})
	return d
}

func (d *depth) observe(ask func() int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ask = ask
}

// tracer is where the spans of handlers begin: OpenTelemetry's global provider, which
// does nothing until the program sets one.
func tracer() trace.Tracer { return otel.Tracer("github.com/keepwatch/keepwatch/operator") }
