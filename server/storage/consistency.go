package storage

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
	cachermetrics "k8s.io/apiserver/pkg/storage/cacher/metrics"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
)

// checkRegularly compares the cache with etcd until ctx is done, as often as k8s.io/apiserver's watch cache does, under
// the same feature gate.
func (s *Storage) checkRegularly(ctx context.Context) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DetectCacheInconsistency) &&
		!consistency.PanicOnCacheInconsistency {
		return
	}
	for {
		select {
		case <-time.After(wait.Jitter(consistency.CheckPeriod, 0.5)):
			s.checkConsistency(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// checkConsistency compares the keys and revisions in the cache with those that etcd has at the cache's revision. If
// they differ, the cache lists again.
func (s *Storage) checkConsistency(ctx context.Context) {
	difference, err := s.compare(ctx)
	if ctx.Err() != nil {
		return
	}
	status := "success"
	switch {
	case err != nil:
		status = "error"
		klog.ErrorS(err, "The cache could not be compared with etcd", "resource", s.config.GroupResource)
	case difference != "":
		status = "failure"
		klog.ErrorS(nil, "The cache differs from etcd", "resource", s.config.GroupResource, "difference", difference)
	}
	cachermetrics.StorageConsistencyCheckTotal.WithLabelValues(s.config.GroupResource.Group,
		s.config.GroupResource.Resource, status).Inc()
	if status != "failure" {
		return
	}
	if consistency.PanicOnCacheInconsistency {
		panic(fmt.Sprintf("the cache of %s differs from etcd: %s", s.config.GroupResource, difference))
	}
	s.source.etcd.EndWatches(keepwatch.Failed(keepwatch.ProtocolViolation, "the cache differs from etcd: %s", difference))
}

// compare returns the first difference between the cache and etcd, empty if there is none.
func (s *Storage) compare(ctx context.Context) (difference string, err error) {
	if err := s.ReadinessCheck(); err != nil {
		return "", err
	}
	snapshot, keys := s.cache.Snapshot(), 0
	at := snapshot.Revision()
	err = s.source.etcd.Revisions(ctx, at, func(key keepwatch.Key, revision keepwatch.Revision) {
		keys++
		if difference != "" {
			return
		}
		if o, ok := snapshot.Get(key); !ok {
			difference = fmt.Sprintf("at revision %d the cache lacks %s, which etcd has at %d", at, key, revision)
		} else if o.Revision() != revision {
			difference = fmt.Sprintf("at revision %d the cache has %s at %d, etcd at %d", at, key, o.Revision(), revision)
		}
	})
	if difference == "" && keys != snapshot.Len() {
		difference = fmt.Sprintf("at revision %d the cache has %d objects, etcd %d", at, snapshot.Len(), keys)
	}
	return difference, err
}
