package proxy

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/proxy/internal/tables"
)

// activity is the use of a resource that is followed. It is safe for concurrent use.
type activity struct {
	watchers atomic.Int64
	lastRead atomic.Int64 // in Unix nanoseconds
}

// read records a request. The caller calls the returned function at its end.
func (a *activity) read(watch bool) (end func()) {
	a.lastRead.Store(time.Now().UnixNano())
	if !watch {
		return func() {}
	}
	a.watchers.Add(1)
	return func() {
		a.watchers.Add(-1)
		a.lastRead.Store(time.Now().UnixNano())
	}
}

// idle reports whether no watch is open and no read was recent.
func (a *activity) idle(now time.Time) bool {
	return a.watchers.Load() == 0 && now.Sub(time.Unix(0, a.lastRead.Load())) > idleAfter
}

// bytes returns the size of a resource's objects: until it has caught up, of those that its list has read so far.
func (f *follower) bytes() int64 {
	if f.reader.Cache().ReadinessCheck() != nil {
		return f.source.ListedBytes()
	}
	return f.reader.Cache().Bytes()
}

// followed returns the resources that are followed, once for each representation.
func (c *caches) followed() []*follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*follower
	for _, e := range c.all {
		all = slices.AppendSeq(all, maps.Values(e.followers))
	}
	return all
}

// tables returns the objects that are followed, as their Tables need them.
func (c *caches) tables() (all []*tables.Objects) {
	for _, f := range c.followed() {
		all = append(all, f.tables)
	}
	return all
}

// knows reports whether the server has described a resource, so that it may be the value of a metric's label.
func (c *caches) knows(of schema.GroupVersionResource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[of]
	return e != nil && e.described
}
