package storage

import (
	"context"
	"fmt"
	"sync"

	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/internal/recent"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

var _ apistorage.Interface = (*Storage)(nil)

// Storage is one resource's storage. It answers while Run runs. It is safe for concurrent use.
type Storage struct {
	config Config
	etcd   apistorage.Interface
	cache  *watchcache.Cache
	source *source
	meter  meter
	shared *recent.Cache[sharedKey, *sharedObject]
}

// New returns a storage. It reads nothing; Run does. It returns an error for an invalid config.
func New(config Config) (*Storage, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Metrics == nil {
		config.Metrics = NewMetrics(metrics.NewKubeRegistry())
	}
	if config.Transformer == nil {
		config.Transformer = identity.NewEncryptCheckTransformer()
	}
	s := &Storage{
		config: config,
		etcd:   config.Etcd,
		meter:  meter{config.GroupResource, config.Metrics},
		shared: newSharedObjects(),
	}
	caching := config.cache()
	if config.Memory == nil { // which has no more history than the cache
		caching.Compacted = func() keepwatch.Revision { return keepwatch.Revision(s.CompactRevision()) }
	}
	var err error
	s.cache, err = watchcache.New(caching, func(cache *watchcache.Cache) (watchcache.Source, error) {
		s.source, err = newSource(config, cache, s.meter)
		return s.source, err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Run follows etcd until ctx is done, or until an invariant does not hold, which it returns as an
// error. It is called once.
func (s *Storage) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var checks sync.WaitGroup
	defer checks.Wait()
	defer cancel()
	if s.source.etcd != nil {
		checks.Go(func() { s.checkRegularly(ctx) })
	}
	return s.cache.Run(ctx)
}

// Start runs the storage until stop is called, which waits for its end. A storage that ends before
// that can no longer be trusted and answers nothing; failed is then called with the cause and
// should end the process.
func (s *Storage) Start(failed func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); ctx.Err() == nil {
			failed(fmt.Errorf("the storage of %s stopped: %w", s.config.GroupResource, err))
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// Cache returns the watch cache that the storage reads from.
func (s *Storage) Cache() *watchcache.Cache { return s.cache }

// ReadinessCheck fails before the cache has caught up with etcd, and after Run.
func (s *Storage) ReadinessCheck() error { return s.cache.ReadinessCheck() }

// Versioner returns etcd3's.
func (s *Storage) Versioner() apistorage.Versioner { return s.etcd.Versioner() }

// GetCurrentResourceVersion returns etcd's newest revision, by a quorum read that began after the
// call.
func (s *Storage) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	newest, err := s.newest(ctx)
	return uint64(newest), err
}

// RequestWatchProgress makes the cache reach etcd's newest revision. It blocks until a quorum read
// has returned that revision, but not until the cache has reached it. Watches with ProgressNotify
// then receive a bookmark.
func (s *Storage) RequestWatchProgress(ctx context.Context) error {
	_, err := s.newest(ctx)
	return err
}

func (s *Storage) newest(ctx context.Context) (keepwatch.Revision, error) {
	return s.source.Newest(ctx)
}

// CompactRevision returns the newest compacted revision that etcd3 knows.
func (s *Storage) CompactRevision() int64 { return s.etcd.CompactRevision() }

// EnableResourceSizeEstimation does nothing: Stats knows the sizes.
func (s *Storage) EnableResourceSizeEstimation(apistorage.KeysFunc) error { return nil }
