package readpath

import (
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// counts has the metrics of a server's read path. They count after they were registered.
type counts struct {
	answered, delegated                         *metrics.CounterVec
	busy, evicted, refused, watchBuffersRefused *metrics.Counter
	warmed, cold                                *metrics.Counter
	budgetBytes, cachedBytes, bufferBytes       *metrics.Gauge
}

func newCounts() *counts {
	counter := func(name, help string) *metrics.Counter {
		return metrics.NewCounter(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA})
	}
	counters := func(label, name, help string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA},
			[]string{label})
	}
	gauge := func(name, help string) *metrics.Gauge {
		return metrics.NewGauge(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA})
	}
	return &counts{
		answered: counters("verb", "keepwatch_readpath_answered_total",
			"Requests that were answered from a watch cache, by verb."),
		delegated: counters("reason", "keepwatch_readpath_delegated_total",
			"Requests that the API server's handlers answered, by reason."),
		busy: counter("keepwatch_readpath_busy_total",
			"Large responses that were refused with 429, because too many others were being written."),
		evicted: counter("keepwatch_readpath_encodings_evicted_total",
			"Encodings that were dropped to make room for others."),
		cold: counter("keepwatch_readpath_encodings_cold_total",
			"Encodings that were dropped because they were not used for at least five minutes."),
		refused: counter("keepwatch_readpath_encodings_refused_total",
			"Encodings that were not cached, because others had been used more recently."),
		warmed: counter("keepwatch_readpath_encodings_warmed_total",
			"Resources that were encoded in the background, because clients had requested large lists of them before the start."),
		watchBuffersRefused: counter("keepwatch_readpath_watch_buffers_refused_total",
			"Times that a watch sent events one by one, because other watches used all buffers."),
		budgetBytes: gauge("keepwatch_readpath_encodings_budget_bytes",
			"Upper bound of the bytes of cached encodings."),
		cachedBytes: gauge("keepwatch_readpath_encodings_bytes", "Bytes of cached encodings."),
		bufferBytes: gauge("keepwatch_readpath_buffer_bytes",
			"Bytes of buffers that large responses and watches use while they are written."),
	}
}

// countBuffer counts a buffer until the returned function is called.
func (c *counts) countBuffer(bytes int64) (release func()) {
	c.bufferBytes.Add(float64(bytes))
	return func() { c.bufferBytes.Add(-float64(bytes)) }
}

// Register registers the metrics of the budget and of the handlers and readers that share it. It must
// be called before their first use.
func (b *Budget) Register(registry watchcache.Registry) {
	c := b.counts
	registry.MustRegister(c.answered, c.delegated, c.busy, c.evicted, c.refused, c.warmed, c.cold, c.watchBuffersRefused,
		c.budgetBytes, c.cachedBytes, c.bufferBytes)
	c.budgetBytes.Set(float64(b.itemEncodings.limit + b.eventEncodings.limit))
}
