package storage

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

// Metrics are the counts that a watch cache does not have, of all storages that share them. What else a
// storage counts is the watch cache's own, wherever it means the same: names, labels and buckets are
// k8s.io/apiserver's, and so is the registry, which all servers of a process share.
type Metrics struct {
	resumptions, expirations, relists, ignoredKeys *metrics.CounterVec
}

// Registry is where metrics are registered: a metrics.KubeRegistry.
type Registry interface {
	MustRegister(...metrics.Registerable)
}

// NewMetrics registers the counts of a server's storages.
func NewMetrics(registry Registry) *Metrics {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		labels = append([]string{"group", "resource"}, labels...)
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	m := &Metrics{
		resumptions: counter("keepwatch_watch_resumptions_total", "Watches that went on from a revision, by what they were told of what came since: "+
			"exact (the history), difference (of the two states), or expired (nothing, but 410).", "answer"),
		expirations: counter("keepwatch_watches_expired_total",
			"Watches that ended with 410 because what they had missed was no longer known, at their beginning or later."),
		relists: counter("keepwatch_storage_relists_total", "Lists of a resource from etcd after the first, by the failure that ended the watch for good: "+
			"a protocol violation, an expired revision, a restored etcd, and so on.", "reason"),
		ignoredKeys: counter("keepwatch_storage_ignored_keys_total",
			"Keys that were read below a resource's prefix in etcd and have not the form of its keys, each time."),
	}
	registry.MustRegister(m.resumptions, m.expirations, m.relists, m.ignoredKeys)
	return m
}

// answer is what a watch that goes on from a revision is told first.
type answer string

const (
	exact      answer = "exact"
	difference answer = "difference"
	gone       answer = "expired"
)

// meter counts for one resource. Counters are looked up each time, since an API server
// can be told to reset them.
type meter struct {
	schema.GroupResource
	*Metrics
}

func (m meter) resumed(a answer) {
	m.resumptions.WithLabelValues(m.Group, m.Resource, string(a)).Inc()
}

// expired counts a watch that ends with 410.
func (m meter) expired() { m.expirations.WithLabelValues(m.Group, m.Resource).Inc() }

// relisted counts a list that a failure has led to.
func (m meter) relisted(reason keepwatch.FailureKind) {
	m.relists.WithLabelValues(m.Group, m.Resource, reason.String()).Inc()
}

// ignored counts a key that is no object's.
func (m meter) ignored() { m.ignoredKeys.WithLabelValues(m.Group, m.Resource).Inc() }

// initialized counts that a store has caught up with etcd for the first time.
func (m meter) initialized(since time.Time) {
	cachermetrics.WatchCacheInitializations.WithLabelValues(m.Group, m.Resource).Inc()
	cachermetrics.WatchCacheInitializationDuration.WithLabelValues(m.Group, m.Resource).Observe(time.Since(since).Seconds())
}

// waited counts that a read had to wait for the store.
func (m meter) waited(ctx context.Context, since time.Time) {
	cachermetrics.WatchCacheReadWait.WithContext(ctx).WithLabelValues(m.Group, m.Resource).Observe(time.Since(since).Seconds())
}

// consistent counts a consistent read, and whether etcd had to answer it.
func (m meter) consistent(err error, fallback bool) {
	cachermetrics.ConsistentReadTotal.WithLabelValues(m.Group, m.Resource,
		strconv.FormatBool(err == nil), strconv.FormatBool(fallback)).Inc()
}

// initial counts events that a watch was told before it had caught up.
func (m meter) initial(events int) {
	if events > 0 {
		cachermetrics.InitCounter.WithLabelValues(m.Group, m.Resource).Add(float64(events))
	}
}

// holds records how far the store has come.
func (m meter) holds(r keepwatch.Revision) {
	cachermetrics.RecordResourceVersion(m.GroupResource, uint64(r))
}

// metered is a store that counts what it takes.
type metered struct {
	*store.Store
	meter meter
}

// Apply counts what came, and what of it was news: all watches can read that at once.
func (t metered) Apply(ctx context.Context, batch keepwatch.Batch) (dropped int, err error) {
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
	t.meter.holds(t.Held())
	return dropped, nil
}

// Replace records how far the list brings the store.
func (t metered) Replace(ctx context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	list, err := t.Store.Replace(ctx, relist)
	if err != nil {
		return nil, err
	}
	return meteredList{list, t.meter}, nil
}

type meteredList struct {
	keepwatch.Replacement
	meter meter
}

func (l meteredList) Commit(ctx context.Context, to keepwatch.Revision) error {
	err := l.Replacement.Commit(ctx, to)
	if err == nil {
		l.meter.holds(to)
	}
	return err
}
