package watchcache

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	cachermetrics "k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Metrics counts for all caches that share it what kube-apiserver's watch cache does not count.
// Where both count the same, names, labels and buckets are k8s.io/apiserver's, and so is the
// registry, which all servers of a process share.
type Metrics struct {
	resumptions, expirations, relists, selections *metrics.CounterVec
	termIndexes, termIndexBytes                   *metrics.GaugeVec
}

// Registry is where metrics are registered: a metrics.KubeRegistry.
type Registry interface {
	MustRegister(...metrics.Registerable)
}

// NewMetrics registers the metrics of a server's caches.
func NewMetrics(registry Registry) *Metrics {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		labels = append([]string{"group", "resource"}, labels...)
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	gauge := func(name, help string) *metrics.GaugeVec {
		labels := []string{"group", "resource"}
		return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	m := &Metrics{
		resumptions: counter("keepwatch_watch_resumptions_total",
			"Watches that resumed from a revision, by what they received first: "+
				"exact (the history), difference (of the two states), or expired (nothing, but 410).", "answer"),
		expirations: counter("keepwatch_watches_expired_total",
			"Watches that ended with 410 because what they had missed was no longer known, at their beginning or later."),
		relists: counter("keepwatch_storage_relists_total",
			"Lists of a resource from etcd after the first, by the failure that ended the watch: "+
				"a protocol violation, an expired revision, a restored etcd, and so on.", "reason"),
		selections: counter("keepwatch_selective_lists_total", "Lists with selectors, by how their objects were found: "+
			"index (of a label or field that they require) or scan (of all objects).", "by"),
		termIndexes: gauge("keepwatch_selector_indexes",
			"Indexes of labels and fields, which lists with selectors have required again and again."),
		termIndexBytes: gauge("keepwatch_selector_indexes_bytes", "Memory of these indexes."),
	}
	registry.MustRegister(m.resumptions, m.expirations, m.relists, m.selections, m.termIndexes, m.termIndexBytes)
	return m
}

// resumption is what a watch that resumes from a revision receives first.
type resumption string

const (
	exact      resumption = "exact"
	difference resumption = "difference"
	expired    resumption = "expired"
)

// meter counts for one resource. It looks counters up each time, since an API server can reset
// them.
type meter struct {
	schema.GroupResource
	*Metrics
}

func (m meter) resumed(r resumption) {
	m.resumptions.WithLabelValues(m.Group, m.Resource, string(r)).Inc()
}

// expired counts a watch that ends with 410.
func (m meter) expired() { m.expirations.WithLabelValues(m.Group, m.Resource).Inc() }

// relisted counts a list that a failure caused.
func (m meter) relisted(reason keepwatch.FailureKind) {
	m.relists.WithLabelValues(m.Group, m.Resource, reason.String()).Inc()
}

// lookup is how a list with selectors finds its objects.
type lookup string

const (
	lookupIndex lookup = "index"
	lookupScan  lookup = "scan"
)

// selected counts a list with selectors.
func (m meter) selected(by lookup) {
	m.selections.WithLabelValues(m.Group, m.Resource, string(by)).Inc()
}

// indexed counts term indexes that were added, and their memory, or dropped if negative.
func (m meter) indexed(count, bytes int) {
	m.termIndexes.WithLabelValues(m.Group, m.Resource).Add(float64(count))
	m.termIndexBytes.WithLabelValues(m.Group, m.Resource).Add(float64(bytes))
}

// initialized counts a cache that has caught up with its source for the first time.
func (m meter) initialized(since time.Time) {
	cachermetrics.WatchCacheInitializations.WithLabelValues(m.Group, m.Resource).Inc()
	cachermetrics.WatchCacheInitializationDuration.WithLabelValues(m.Group,
		m.Resource).Observe(time.Since(since).Seconds())
}

// waited counts a read that had to wait for the cache.
func (m meter) waited(ctx context.Context, since time.Time) {
	cachermetrics.WatchCacheReadWait.WithContext(ctx).WithLabelValues(m.Group,
		m.Resource).Observe(time.Since(since).Seconds())
}

// consistent counts a consistent read that the cache has answered, with an error or without.
func (m meter) consistent(err error) {
	cachermetrics.ConsistentReadTotal.WithLabelValues(m.Group, m.Resource, strconv.FormatBool(err == nil), "false").Inc()
}

// initial counts events that a watch delivered before it had caught up.
func (m meter) initial(events int) {
	if events > 0 {
		cachermetrics.InitCounter.WithLabelValues(m.Group, m.Resource).Add(float64(events))
	}
}

// shardedWatchBegins and shardedWatchEnds count the open watches with a shard selector. otherShard counts
// an object that one of them did not deliver because of it.
func (m meter) shardedWatchBegins() { cachermetrics.RecordShardedWatchStarted(m.GroupResource) }
func (m meter) shardedWatchEnds()   { cachermetrics.RecordShardedWatchStopped(m.GroupResource) }
func (m meter) otherShard()         { cachermetrics.RecordWatchFilteredEvent(m.GroupResource) }

// reached records the revision that the cache has reached.
func (m meter) reached(r keepwatch.Revision) {
	cachermetrics.RecordResourceVersion(m.GroupResource, uint64(r))
}

// meteredTarget is a store that counts what it receives.
type meteredTarget struct {
	*store.Store
	meter meter
}

// Apply counts the changes of a batch, and those of them that were new: all watches can read them
// at once.
func (t meteredTarget) Apply(ctx context.Context, batch keepwatch.Batch) (dropped int, err error) {
	dropped, err = t.Store.Apply(ctx, batch)
	if n := len(batch.Changes); n > 0 {
		cachermetrics.EventsReceivedCounter.WithLabelValues(t.meter.Group, t.meter.Resource).Add(float64(n))
	}
	if err != nil {
		return dropped, err
	}
	if n := len(batch.Changes) - dropped; n > 0 {
		cachermetrics.EventsCounter.WithLabelValues(t.meter.Group, t.meter.Resource).Add(float64(n))
	}
	t.meter.reached(t.Revision())
	return dropped, nil
}

// Replace records the revision that the list brings the cache to.
func (t meteredTarget) Replace(ctx context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	list, err := t.Store.Replace(ctx, relist)
	if err != nil {
		return nil, err
	}
	return meteredReplacement{list, t.meter}, nil
}

type meteredReplacement struct {
	keepwatch.Replacement
	meter meter
}

func (l meteredReplacement) Commit(ctx context.Context, to keepwatch.Revision) error {
	err := l.Replacement.Commit(ctx, to)
	if err == nil {
		l.meter.reached(to)
	}
	return err
}
