package storage

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	cachermetrics "k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// Metrics counts for all storages that share it: what their watch caches count, and the keys that
// they ignore.
type Metrics struct {
	cache       *watchcache.Metrics
	ignoredKeys *metrics.CounterVec
}

// NewMetrics registers the metrics of a server's storages.
func NewMetrics(registry watchcache.Registry) *Metrics {
	m := &Metrics{
		cache: watchcache.NewMetrics(registry),
		ignoredKeys: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "keepwatch_storage_ignored_keys_total",
			Help:           "Keys that were read below a resource's prefix in etcd and do not have the form of its keys, each time.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"group", "resource"}),
	}
	registry.MustRegister(m.ignoredKeys)
	return m
}

// meter counts for one resource.
type meter struct {
	schema.GroupResource
	*Metrics
}

// ignored counts a key that belongs to no object.
func (m meter) ignored() { m.ignoredKeys.WithLabelValues(m.Group, m.Resource).Inc() }

// fallback counts a consistent read that etcd had to answer.
func (m meter) fallback(err error) {
	cachermetrics.ConsistentReadTotal.WithLabelValues(m.Group, m.Resource, strconv.FormatBool(err == nil), "true").Inc()
}
