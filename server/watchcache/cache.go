package watchcache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	cachermetrics "k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

// Cache answers the reads of one resource as the Kubernetes API defines them, while Run runs. It is safe
// for concurrent use.
type Cache struct {
	*family
	source      Source
	store       *store.Store
	reflector   *reflector.Reflector // nil of a Still
	meter       meter
	termIndexes *termIndexes
	ready       chan struct{} // closed when the cache has caught up for the first time
	warmAfter   time.Duration
	warmed      chan struct{}   // closed when the objects of the start are decoded and indexed
	life        context.Context // ends with Run
	endLife     context.CancelFunc
	floor       atomic.Uint64 // the revision since which there is history; see DropHistory
	missed      atomic.Uint64 // the revision that a read waited for in vain
	pace        *pace         // nil unless the cache is one of At

	mu    sync.Mutex
	cause error // of Run's end; nil before
}

// versioner reads and writes resourceVersion.
var versioner apistorage.Versioner = apistorage.APIObjectVersioner{}

// New returns a cache of the source that newSource returns. The source makes its objects with
// the cache's NewObject. New reads nothing; Run does. It returns an error for an invalid config,
// and newSource's.
func New(config Config, newSource func(*Cache) (Source, error)) (*Cache, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	cachermetrics.Register()
	if config.Metrics == nil {
		config.Metrics = NewMetrics(metrics.NewKubeRegistry())
	}
	c := newFamily(config).newCache()
	c.store = store.New(c.storeOptions())
	if err := c.follow(newSource); err != nil {
		return nil, err
	}
	return c, nil
}

// newCache returns a cache without a store and a source.
func (f *family) newCache() *Cache {
	c := &Cache{
		family:      f,
		meter:       meter{f.config.GroupResource, f.config.Metrics},
		termIndexes: newTermIndexes(),
		ready:       make(chan struct{}),
		warmAfter:   warmAfter,
		warmed:      make(chan struct{}),
	}
	c.meter.indexed(0, 0) // the metrics show it
	c.life, c.endLife = context.WithCancel(context.Background())
	return c
}

// storeOptions returns the options of the cache's store.
func (c *Cache) storeOptions() store.Options {
	o := c.config.Store
	o.Size, o.Slim, o.Attributes, o.Term, o.Deleted = size, c.slim, c.attributesOf, c.termOf, c.deleted
	return o
}

// follow makes the cache follow the source that newSource returns.
func (c *Cache) follow(newSource func(*Cache) (Source, error)) (err error) {
	if c.source, err = newSource(c); err != nil {
		return err
	}
	c.reflector = reflector.New(c.source, c.target(), reflector.Options{
		// the difference needs the list's revision first
		StartupDeadline: -1, Observe: c.observe, Paged: c.config.Store.Records != nil,
	})
	return nil
}

func (c *Cache) target() meteredTarget { return meteredTarget{c.store, c.meter} }

// Run follows the source until ctx is done, or until an invariant does not hold, which it
// returns as an error. Watches then end without an error, or with ctx's cause if that is one of the API. Run is called
// once.
func (c *Cache) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.running.Store(&ctx)
	defer c.endLife()
	begun := time.Now()
	if c.store.Revision() > 0 { // it begins with a snapshot
	} else if err := c.source.Seed(ctx, c.target()); err != nil {
		klog.V(2).InfoS("Watch cache begins without history", "resource", c.config.GroupResource, "reason", err)
	}
	var started sync.WaitGroup
	var failed error
	started.Go(func() {
		if c.catchUp(ctx, begun); !c.caughtUp() {
			return
		}
		warmed, err := c.warm(ctx)
		if failed = err; failed != nil {
			cancel()
		}
		if warmed {
			c.indexTerms(ctx)
		}
	})
	err := c.reflector.Run(ctx)
	if cause := context.Cause(ctx); errors.As(cause, new(apierrors.APIStatus)) {
		err = cause
	}
	cancel()
	c.end(err)
	started.Wait()
	if failed != nil {
		err = errors.Join(failed, err)
		c.end(err)
	}
	return err
}

