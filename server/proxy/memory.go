package proxy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// memoryCheck is how often the used memory is compared with the limit.
	memoryCheck = time.Second
	// objectsShare of the limit may be in use after a garbage collection: the rest is for what is garbage until
	// the next one, and for stacks and buffers.
	objectsShare = 0.7
	// forgottenFor is how long a resource is left to the server after it was given up for memory.
	forgottenFor = 10 * time.Minute
	// idleAfter is the time without a read after which a resource without watches is idle.
	idleAfter = time.Minute
)

// outOfMemory is why a resource is given up when the memory has no room left.
type outOfMemory struct{ bytes int64 } // of its objects

func (o outOfMemory) Error() string {
	return fmt.Sprintf("the memory limit is reached, and its objects have %d bytes", o.bytes)
}

// hasMemory reports whether objects of a size may be cached again.
func (c *caches) hasMemory(bytes int64) bool {
	return bytes == 0 || c.memoryLimit == 0 || float64(liveBytes())+2*float64(bytes) < objectsShare*float64(c.memoryLimit)
}

// limitMemory gives up resources when the memory has no room left, one at a time, until ctx ends. A limit of zero is
// none.
func (c *caches) limitMemory(ctx context.Context) {
	if c.memoryLimit == 0 {
		return
	}
	ticker := time.NewTicker(c.memoryCheck)
	defer ticker.Stop()
	var rest leftovers
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if rest.drop() {
			runtime.GC()
		}
		if float64(liveBytes())-float64(rest.bytes()) <= objectsShare*float64(c.memoryLimit) {
			continue
		}
		rest = append(rest, c.giveUpOne()...)
		runtime.GC() // the next comparison is without it
	}
}

// leftovers are given up, and remain in memory until the last of their watches ends: a minute, if its client reads
// nothing. No other resource is given up in their place.
type leftovers []leftover

// leftover is what is left of a follower.
type leftover struct {
	watchers *atomic.Int64
	size     int64 // of its objects
}

// drop forgets those that are no longer in memory, and reports whether there were any.
func (l *leftovers) drop() bool {
	before := len(*l)
	*l = slices.DeleteFunc(*l, func(one leftover) bool { return one.watchers.Load() == 0 })
	return len(*l) < before
}

func (l leftovers) bytes() (sum int64) {
	for _, one := range l {
		sum += one.size
	}
	return sum
}

// liveBytes returns the bytes of the heap that the last garbage collection has found in use.
func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// largeList is the size of a resource's objects from which on the garbage of reading them is returned to the system.
const largeList = 32 << 20

// returnGarbage returns the garbage of a large first list to the system, when the list is complete, and that of reading
// its objects for selectors, which follows in the background. Go would keep both for as long as no memory is missing.
func (c *caches) returnGarbage(ctx context.Context, f *follower) {
	cache := f.reader.Cache()
	awaitReady(ctx, cache)
	if f.bytes() < c.largeList {
		return
	}
	c.freeMemory()
	select {
	case <-cache.Warmed():
		c.freeMemory()
	case <-cache.Ended():
	case <-ctx.Done():
	}
}

// giveUpOne leaves a resource to the server: the largest idle one, or the largest if none is idle. It waits until the
// resource's caches have ended, and returns what watches may still keep of them. It returns nothing if no resource is
// followed.
func (c *caches) giveUpOne() (rest leftovers) {
	byResource := map[schema.GroupVersionResource][]*follower{}
	for _, f := range c.followed() {
		byResource[f.resource] = append(byResource[f.resource], f)
	}
	if len(byResource) == 0 {
		return nil
	}
	now := time.Now()
	given := slices.MaxFunc(slices.Collect(maps.Values(byResource)), func(a, b []*follower) int {
		return usageOf(a, now).compare(usageOf(b, now))
	})
	for _, f := range given {
		rest = append(rest, leftover{&f.watchers, f.bytes()})
	}
	given[0].gone(outOfMemory{rest.bytes()}) // in all representations
	for _, f := range given {
		<-f.reader.Cache().Ended()
	}
	return rest
}

// usage is what a resource is given up by.
type usage struct {
	idle  bool
	bytes int64
}

// usageOf returns the usage of a resource with one follower for each representation.
func usageOf(followers []*follower, now time.Time) usage {
	u := usage{idle: true}
	for _, f := range followers {
		u.idle = u.idle && f.idle(now)
		u.bytes += f.bytes()
	}
	return u
}

// compare returns 1 if a is given up before b.
func (a usage) compare(b usage) int {
	switch {
	case a.idle == b.idle:
		return cmp.Compare(a.bytes, b.bytes)
	case a.idle:
		return 1
	}
	return -1
}
