package readpath

import "k8s.io/component-base/metrics"

// Registry is where metrics are registered: a metrics.KubeRegistry.
type Registry interface {
	MustRegister(...metrics.Registerable)
}

// counts are the metrics of one server's read path. They count once they are registered.
type counts struct {
	answered, passed                  *metrics.CounterVec
	busy, evicted, refused, unchunked *metrics.Counter
	warmed                            *metrics.Counter
	budget, cached, holding           *metrics.Gauge
}

func newCounts() *counts {
	counter := func(name, help string) *metrics.Counter {
		return metrics.NewCounter(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA})
	}
	counters := func(label, name, help string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, []string{label})
	}
	gauge := func(name, help string) *metrics.Gauge {
		return metrics.NewGauge(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA})
	}
	return &counts{
		answered:  counters("verb", "keepwatch_readpath_answered_total", "Requests that were answered from a watch cache, by verb."),
		passed:    counters("reason", "keepwatch_readpath_passed_total", "Requests that were passed on to the API server's handlers, by reason."),
		busy:      counter("keepwatch_readpath_busy_total", "Large answers that were refused with 429, since too many others were being written."),
		evicted:   counter("keepwatch_readpath_encodings_evicted_total", "Encodings that were dropped to make room for others."),
		refused:   counter("keepwatch_readpath_encodings_refused_total", "Encodings that were not cached, since all others that were looked at had been used."),
		warmed:    counter("keepwatch_readpath_encodings_warmed_total", "Resources that were encoded in the background, as large lists had asked for them before the start."),
		unchunked: counter("keepwatch_readpath_watch_buffers_refused_total", "Times at which a watch sent events one by one, since other watches held all buffers."),
		budget:    gauge("keepwatch_readpath_encodings_budget_bytes", "How many bytes of encoded objects may be cached."),
		cached:    gauge("keepwatch_readpath_encodings_bytes", "How many bytes of encoded objects are cached."),
		holding:   gauge("keepwatch_readpath_buffer_bytes", "How many bytes large answers and watches hold while they are written."),
	}
}

// hold counts bytes until the returned function is called.
func (c *counts) hold(bytes int64) (release func()) {
	c.holding.Add(float64(bytes))
	return func() { c.holding.Add(-float64(bytes)) }
}

// Register registers the metrics of the budget and of the handlers and readers that share it. It has
// to be called before these are used.
func (b *Budget) Register(registry Registry) {
	c := b.counts
	registry.MustRegister(c.answered, c.passed, c.busy, c.evicted, c.refused, c.warmed, c.unchunked, c.budget, c.cached, c.holding)
	c.budget.Set(float64(b.items.most + b.frames.most))
}
