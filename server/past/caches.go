package past

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/history"
)

const (
	// maxCaches bounds the caches of moments, and maxBytes what they have in memory together. A maxCaches-th of maxBytes
	// is left to each, whatever the others have.
	maxCaches = 64
	maxBytes  = 1 << 30
	// maxReplays is the default of Config.MaxReplays.
	maxReplays = 64
	// loadTimeout bounds the wait for the state of a moment.
	loadTimeout = time.Minute
)

// caches has the watch caches of resources at moments. It is safe for concurrent use.
type caches struct {
	history  *history.History
	budget   *readpath.Budget
	metrics  *watchcache.Metrics
	meters   *meters
	bound    int   // of replays
	maxBytes int64 // of moments, and of replays

	mu       sync.Mutex
	running  context.Context // of run; nil before and after
	active   sync.WaitGroup
	all      map[cacheKey]*entry
	families map[familyKey]*family
	uses     int // counts
	replays  int // open
	// bytes are those of the objects of all moments in memory: what several moments share counts once. loading are those
	// that are being read, and replayed those of the states that replays began with, and of what each has come to since.
	bytes, loading, replayed int64
}

// cacheKey is what a cache depends on. The mark is that of the request: once a list has begun, or ended, the moment is
// read again. While a list is under way, what was read first answers all requests.
type cacheKey struct {
	familyKey
	mark history.Mark
}

// entry is a resource at a moment. Its state does not change.
type entry struct {
	key    cacheKey
	family *family
	loaded chan struct{} // closed when the rest is set, or failed is
	failed error
	cache  *watchcache.Cache
	mark   history.Mark // when it was read
	// unknown is set if the moment was in a gap then, as after a thinning: objects may be missing.
	unknown *history.Unknown
	size    int64 // of its objects
	inUse   int
	last    int                // when it was used last, in uses
	cancel  context.CancelFunc // of its load
}

