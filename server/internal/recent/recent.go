// Package recent caches recently made values, so that callers which need the same at about the same time
// share it.
package recent

import (
	"errors"
	"sync"
)

// Cache makes each value once and stores the newest ones, bounded by number and by size. It is safe for
// concurrent use.
type Cache[K comparable, V any] struct {
	maxEntries int
	maxBytes   int64
	size       func(V) int64

	mu      sync.Mutex
	entries map[K]*entry[K, V]
	order   []*entry[K, V] // the oldest first
	bytes   int64          // of the values in order
}

// entry is a value that the first caller makes.
type entry[K comparable, V any] struct {
	key   K
	once  sync.Once
	value V
	err   error
	bytes int64
}

// errPanicked is the error of the other callers if make panicked.
var errPanicked = errors.New("making this value failed for another caller")

// New returns a cache of at most maxEntries values with a total size of maxBytes, which size measures.
// The newest value is stored whatever its size.
func New[K comparable, V any](maxEntries int, maxBytes int64, size func(V) int64) *Cache[K, V] {
	return &Cache[K, V]{maxEntries: maxEntries, maxBytes: maxBytes, size: size, entries: map[K]*entry[K, V]{}}
}

// Get returns the value of a key, which make makes if it is not cached. Other callers for the same key
// wait for that. A failure is not cached: the next caller tries again. If make panics, so does Get; the
// waiting callers get an error.
func (c *Cache[K, V]) Get(key K, make func() (V, error)) (V, error) {
	e := c.entry(key)
	e.once.Do(func() {
		e.err = errPanicked
		defer func() { c.add(e) }()
		e.value, e.err = make()
	})
	return e.value, e.err
}

func (c *Cache[K, V]) entry(key K) *entry[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		return e
	}
	e := &entry[K, V]{key: key}
	c.entries[key] = e
	return e
}

// add counts a made value, and drops the oldest ones if there are too many.
func (c *Cache[K, V]) add(e *entry[K, V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.err != nil {
		delete(c.entries, e.key)
		return
	}
	e.bytes = c.size(e.value)
	c.order = append(c.order, e)
	for c.bytes += e.bytes; len(c.order) > c.maxEntries || c.bytes > c.maxBytes && len(c.order) > 1; {
		oldest := c.order[0]
		c.order[0] = nil // the array remains for a while
		c.order = c.order[1:]
		c.bytes -= oldest.bytes
		delete(c.entries, oldest.key)
	}
}
