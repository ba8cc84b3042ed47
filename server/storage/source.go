package storage

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/server/source/memory"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// history is how many revisions before its start a storage reads, at most: those of five minutes,
// after which kube-apiserver compacts them, at 300 writes a second.
const history = 100_000

var _ watchcache.Source = (*source)(nil)

// records are one resource in etcd, or in memory.
type records interface {
	keepwatch.Source
	// Seed loads the state of at most back revisions ago, and the history since.
	Seed(ctx context.Context, target keepwatch.Target, back keepwatch.Revision) (keepwatch.Revision, error)
}

// source is one resource as a watch cache reads it.
type source struct {
	records
	etcd   *etcd.Source // records, if they are in etcd
	config Config
	meter  meter
	// accepts reports whether a key has the form of the resource's keys.
	accepts func(keepwatch.Key) bool
	stray   sync.Once // logs the first key that is ignored
}

func newSource(config Config, cache *watchcache.Cache, meter meter) (*source, error) {
	s := &source{config: config, meter: meter, accepts: cache.Accepts}
	if config.Memory != nil {
		s.records = config.Memory.Source(memory.Options{
			Prefix: config.root(), Accept: s.accept,
			Decode: func(o *memory.Object, value []byte) keepwatch.Object { return cache.NewObject(o, value) },
		})
		return s, nil
	}
	var err error
	s.etcd, err = etcd.New(config.Client, etcd.Options{
		Prefix: config.root(), Accept: s.accept, LastWrite: config.LastWrite,
		Decode:    func(o *etcd.Object, value []byte) (keepwatch.Object, error) { return cache.NewObject(o, value), nil },
		PagesOnly: !utilfeature.DefaultFeatureGate.Enabled(features.EtcdRangeStream),
	})
	s.records = s.etcd
	return s, err
}

// Seed fills target with the oldest state of the history, and the history since.
func (s *source) Seed(ctx context.Context, target keepwatch.Target) error {
	_, err := s.records.Seed(ctx, target, history)
	return err
}

// accept reports whether a key has the form of the resource's keys. It ignores others, whatever
// wrote them: they belong to no object of any namespace.
func (s *source) accept(key keepwatch.Key) bool {
	if s.accepts(key) {
		return true
	}
	s.meter.ignored()
	s.stray.Do(func() {
		klog.ErrorS(nil, "A key in etcd belongs to no object and is ignored; others like it will be ignored silently",
			"resource", s.config.GroupResource, "key", s.config.root()+key.String())
	})
	return false
}

// decrypt returns a function that removes the encryption from what etcd has of an object.
func (c Config) decrypt() func(context.Context, keepwatch.Key, []byte) ([]byte, error) {
	root := c.root()
	return func(ctx context.Context, key keepwatch.Key, encoded []byte) ([]byte, error) {
		path := root + key.String()
		plain, _, err := c.Transformer.TransformFromStorage(ctx, encoded, value.DefaultContext(path))
		if err != nil {
			return nil, fmt.Errorf("unable to transform key %q: %w", path, err)
		}
		return plain, nil
	}
}
