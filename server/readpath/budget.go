package readpath

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Budget bounds the memory of responses: the cached encodings, of past states of objects, too, and the
// buffers of large responses and watches while they are written. All resources share one. It is safe for
// concurrent use.
type Budget struct {
	lists, watches *admission    // of buffers
	encoderSlots   chan struct{} // of pipelines
	readers        atomic.Uint64 // the number of readers
	counts         *counts
	delegateBusy   bool
	writeGrace     time.Duration // see the constant, which it is except in tests

	coldAfter time.Duration // see the constant

	mu       sync.Mutex
	sweeping *time.Timer // of the next sweep, nil if nothing is cached
	// itemEncodings bounds item encodings and the blocks of segments. eventEncodings bounds those of
	// events, which watches share: they are never marked used, so that the oldest are dropped first
	// and a new one always has room.
	itemEncodings, eventEncodings clock
}

const (
	// One eventShare-th of a budget, up to maxEventBytes, is for encodings of events.
	eventShare    = 8
	maxEventBytes = 32 << 20
	// encodingBytes is the memory of a cached encoding beside its bytes.
	encodingBytes = int64(unsafe.Sizeof(cachedEncoding{}) + unsafe.Sizeof(block{}))
)

// NewBudget returns a budget for limit bytes of encodings. The buffers have a bound of their own.
func NewBudget(limit int64) *Budget {
	c := newCounts()
	b := &Budget{
		lists: newAdmission(listCapacity), watches: newAdmission(watchCapacity), encoderSlots: newEncoderSlots(),
		counts: c, writeGrace: writeGrace, coldAfter: coldAfter,
	}
	b.itemEncodings.counts, b.eventEncodings.counts = c, c
	b.eventEncodings.limit = min(limit/eventShare, maxEventBytes)
	b.itemEncodings.limit = limit - b.eventEncodings.limit
	return b
}

// DelegateBusy lets the API server answer the large reads that would be refused with 429, because too many are being
// written. It must be called before the budget is used, and needs an API server in another process: in this one they
// would need the same memory.
func (b *Budget) DelegateBusy() { b.delegateBusy = true }

// Bytes returns the size of the cached encodings. Those of an object that is garbage count until the
// collector has found it.
func (b *Budget) Bytes() int64 { return b.itemEncodings.bytes.Load() + b.eventEncodings.bytes.Load() }
