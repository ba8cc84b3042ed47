package storage

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	cachermetrics "k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// resumptions and relists are the metrics that a watch cache does not have. The others
// are its own, wherever they mean the same: names, labels and buckets are k8s.io/apiserver's.
var resumptions = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "keepwatch_watch_resumptions_total",
	Help: "Watches that went on from a revision, by what they were told of what came since: " +
		"exact (the history), difference (of the two states), or expired (nothing, but 410).",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "resource", "answer"})

var relists = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "keepwatch_storage_relists_total",
	Help: "Lists of a resource from etcd after the first, by the failure that ended the watch for good: " +
		"a protocol violation, an expired revision, a restored etcd, and so on.",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "resource", "reason"})

// ignoredKeys counts what is below a resource's prefix without being an object of it.
var ignoredKeys = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "keepwatch_storage_ignored_keys_total",
	Help:           "Keys that were read below a resource's prefix in etcd and have not the form of its keys, each time.",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "resource"})

func init() { legacyregistry.MustRegister(resumptions, relists, ignoredKeys) }

// answer is what a watch that goes on from a revision is told first.
type answer string

const (
	exact      answer = "exact"
	difference answer = "difference"
	gone       answer = "expired"
)

// meter counts for one resource. Counters are looked up each time, since an API server
// can be told to reset them.
type meter schema.GroupResource

func (m meter) resumed(a answer) {
	resumptions.WithLabelValues(m.Group, m.Resource, string(a)).Inc()
}

// relisted counts a list that a failure has led to.
func (m meter) relisted(reason keepwatch.FailureKind) {
	relists.WithLabelValues(m.Group, m.Resource, reason.String()).Inc()
}

// ignored counts a key that is no object's.
func (m meter) ignored() { ignoredKeys.WithLabelValues(m.Group, m.Resource).Inc() }

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
	cachermetrics.RecordResourceVersion(schema.GroupResource(m), uint64(r))
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
