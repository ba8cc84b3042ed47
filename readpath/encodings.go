package readpath

import (
	"runtime"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
)

// encodings are what is cached of one object or one segment. Readers find an encoding without a
// lock; a [Budget] adds and removes them.
type encodings struct {
	budget *Budget
	first  atomic.Pointer[encoding] // a list; budget.mu is held to change it
}

// holder is what an object or a segment has of its encodings. Nothing else refers to it: when it
// is garbage, so is the object, and the encodings are dropped.
type holder struct{ *encodings }

// hold makes a holder without encodings.
func (b *Budget) hold() *holder {
	h := &holder{&encodings{budget: b}}
	runtime.AddCleanup(h, (*encodings).drop, h.encodings)
	return h
}

// encodingKey says which of the encodings of an object or a segment one is.
type encodingKey struct {
	reader uint64 // its number: an encoding must not keep a closed reader's watch cache
	form   form
	// kind and revision are an event's. An item and a block have none, and a row of an event
	// has no kind: it is the same for any.
	kind     watch.EventType
	revision keepwatch.Revision
}

// encoding is one that is cached. It does not refer to its object.
type encoding struct {
	key   encodingKey
	value any   // []byte, or the *block of a segment; it never changes
	size  int64 // what it counts for
	used  atomic.Bool
	next  atomic.Pointer[encoding] // of the same object

	// The rest belongs to clock, and budget.mu is held to read or write it.
	of            *encodings
	clock         *clock // nil once it is dropped
	before, after *encoding
}

// find returns the value of a key, nil if there is none, and marks it used.
func (e *encodings) find(key encodingKey) any {
	known := e.lookup(key)
	if known == nil {
		return nil
	}
	if !known.used.Load() { // else all who read it would write to the same cache line
		known.used.Store(true)
	}
	return known.value
}

func (e *encodings) lookup(key encodingKey) *encoding {
	for known := e.first.Load(); known != nil; known = known.next.Load() {
		if known.key == key {
			return known
		}
	}
	return nil
}

// bytes returns what is cached in one encoding, nil for nothing.
func (e *encodings) bytes(key encodingKey, d demand) []byte {
	if d == once {
		if known := e.lookup(key); known != nil {
			return known.value.([]byte)
		}
		return nil
	}
	b, _ := e.find(key).([]byte)
	return b
}

// drop removes all encodings.
func (e *encodings) drop() {
	e.budget.mu.Lock()
	defer e.budget.mu.Unlock()
	for known := e.first.Load(); known != nil; known = known.next.Load() {
		known.clock.remove(known)
	}
}

// link and unlink change the list. A reader that stands on an encoding which is removed goes on
// from there: its next one stays. budget.mu is held.
func (e *encodings) link(one *encoding) {
	one.next.Store(e.first.Load())
	e.first.Store(one)
}

func (e *encodings) unlink(one *encoding) {
	for at := &e.first; at.Load() != nil; at = &at.Load().next {
		if at.Load() == one {
			at.Store(one.next.Load())
			return
		}
	}
}
