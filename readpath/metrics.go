package readpath

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	answered = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "keepwatch_readpath_answered_total",
		Help:           "Requests that were answered from a storage, by verb.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"verb"})
	busy = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "keepwatch_readpath_busy_total",
		Help:           "Lists that were asked to come back, since too many others were being written.",
		StabilityLevel: metrics.ALPHA,
	})
	budgetBytes = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "keepwatch_readpath_encodings_budget_bytes",
		Help:           "How many bytes of encoded objects may be cached.",
		StabilityLevel: metrics.ALPHA,
	})
	cachedBytes = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "keepwatch_readpath_encodings_bytes",
		Help:           "How many bytes of encoded objects are cached.",
		StabilityLevel: metrics.ALPHA,
	})
	evictedEncodings = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "keepwatch_readpath_encodings_evicted_total",
		Help:           "Encodings that were dropped to make room for others.",
		StabilityLevel: metrics.ALPHA,
	})
	refusedEncodings = metrics.NewCounter(&metrics.CounterOpts{
		Name:           "keepwatch_readpath_encodings_refused_total",
		Help:           "Encodings that were not cached, since all others that were looked at had been used.",
		StabilityLevel: metrics.ALPHA,
	})
	passed = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "keepwatch_readpath_passed_total",
		Help:           "Requests that were passed on to the API server's handlers, by reason.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
)

func init() {
	legacyregistry.MustRegister(answered, busy, passed, budgetBytes, cachedBytes, evictedEncodings, refusedEncodings)
}
