package readpath

import (
	"runtime"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// encodingList is the cached encodings of one object or one segment. Readers find an encoding without
// a lock. A [Budget] adds and removes encodings.
type encodingList struct {
	budget *Budget
	first  atomic.Pointer[cachedEncoding] // linked by next; budget.mu is held to change the list
}

// handle is an object's or a segment's reference to its encodings, and the only one. When the handle
// is garbage, so is the object: the encodings are dropped.
type handle struct{ *encodingList }

// newHandle returns a handle without encodings.
func (b *Budget) newHandle() *handle {
	h := &handle{&encodingList{budget: b}}
	runtime.AddCleanup(h, (*encodingList).drop, h.encodingList)
	return h
}

// handle returns the handle of an object.
func (s *Reader) handle(o *watchcache.Object) *handle {
	if attached, ok := o.Attached().(*handle); ok {
		return attached
	}
	return o.Attach(s.budget.newHandle()).(*handle)
}

// encodingKey identifies an encoding among those of an object or a segment.
type encodingKey struct {
	reader   uint64 // its id: an encoding must not reference the watch cache of a closed reader
	encoding encoding
	member   bool // an event's encoding as a gzip member; beside encoding, so that it takes no memory
	// event and revision are those of an event's encoding. An item encoding and a block have neither,
	// and the row of an event has no type: events of each type have the same one.
	event    watch.EventType
	revision keepwatch.Revision
}

// key returns the key of an item encoding or a block.
func (s *Reader) key(as encoding) encodingKey { return encodingKey{reader: s.id, encoding: as} }

// cachedEncoding is an encoding in a list. It does not reference its object.
type cachedEncoding struct {
	key   encodingKey
	value any   // []byte, or the *block of a segment; it never changes
	size  int64 // in the budget
	used  atomic.Bool
	// the last one that passed the encoding, or the next one when it was added; budget.mu is held
	sweep uint32
	next  atomic.Pointer[cachedEncoding] // of the same object

	// These fields belong to clock. budget.mu is held to read or write them.
	owner         *encodingList
	clock         *clock // nil once it is dropped
	before, after *cachedEncoding
}

// use says how likely an encoding is read again. The values are closed.
type use uint8

const (
	// onlyRead is a read of a list that is the first one in its encoding: what is not cached is not cached by it.
	onlyRead use = iota
	// blockInput is a read of an item encoding to make a block. Later reads find the block, so this
	// one does not mark the item encoding used.
	blockInput
	// singleRead is a read of one object by one client, or of an event. The next state of the object
	// may follow at once.
	singleRead
	// listRead is a read of a part of a list. Clients read a list again from its beginning: if new
	// encodings were not marked used, a list that is longer than the budget would evict itself.
	listRead
)

// find returns the value of a key, nil if there is none, and marks it used.
func (l *encodingList) find(key encodingKey) any {
	found := l.lookup(key)
	if found == nil {
		return nil
	}
	if !found.used.Load() { // otherwise all readers would write to the same cache line
		found.used.Store(true)
	}
	return found.value
}

func (l *encodingList) lookup(key encodingKey) *cachedEncoding {
	for e := l.first.Load(); e != nil; e = e.next.Load() {
		if e.key == key {
			return e
		}
	}
	return nil
}

// bytes returns the bytes of a key, nil if there are none.
func (l *encodingList) bytes(key encodingKey, u use) []byte {
	if u == onlyRead || u == blockInput {
		if found := l.lookup(key); found != nil {
			return found.value.([]byte)
		}
		return nil
	}
	b, _ := l.find(key).([]byte)
	return b
}

// cache adds an item encoding or a block of the given size, if the budget has room.
func (h *handle) cache(key encodingKey, value any, size int, u use) {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h.add(&b.itemEncodings, key, value, size, u)
}

// cacheEvent adds the encoding or the row of an event.
func (h *handle) cacheEvent(key encodingKey, encoded []byte) {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h.add(&b.eventEncodings, key, encoded, cap(encoded), singleRead)
}

func (h *handle) add(to *clock, key encodingKey, value any, size int, u use) {
	if h.lookup(key) == nil {
		e := &cachedEncoding{key: key, value: value, size: int64(size) + encodingBytes, owner: h.encodingList}
		e.used.Store(u == listRead)
		if to.add(e) {
			h.budget.scheduleSweep()
		}
	}
	runtime.KeepAlive(h) // otherwise drop could run before add
}

// drop removes all encodings.
func (l *encodingList) drop() {
	l.budget.mu.Lock()
	defer l.budget.mu.Unlock()
	for e := l.first.Load(); e != nil; e = e.next.Load() {
		e.clock.remove(e)
	}
}

// link and unlink change the list. A removed encoding keeps its next one, so that a reader which has
// reached it can continue. budget.mu is held.
func (l *encodingList) link(e *cachedEncoding) {
	e.next.Store(l.first.Load())
	l.first.Store(e)
}

func (l *encodingList) unlink(e *cachedEncoding) {
	for at := &l.first; at.Load() != nil; at = &at.Load().next {
		if at.Load() == e {
			at.Store(e.next.Load())
			return
		}
	}
}
