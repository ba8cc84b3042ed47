package health

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keepwatch/keepwatch"
)

var _ prometheus.Collector = (*Group)(nil)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("keepwatch_watch_"+name, help, append([]string{"informer"}, labels...), nil)
}

var (
	stateDesc         = desc("state", "1 for the state that the informer is in, 0 for the others.", "state")
	sinceDesc         = desc("state_since_timestamp_seconds", "When the informer entered its state.")
	lastEventDesc     = desc("last_event_timestamp_seconds", "When the last change arrived; 0 if none has.")
	lastConfirmedDesc = desc("last_confirmed_timestamp_seconds",
		"When the server last confirmed that the cache is current; 0 if it has not.")
	relistsDesc    = desc("relists_total", "Lists after the first, by what caused them.", "reason")
	reconnectsDesc = desc("reconnects_total",
		"New watches from the revision where the last one ended, by what ended it.", "reason")
	droppedDesc  = desc("dropped_events_total", "Events that were not new.")
	objectsDesc  = desc("objects", "Objects in the cache.")
	rejectedDesc = desc("rejected_objects", "Objects on the server that the cache skips.")
	handlersDesc = desc("handlers", "Event handlers.")
	behindDesc   = desc("handlers_behind", "Event handlers that have not received every change of the cache.")
	panicsDesc   = desc("handler_panics_total", "Panics in event handlers.")

	queuedDesc  = clientGoDesc("queued_items", "Number of items currently queued in the FIFO.")
	latencyDesc = clientGoDesc("processing_latency_seconds", "Time taken to process events after popping from the queue.")
	versionDesc = clientGoDesc("store_resource_version",
		"The 15 least significant digits of the resource version of the store.")
)

// clientGoDesc describes a series that client-go's informers export under the same name:
// see k8s.io/component-base/metrics/prometheus/clientgo/fifo. The help is theirs, word by
// word, since a registry cannot gather two that differ. The values here are: changes that
// the handler that lags most has yet to receive; how long each call of a handler took.
func clientGoDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("informer_"+name, "[ALPHA] "+help, []string{"name", "group", "version", "resource"}, nil)
}

// Describe sends nothing: the series depend on the informers that run, so that a registry
// takes the group as an unchecked collector.
func (g *Group) Describe(chan<- *prometheus.Desc) {}

// Collect sends the series of the informers that run.
func (g *Group) Collect(ch chan<- prometheus.Metric) {
	for m, name := range g.running() {
		status := m.Status()
		collect(ch, name, status)
		collectClientGo(ch, name, status, m)
	}
}

func collect(ch chan<- prometheus.Metric, name string, s Status) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{name}, labels...)...)
	}
	count := func(d *prometheus.Desc, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), append([]string{name}, labels...)...)
	}
	for _, state := range states {
		value := 0.0
		if s.State == state {
			value = 1
		}
		gauge(stateDesc, value, string(state))
	}
	gauge(sinceDesc, seconds(s.Since))
	gauge(lastEventDesc, seconds(s.LastEvent))
	gauge(lastConfirmedDesc, seconds(s.LastConfirmed))
	for _, kind := range keepwatch.FailureKinds() {
		if n := s.Relists[kind]; n > 0 {
			count(relistsDesc, n, kind.String())
		}
		if n := s.Reconnects[kind]; n > 0 {
			count(reconnectsDesc, n, kind.String())
		}
	}
	count(droppedDesc, s.Dropped)
	gauge(objectsDesc, float64(s.Objects))
	gauge(rejectedDesc, float64(len(s.Rejected)))
	gauge(handlersDesc, float64(s.Handlers))
	gauge(behindDesc, float64(s.Behind))
	count(panicsDesc, s.Panics)
}

// collectClientGo sends the series that client-go's informers also have.
func collectClientGo(ch chan<- prometheus.Metric, name string, s Status, m Member) {
	labels := []string{name, s.Resource.Group, s.Resource.Version, s.Resource.Resource}
	ch <- prometheus.MustNewConstMetric(queuedDesc, prometheus.GaugeValue, float64(m.Queued()), labels...)
	count, sum, within := m.Latency()
	ch <- prometheus.MustNewConstHistogram(latencyDesc, count, sum, within, labels...)
	if version, ok := lastDigits(s.ResourceVersion); ok {
		ch <- prometheus.MustNewConstMetric(versionDesc, prometheus.GaugeValue, version, labels...)
	}
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// lastDigits returns the number of a resource version, cut so that a float64 represents it
// exactly.
func lastDigits(version string) (float64, bool) {
	n, err := strconv.ParseUint(version[max(0, len(version)-15):], 10, 64)
	return float64(n), err == nil
}
