// Package recent remembers what was made of late, so that all who ask for the same at
// about the same time share it.
package recent

import (
	"errors"
	"sync"
)

// Cache makes each value once and keeps the newest ones, bounded by number and by
// size. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	most  int
	bytes int64
	size  func(V) int64

	mu    sync.Mutex
	known map[K]*entry[K, V]
	order []*entry[K, V] // oldest first
	held  int64          // size of what is in order
}

// entry is a value that is made by who asks for it first.
type entry[K comparable, V any] struct {
	key   K
	once  sync.Once
	value V
	err   error
	size  int64
}

// errPanicked is what the others get when who made a value did not survive it.
var errPanicked = errors.New("making this failed for another who asked for it")

// New makes a cache of at most so many values that take so many bytes in all, as size
// tells. The newest value is kept whatever its size.
func New[K comparable, V any](most int, bytes int64, size func(V) int64) *Cache[K, V] {
	return &Cache[K, V]{most: most, bytes: bytes, size: size, known: map[K]*entry[K, V]{}}
}

// Of is the value of a key, which make makes if it is not there. While one caller
// makes it, others who ask for the same wait for that. A failure is not kept: who asks
// next tries again. If make panics, so does its caller; the others get an error.
func (c *Cache[K, V]) Of(key K, make func() (V, error)) (V, error) {
	e := c.entry(key)
	e.once.Do(func() {
		e.err = errPanicked
		defer func() { c.made(e) }()
		e.value, e.err = make()
	})
	return e.value, e.err
}

func (c *Cache[K, V]) entry(key K) *entry[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.known[key]; e != nil {
		return e
	}
	e := &entry[K, V]{key: key}
	c.known[key] = e
	return e
}

// made counts a value, and gives up the oldest ones if there are too many.
func (c *Cache[K, V]) made(e *entry[K, V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.err != nil {
		delete(c.known, e.key)
		return
	}
	e.size = c.size(e.value)
	c.order = append(c.order, e)
	for c.held += e.size; len(c.order) > c.most || c.held > c.bytes && len(c.order) > 1; {
		oldest := c.order[0]
		c.order[0] = nil // the array behind it stays for a while
		c.order = c.order[1:]
		c.held -= oldest.size
		delete(c.known, oldest.key)
	}
}