// end records why the cache no longer follows its source.
func (c *Cache) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = cause
}

// endOfWatches returns the error with which watches end when the cache has ended: the API's error that canceled Run's
// context, or nil.
func (c *Cache) endOfWatches() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.As(c.cause, new(apierrors.APIStatus)) {
		return c.cause
	}
	return nil
}

// observe logs failures. It always logs, and counts, failures that lead to a new list.
func (c *Cache) observe(n reflector.Notice) {
	if n.Failure == nil {
		return
	}
	if n.Decision == reflector.Relist {
		c.meter.relisted(n.Failure.Kind)
		klog.ErrorS(n.Failure, "Watch cache lists "+c.config.SourceName+" again", "resource", c.config.GroupResource,
			"reason", n.Failure.Kind, "wait", n.Wait, "revision", n.Revision)
		return
	}
	klog.V(2).InfoS("Watch cache follows "+c.config.SourceName, "resource", c.config.GroupResource,
		"state", n.State, "failure", n.Failure.Kind, "err", n.Failure, "decision", n.Decision, "revision", n.Revision)
}

// ReadinessCheck fails before the cache has caught up with its source, and after Run.
func (c *Cache) ReadinessCheck() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return fmt.Errorf("%w: %w", apistorage.ErrStorageNotReady, c.cause)
	}
	if !c.caughtUp() {
		return apistorage.ErrStorageNotReady
	}
	return nil
}

// Snapshot returns the newest state. It does not block. [Cache.Read] reads its objects.
func (c *Cache) Snapshot() *store.Snapshot { return c.store.Snapshot() }

// Revision returns the revision that the cache has reached. It is zero before the first list,
// and while a list has to come before any history.
func (c *Cache) Revision() keepwatch.Revision { return c.store.Revision() }

// Bounds returns the revisions from which a watch can resume: exactly since history, by a
// difference since difference.
func (c *Cache) Bounds() (history, difference keepwatch.Revision) { return c.store.Bounds() }

// DropHistory makes reads at an earlier revision fail with [ErrNotCached], and watches from one receive 410
// Expired, as if the history had just expired. Watches that have begun continue.
func (c *Cache) DropHistory() { c.floor.Store(uint64(c.store.Revision())) }

// dropped reports whether DropHistory dropped a revision.
func (c *Cache) dropped(revision keepwatch.Revision) bool {
	return revision > 0 && uint64(revision) < c.floor.Load()
}

// ResourcePrefix returns the beginning of the keys of requests: "/pods".
func (c *Cache) ResourcePrefix() string { return strings.TrimSuffix(c.config.ResourcePrefix, "/") }

// Served returns the version that [Object.Bytes] are in, empty if that is the version of the type that
// NewFunc returns.
func (c *Cache) Served() schema.GroupVersion {
	if c.config.Served == nil {
		return schema.GroupVersion{}
	}
	return c.config.Served.GroupVersion
}

// MessageType returns the Go type whose messages [Object.Bytes] returns, if they are protobuf.
func (c *Cache) MessageType() reflect.Type { return c.messages }

// Warmed is closed when the objects that the cache read at its start are decoded and indexed.
// That is some time after the cache is ready, since no request waits for it.
func (c *Cache) Warmed() <-chan struct{} { return c.warmed }

// Ended is closed when Run has ended.
func (c *Cache) Ended() <-chan struct{} { return c.life.Done() }

// AfterEnd calls f in a goroutine of its own when Run has ended. stop prevents that, and reports whether it did.
func (c *Cache) AfterEnd(f func()) (stop func() bool) { return context.AfterFunc(c.life, f) }

// BookmarkObject returns the object of a bookmark event: of the resource's type, with a revision
// and nothing else. After the initial events it has an annotation.
func (c *Cache) BookmarkObject(e Event) (runtime.Object, error) {
	o := c.config.NewFunc()
	err := versioner.UpdateObject(o, uint64(e.Revision))
	if err == nil && e.InitialEnd {
		err = apistorage.AnnotateInitialEventsEndBookmark(o)
	}
	return o, err
}
