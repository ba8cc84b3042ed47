package past

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

const (
	// maxCaches bounds the caches of moments.
	maxCaches = 64
	// maxReplays is the default of Config.MaxReplays.
	maxReplays = 64
	// loadTimeout bounds the wait for the state of a moment.
	loadTimeout = time.Minute
)

// caches has the watch caches of resources at moments. It is safe for concurrent use.
type caches struct {
	history *history.History
	budget  *readpath.Budget
	metrics *watchcache.Metrics
	meters  *meters
	bound   int // of replays

	mu      sync.Mutex
	running context.Context // of run; nil before and after
	active  sync.WaitGroup
	all     map[cacheKey]*entry
	uses    int // counts
	replays int // open
}

// cacheKey is what a cache depends on.
type cacheKey struct {
	resource  schema.GroupVersionResource
	namespace string // of the stream
	point     sink.Point
	table     tableSource
}

// entry is a resource at a moment.
type entry struct {
	cache  *watchcache.Cache
	reader *readpath.Reader // nil before the first request
	end    context.CancelFunc
	inUse  int
	replay bool // for one watch
	last   int  // when it was used last, in uses
}

func newCaches(h *history.History, budget *readpath.Budget, metrics *watchcache.Metrics, meters *meters,
	replays int) *caches {
	return &caches{history: h, budget: budget, metrics: metrics, meters: meters, bound: replays,
		all: map[cacheKey]*entry{}}
}

func (c *caches) run(ctx context.Context) {
	c.mu.Lock()
	c.running = ctx
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.running = nil
	c.mu.Unlock()
	c.active.Wait()
}

// reader returns the reader that answers a request, once its cache has its state. release must be called when the
// request has ended.
func (c *caches) reader(ctx context.Context, of *resolved) (*readpath.Reader, func(), error) {
	var e *entry
	var err error
	release := func() { c.release(e) }
	if of.watch {
		if e, err = c.replay(ctx, of); err == nil {
			release = e.end
		}
	} else {
		e, err = c.still(of)
	}
	if err != nil {
		return nil, nil, err
	}
	timeout := time.NewTimer(loadTimeout)
	defer timeout.Stop()
	select {
	case <-e.cache.Ready():
		reader, err := c.readerOf(e, of)
		if err != nil {
			release()
			return nil, nil, err
		}
		return reader, release, nil
	case <-e.cache.Ended():
		err = errors.New("the server ends")
	case <-timeout.C:
		err = fmt.Errorf("the state of %s was not read within %v", of.resource.Resource, loadTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	release()
	return nil, nil, apierrors.NewServiceUnavailable(err.Error())
}

// still returns the entry of a resource at a moment, which it begins to read if nobody has.
func (c *caches) still(of *resolved) (*entry, error) {
	key := cacheKey{of.resource, of.stream.ID.Namespace, of.point, of.table}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[key]
	if e == nil {
		if len(c.all) >= maxCaches && !c.evict() {
			return nil, c.meters.tooMany(boundMoments,
				fmt.Sprintf("%d moments of resources are read at this time: try again later", len(c.all)))
		}
		var err error
		if e, err = c.begin(context.Background(), of, history.SourceOptions{}); err != nil {
			return nil, err
		}
		c.all[key] = e
		c.meters.moments.Set(float64(len(c.all)))
	}
	c.uses++
	e.inUse, e.last = e.inUse+1, c.uses
	return e, nil
}

// replay returns an entry for one watch, which ends with the request.
func (c *caches) replay(ctx context.Context, of *resolved) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replays >= c.bound {
		return nil, c.meters.tooMany(boundReplays,
			fmt.Sprintf("%d watches of the past are open, which is the most: try again later", c.replays))
	}
	e, err := c.begin(ctx, of, history.SourceOptions{Onward: true, Speed: of.speed, Start: of.started})
	if err == nil {
		e.replay = true
		c.count(1)
	}
	return e, err
}

// count adds to the number of replays. c.mu is locked.
func (c *caches) count(n int) {
	c.replays += n
	c.meters.replays.Set(float64(c.replays))
}

func (c *caches) release(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.inUse--
}

// forget removes an entry whose cache has ended: the next request begins another one.
func (c *caches) forget(ended *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.all, func(_ cacheKey, e *entry) bool { return e == ended })
	c.meters.moments.Set(float64(len(c.all)))
	if ended.replay {
		c.count(-1)
	}
}

