package watchcache

import (
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"
	"weak"

	"k8s.io/klog/v2"
)

// unreadable is the set of a cache's objects that could not be decoded when that was tried last, or that a
// reader could not encode. It keeps no object alive, and does not reference the cache: the cleanups reference it.
type unreadable struct {
	mu  sync.Mutex
	all map[weak.Pointer[Object]]runtime.Cleanup // each removes its object
}

func newUnreadable() *unreadable { return &unreadable{all: map[weak.Pointer[Object]]runtime.Cleanup{}} }

// add adds an object if still returns true.
func (u *unreadable) add(o *Object, still func() bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := weak.Make(o)
	if _, known := u.all[p]; known || !still() {
		return
	}
	u.all[p] = runtime.AddCleanup(o, u.remove, p)
}

func (u *unreadable) remove(p weak.Pointer[Object]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	// An object that is unreadable and readable in turn has one cleanup at most.
	u.all[p].Stop()
	delete(u.all, p)
}

// Unencodable logs that a reader could not encode the object, so that a list ended within its body, and records
// it for [Cache.Unreadable].
func (o *Object) Unencodable(err error) {
	klog.ErrorS(err, "List ended at an object that can't be encoded", "resource", o.family.config.GroupResource, "key",
		o.Key())
	o.family.unreadable.add(o, func() bool { return true })
}

// Unreadable returns the listed objects of which it is known that they could not be decoded when that was tried
// last, or that a reader could not encode them. Of objects that nobody has read since the start it is not known.
func (c *Cache) Unreadable(l *ListResult) iter.Seq[*Object] {
	c.unreadable.mu.Lock()
	all := slices.Collect(maps.Keys(c.unreadable.all))
	c.unreadable.mu.Unlock()
	return func(yield func(*Object) bool) {
		for _, p := range all {
			if o := p.Value(); o != nil && l.contains(o) && !yield(o) {
				return
			}
		}
	}
}
