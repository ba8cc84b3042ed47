package informer

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// lookup finds the newest state of an object by its key, in one step where a
// snapshot takes one for each level of its tree. It has one writer; readers never
// wait. The zero value is empty.
type lookup struct {
	table atomic.Pointer[slots]
	live  int // objects; of the writer
	used  int // slots that are not free; of the writer
}

// slots is a hash table with linear probing, of a power of two. At least half of
// it is free, since each slot in vain is an object to look at.
type slots struct {
	seed maphash.Seed
	of   []atomic.Pointer[item.Item]
}

// gone is in the place of what was removed, so that a search goes on behind it.
var gone = new(item.Item)

func newSlots(n int) *slots {
	size := 64
	for size < 2*n+2 {
		size *= 2
	}
	return &slots{seed: maphash.MakeSeed(), of: make([]atomic.Pointer[item.Item], size)}
}

// at is the slot of a key, or if it is not there, the one where it would be put.
func (s *slots) at(key keepwatch.Key) (slot *atomic.Pointer[item.Item], held *item.Item) {
	mask := uint64(len(s.of) - 1)
	var reuse *atomic.Pointer[item.Item]
	for i := maphash.Comparable(s.seed, key) & mask; ; i = (i + 1) & mask {
		slot = &s.of[i]
		switch held = slot.Load(); {
		case held == nil && reuse != nil:
			return reuse, nil
		case held == nil:
			return slot, nil
		case held == gone:
			if reuse == nil {
				reuse = slot
			}
		case held.Key() == key:
			return slot, held
		}
	}
}

// get finds the newest state of an object.
func (l *lookup) get(key keepwatch.Key) (*item.Item, bool) {
	s := l.table.Load()
	if s == nil {
		return nil, false
	}
	_, held := s.at(key)
	return held, held != nil
}

// fill takes a whole state.
func (l *lookup) fill(state *store.Snapshot) {
	s := newSlots(state.Len() + state.Len()/4)
	for o := range state.All() {
		slot, _ := s.at(o.Key())
		slot.Store(o.(*item.Item))
	}
	l.live, l.used = state.Len(), state.Len()
	l.table.Store(s)
}

// follow takes changes to it.
func (l *lookup) follow(changes []keepwatch.Change) {
	for _, c := range changes {
		if c.Type == keepwatch.Deleted {
			l.remove(c.Object.Key())
		} else {
			l.put(c.Object.(*item.Item))
		}
	}
}

func (l *lookup) put(o *item.Item) {
	s := l.table.Load()
	slot, held := s.at(o.Key())
	if held == nil {
		l.live++
		if slot.Load() == nil {
			l.used++
		}
	}
	slot.Store(o)
	if l.used*2 > len(s.of) {
		l.rebuild(s)
	}
}

func (l *lookup) remove(key keepwatch.Key) {
	if slot, held := l.table.Load().at(key); held != nil {
		slot.Store(gone)
		l.live--
	}
}

// rebuild makes a table of what is there, with room for as much again.
func (l *lookup) rebuild(old *slots) {
	s := newSlots(2 * l.live)
	for i := range old.of {
		if o := old.of[i].Load(); o != nil && o != gone {
			slot, _ := s.at(o.Key())
			slot.Store(o)
		}
	}
	l.used = l.live
	l.table.Store(s)
}