// evict ends the cache that was not used for the longest time, and reports whether there is one that is not in use.
// c.mu is locked.
func (c *caches) evict() bool {
	var oldest cacheKey
	last := math.MaxInt
	for key, e := range c.all {
		if e.inUse == 0 && e.last < last {
			oldest, last = key, e.last
		}
	}
	if last == math.MaxInt {
		return false
	}
	c.all[oldest].end()
	delete(c.all, oldest)
	return true
}

// begin runs the cache of a resource at a point until ctx or run ends. c.mu is locked.
func (c *caches) begin(ctx context.Context, of *resolved, options history.SourceOptions) (*entry, error) {
	if c.running == nil {
		return nil, apierrors.NewServiceUnavailable("the server is not running")
	}
	cache, err := c.newCache(of, options)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	stop := context.AfterFunc(c.running, end)
	e := &entry{cache: cache, end: end}
	c.active.Go(func() {
		defer stop()
		defer end()
		if err := cache.Run(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "The past of a resource cannot be read", "resource", of.resource, "revision", of.point.Revision)
		}
		c.forget(e)
	})
	return e, nil
}

// readerOf returns the reader of a cache whose Tables have the ages at the time of a moment. Moments that have one
// state share its cache, and the encodings in it.
func (c *caches) readerOf(e *entry, of *resolved) (*readpath.Reader, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.reader == nil {
		var err error
		if e.reader, err = c.newReader(e.cache, of); err != nil {
			return nil, err
		}
	}
	then := of.tableTime()
	if then.IsZero() {
		return e.reader, nil
	}
	return e.reader.At(func() time.Time { return then }), nil
}

// newReader returns a reader of a cache whose Tables have the ages of now.
func (c *caches) newReader(cache *watchcache.Cache, of *resolved) (*readpath.Reader, error) {
	table, err := of.tables.table(of)
	if err != nil {
		return nil, err
	}
	f := of.format
	return readpath.NewReader(readpath.Resource{
		Cache: cache, Resource: of.resource, Kind: f.kind, Namespaced: f.namespaced, Dynamic: f.dynamic,
		Serializer: of.tables.serializer, Table: table, FieldLabel: f.fieldLabel,
		Predicate: func(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
			return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: f.attributes}
		},
	}, c.budget)
}

func (c *caches) newCache(of *resolved, options history.SourceOptions) (*watchcache.Cache, error) {
	f := of.format
	options.Resource, options.Namespace, options.At = of.typ.Resource, of.stream.ID.Namespace, of.point
	return watchcache.New(watchcache.Config{
		GroupResource: of.resource.GroupResource(), ResourcePrefix: "/" + of.resource.Resource, Namespaced: f.namespaced,
		SourceName: "the history", SourcePrefix: of.resource.Resource + "/",
		Codec: f, NewFunc: f.newDocument, GetAttrs: f.attributes, Sharded: true, Metrics: c.metrics,
	}, func(cache *watchcache.Cache) (watchcache.Source, error) {
		options.Decode = func(o *history.Object) keepwatch.Object {
			text, err := f.item(o.JSON())
			if err != nil {
				text = o.JSON() // its readers get the error
			}
			return cache.NewObject(o, text)
		}
		return source{c.history.Source(options)}, nil
	})
}

// source is a resource of a history, as a watch cache reads it.
type source struct{ *history.Source }

// Seed fails: a moment has no history before it.
func (source) Seed(context.Context, keepwatch.Target) error {
	return errors.New("a moment has no history before it")
}
