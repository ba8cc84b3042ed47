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
	passed = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "keepwatch_readpath_passed_total",
		Help:           "Requests that were passed on to the API server's handlers, by reason.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
)

func init() { legacyregistry.MustRegister(answered, busy, passed) }