func newCaches(h *history.History, budget *readpath.Budget, metrics *watchcache.Metrics, meters *meters,
	replays int) *caches {
	return &caches{history: h, budget: budget, metrics: metrics, meters: meters, bound: replays, maxBytes: maxBytes,
		all: map[cacheKey]*entry{}, families: map[familyKey]*family{}}
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
	if of.watch { // before anything is read for it
		if err := c.mayReplay(); err != nil {
			return nil, nil, err
		}
	}
	e, err := c.still(of)
	if err != nil {
		return nil, nil, err
	}
	release := func() { c.release(e) }
	if err := c.await(ctx, of, e.loaded, nil); err != nil {
		release()
		return nil, nil, err
	}
	err = e.failed
	if err == nil && e.unknown != nil && !of.inGap {
		err = gone(e.unknown)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	if !of.watch {
		return e.family.readerAt(e.cache, of), release, nil
	}
	defer release()
	r, err := c.replay(ctx, e, of)
	if err != nil {
		return nil, nil, err
	}
	if err := c.await(ctx, of, r.cache.Ready(), r.cache.Ended()); err != nil {
		r.end()
		return nil, nil, err
	}
	return e.family.readerAt(r.cache, of), r.end, nil
}

// await waits until the state of a request is there.
func (c *caches) await(ctx context.Context, of *resolved, ready, ended <-chan struct{}) error {
	timeout := time.NewTimer(loadTimeout)
	defer timeout.Stop()
	var err error
	select {
	case <-ready:
		return nil
	case <-ended:
		err = errEnds
	case <-timeout.C:
		err = fmt.Errorf("the state of %s was not read within %v", of.resource.Resource, loadTimeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return apierrors.NewServiceUnavailable(err.Error())
}

var errEnds = errors.New("the server ends")

// still returns the entry of a resource at a moment, which it begins to read if nobody has.
func (c *caches) still(of *resolved) (*entry, error) {
	key := cacheKey{familyKeyOf(of), of.mark}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[key]
	if e == nil {
		if c.running == nil {
			return nil, apierrors.NewServiceUnavailable("the server is not running")
		}
		if len(c.all) >= maxCaches && !c.evict() {
			return nil, c.meters.tooMany(boundMoments,
				fmt.Sprintf("%d moments of resources are read at this time: try again later", len(c.all)))
		}
		f, err := c.familyOf(key.familyKey, of)
		if err != nil {
			return nil, err
		}
		e = &entry{key: key, family: f, loaded: make(chan struct{}), inUse: 1} // by its load
		c.all[key] = e
		f.entries++
		c.count()
		loading, cancel := context.WithCancel(c.running)
		e.cancel = cancel
		c.active.Go(func() {
			defer cancel()
			c.load(loading, e)
		})
	}
	c.uses++
	e.inUse, e.last = e.inUse+1, c.uses
	return e, nil
}

// count sets the metrics. c.mu is locked.
func (c *caches) count() {
	c.meters.moments.Set(float64(len(c.all)))
	c.meters.bytes.Set(float64(c.bytes + c.loading))
	c.meters.replays.Set(float64(c.replays))
	c.meters.replayed.Set(float64(c.replayed))
}

// release ends a use of an entry. A read that no request waits for any more goes on for a while: the client that has
// given up may ask again, and then finds it further on.
func (c *caches) release(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.inUse--; c.isLoading(e) && e.inUse == 1 {
		last := e.last
		time.AfterFunc(loadTimeout, func() { c.abandon(e, last) })
	}
}

// isLoading reports whether the state of an entry is being read for requests. c.mu is locked.
func (c *caches) isLoading(e *entry) bool { return c.all[e.key] == e && e.cache == nil }

// abandon ends the read of an entry that was not used since.
func (c *caches) abandon(e *entry, last int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isLoading(e) && e.last == last {
		c.drop(e)
		e.cancel()
	}
}

// evict drops the moment that was not used for the longest time, and reports whether there is one that is not in use.
// c.mu is locked.
func (c *caches) evict() bool {
	var oldest *entry
	last := math.MaxInt
	for _, e := range c.all {
		if e.inUse == 0 && e.last < last {
			oldest, last = e, e.last
		}
	}
	if oldest == nil {
		return false
	}
	c.drop(oldest)
	return true
}

// drop removes an entry. c.mu is locked.
func (c *caches) drop(e *entry) {
	delete(c.all, e.key)
	if e.family.entries--; e.family.entries == 0 {
		delete(c.families, e.key.familyKey)
	}
	if e.cache != nil {
		c.bytes -= unshare(e.cache.Snapshot(), byMoments)
	}
	c.count()
}

// load reads the state of an entry.
func (c *caches) load(ctx context.Context, e *entry) {
	l := &loading{caches: c, entry: e}
	snapshot, err := l.read(ctx)
	var all, alone int64
	if err == nil {
		all, alone = share(snapshot, byMoments)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(e.loaded)
	c.loading -= l.bytes
	e.inUse--
	abandoned := c.all[e.key] != e
	if err == nil && abandoned {
		unshare(snapshot, byMoments)
		err = errEnds
	}
	if err == nil {
		e.cache, e.mark, e.unknown = e.family.root.Still(snapshot), l.mark, l.unknown
		e.size = all
		c.bytes += alone
		c.shrink() // what it shared with a moment that was dropped meanwhile is its own
		c.count()
		return
	}
	if !abandoned {
		c.drop(e)
	}
	if !errors.As(err, new(apierrors.APIStatus)) {
		if ctx.Err() != nil {
			err = errEnds
		} else {
			klog.ErrorS(err, "The past of a resource cannot be read", "resource", e.key.resource, "revision",
				e.key.mark.Point.Revision)
		}
		err = apierrors.NewServiceUnavailable(err.Error())
	}
	e.failed = err
}

// reserve counts bytes that a load adds, which then has so many. It drops other moments for them, or returns an error
// if those are all in use. A load of few bytes is always possible, and the only moment in memory may have more than all
// together.
func (c *caches) reserve(bytes, loaded int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loading += bytes; c.shrink() || len(c.all) == 1 || loaded <= c.few() {
		return nil
	}
	return c.meters.tooMany(boundBytes, fmt.Sprintf(
		"the %d moments of resources that are read at this time have %d MiB: try again later", len(c.all),
		(c.bytes+c.loading)>>20))
}

// few are the bytes that a moment, or a replay, may add although the others have as many as they may have.
func (c *caches) few() int64 { return c.maxBytes / maxCaches }

// shrink drops moments that are not in use until the others have no more bytes than they may have, and reports whether
// they do. It drops none if those in use have more by themselves, unless only one is: that one may be the only moment
// in memory. c.mu is locked.
func (c *caches) shrink() bool {
	if c.bytes+c.loading <= c.maxBytes {
		return true
	}
	if n, bytes := c.inUse(); n > 1 && bytes+c.loading > c.maxBytes {
		return false
	}
	for c.bytes+c.loading > c.maxBytes {
		if !c.evict() {
			return false
		}
	}
	return true
}

// inUse returns how many moments are in use, and bytes that they have at least: those of one family may share all that
// the greatest of them has. c.mu is locked.
func (c *caches) inUse() (n int, bytes int64) {
	greatest := map[*family]int64{}
	for _, e := range c.all {
		if e.inUse > 0 {
			n++
			bytes += max(0, e.size-greatest[e.family])
			greatest[e.family] = max(greatest[e.family], e.size)
		}
	}
	return n, bytes
}

// familyKey is what the objects of a cache depend on, and what is derived from them.
type familyKey struct {
	resource   schema.GroupVersionResource
	kind       string
	namespaced bool
	namespace  string // of the stream
	table      tableSource
}

func familyKeyOf(of *resolved) familyKey {
	return familyKey{of.resource, of.format.kind.Kind, of.format.namespaced, of.stream.ID.Namespace, of.table}
}
