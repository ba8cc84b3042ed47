package readpath

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Budget bounds the memory that answers need: the encodings that are cached, of all states that
// objects have had, and what large answers and watches hold while they are written. One is shared by all
// resources. It is safe for concurrent use.
type Budget struct {
	lists, watches *admission    // what answers hold while they are written
	encoders       chan struct{} // room for those that encode ahead of what is sent
	readers        atomic.Uint64 // how many were made
	counts         *counts

	mu sync.Mutex
	// items are objects as they stand in lists, and segments' blocks. frames are events, which
	// watches share: nobody marks those used, so the oldest are dropped first and a new one
	// always has room.
	items, frames clock
}

const (
	// frameShare is the part of a budget that frames have, up to mostFrames bytes.
	frameShare = 8
	mostFrames = 32 << 20
	// encodingBytes is what an encoding takes beside its bytes.
	encodingBytes = int64(unsafe.Sizeof(encoding{}) + unsafe.Sizeof(block{}))
)

// NewBudget makes a budget of so many bytes of encodings.
func NewBudget(most int64) *Budget {
	c := newCounts()
	b := &Budget{lists: newAdmission(listBuffers), watches: newAdmission(watchBuffers), encoders: newEncoders(), counts: c}
	b.items.counts, b.frames.counts = c, c
	b.frames.most = min(most/frameShare, mostFrames)
	b.items.most = most - b.frames.most
	return b
}

// Bytes is how much is cached. What became garbage is counted until the collector has found it.
func (b *Budget) Bytes() int64 { return b.items.bytes.Load() + b.frames.bytes.Load() }

// demand is whether an encoding will be asked for again. The values are closed.
type demand uint8

const (
	// once: for a block, which is what will be asked for. It does not count as a use.
	once demand = iota
	// passing: one object for one client, or an event. The next state may be there in a moment.
	passing
	// recurring: a part of a list, which somebody reads again from its beginning. If all of it
	// were taken for unused, a list that is longer than the budget would push itself out.
	recurring
)

// cache keeps an item, or a block as large as bytes says, if there is room.
func (h *holder) cache(key encodingKey, value any, bytes int, d demand) {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h.add(&b.items, key, value, bytes, d)
}

// cacheFrame keeps an event's frame or row.
func (h *holder) cacheFrame(key encodingKey, frame []byte) {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	h.add(&b.frames, key, frame, cap(frame), passing)
}

func (h *holder) add(to *clock, key encodingKey, value any, bytes int, d demand) {
	if h.lookup(key) == nil {
		one := &encoding{key: key, value: value, size: int64(bytes) + encodingBytes, of: h.encodings}
		one.used.Store(d == recurring)
		to.add(one)
	}
	runtime.KeepAlive(h) // else its encodings could be dropped before this one is added
}
