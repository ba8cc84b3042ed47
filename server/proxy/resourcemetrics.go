package proxy

import (
	"maps"
	"strings"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
)

// resourceMetrics shows the resources that are followed, at the time of each scrape.
type resourceMetrics struct {
	metrics.BaseStableCollector
	caches *caches
}

func describeMetric(name, help string, labels ...string) *metrics.Desc {
	labels = append([]string{"group", "version", "resource", "encoding"}, labels...)
	return metrics.NewDesc("keepwatch_proxy_"+name, help, labels, nil, metrics.ALPHA, "")
}

var (
	stateMetric = describeMetric("resource_state",
		"1 for the state in which the proxy follows the resource: syncing, live, stalled, relisting, unauthorized, forbidden, absent.", "state")
	confirmedMetric = describeMetric("resource_confirmed_age_seconds",
		"Time since the API server has last confirmed that the proxy's state is current: by an event, a bookmark, or the end of a list.")
	objectsMetric = describeMetric("resource_objects", "Objects in the newest state.")
	bytesMetric   = describeMetric("resource_bytes",
		"Bytes of the objects in the newest state, without indexes and history.")
	watchersMetric = describeMetric("resource_watchers", "Open watches that are answered from the cache.")
	listsMetric    = describeMetric("resource_lists_total",
		"Lists from the API server since the resource is followed: the first, by the reason start, and the others by the failure that led to them.", "reason")
)

// relisting are the failures with a count of 0 from the beginning: Prometheus does not see the first increase of a
// counter that appears with it.
var relisting = []keepwatch.FailureKind{keepwatch.Expired, keepwatch.Silent, keepwatch.Redefined, keepwatch.Rewound}

func registerResources(registry metrics.KubeRegistry, c *caches) {
	registry.CustomMustRegister(&resourceMetrics{caches: c})
}

// DescribeWithStability implements metrics.StableCollector.
func (*resourceMetrics) DescribeWithStability(to chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{stateMetric, confirmedMetric, objectsMetric, bytesMetric, watchersMetric,
		listsMetric} {
		to <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (m *resourceMetrics) CollectWithStability(to chan<- metrics.Metric) {
	for _, s := range m.caches.status() {
		labels := []string{s.Group, s.Version, s.Resource, s.Encoding}
		gauge := func(d *metrics.Desc, value float64, more ...string) {
			to <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, append(labels[:4:4], more...)...)
		}
		gauge(stateMetric, 1, strings.ToLower(string(s.State)))
		if s.Confirmed != nil {
			gauge(confirmedMetric, time.Since(*s.Confirmed).Seconds())
		}
		gauge(objectsMetric, float64(s.Objects))
		gauge(bytesMetric, float64(s.Bytes))
		gauge(watchersMetric, float64(s.Watchers))
		lists := map[string]uint64{}
		for _, reason := range relisting {
			lists[strings.ToLower(reason.String())] = 0
		}
		maps.Copy(lists, s.Lists)
		for reason, n := range lists {
			to <- metrics.NewLazyConstMetric(listsMetric, metrics.CounterValue, float64(n), append(labels[:4:4], reason)...)
		}
	}
}
