package past

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/servemetrics"
)

// meters are the server's own metrics.
type meters struct {
	replays  *metrics.Gauge
	moments  *metrics.Gauge
	bytes    *metrics.Gauge
	replayed *metrics.Gauge
	states   *metrics.Counter
	refused  *metrics.CounterVec
}

func newMeters(registry metrics.KubeRegistry) *meters {
	m := &meters{
		replays: metrics.NewGauge(&metrics.GaugeOpts{Name: "keepwatch_past_replays",
			Help: "Open watches of the past."}),
		moments: metrics.NewGauge(&metrics.GaugeOpts{Name: "keepwatch_past_moments",
			Help: "States of a resource at a moment in memory, without those of replays."}),
		bytes: metrics.NewGauge(&metrics.GaugeOpts{Name: "keepwatch_past_moment_bytes",
			Help: "About what the objects of moments take in memory. What several share counts once."}),
		replayed: metrics.NewGauge(&metrics.GaugeOpts{Name: "keepwatch_past_replay_bytes",
			Help: "About what the objects of open watches take in memory: those they began with, of which what several share " +
				"counts once, and those of each since."}),
		states: metrics.NewCounter(&metrics.CounterOpts{Name: "keepwatch_past_states_read_total",
			Help: "States that were read for moments: all of them, or those in which a moment differs from one in memory."}),
		refused: metrics.NewCounterVec(&metrics.CounterOpts{Name: "keepwatch_past_refused_total",
			Help: "Requests answered with 429, and watches that end with it, since a bound was reached."}, []string{"bound"}),
	}
	registry.MustRegister(m.replays, m.moments, m.bytes, m.replayed, m.states, m.refused)
	for _, bound := range []string{boundReplays, boundMoments, boundBytes, boundCreations} {
		m.refused.WithLabelValues(bound)
	}
	return m
}

const boundReplays, boundMoments, boundBytes, boundCreations = "replays", "moments", "bytes", "creations"

// retrySeconds is the Retry-After of a refused request.
const retrySeconds = 5

// tooMany counts and returns the refusal of a request at a bound.
func (m *meters) tooMany(bound, message string) error {
	m.refused.WithLabelValues(bound).Inc()
	return apierrors.NewTooManyRequests(message, retrySeconds)
}

// metricsHandler serves a registry at /metrics, and lets nobody reset it.
func metricsHandler(registry metrics.KubeRegistry) http.Handler {
	all := mux.NewPathRecorderMux("keepwatch-past-metrics")
	servemetrics.Install(all, registry)
	return all
}
