package queue

// entryHeap is a heap whose entries contain their index in it: -1 outside of it.
type entryHeap[K comparable] struct {
	entries []*entry[K]
	before  func(a, b *entry[K]) bool
	index   func(*entry[K]) *int
}

func (h *entryHeap[K]) Len() int           { return len(h.entries) }
func (h *entryHeap[K]) Less(i, j int) bool { return h.before(h.entries[i], h.entries[j]) }
func (h *entryHeap[K]) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	*h.index(h.entries[i]), *h.index(h.entries[j]) = i, j
}
func (h *entryHeap[K]) Push(x any) {
	e := x.(*entry[K])
	*h.index(e) = len(h.entries)
	h.entries = append(h.entries, e)
}
func (h *entryHeap[K]) Pop() any {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = nil
	h.entries, *h.index(e) = h.entries[:last], -1
	return e
}

// byUrgency orders by priority, then by the order of becoming ready.
func byUrgency[K comparable]() entryHeap[K] {
	return entryHeap[K]{
		before: func(a, b *entry[K]) bool {
			if a.priority != b.priority {
				return a.priority > b.priority
			}
			return a.order < b.order
		},
		index: func(e *entry[K]) *int { return &e.ready },
	}
}

// byTime orders by the time at which keys become ready.
func byTime[K comparable]() entryHeap[K] {
	return entryHeap[K]{
		before: func(a, b *entry[K]) bool { return a.at.Before(b.at) },
		index:  func(e *entry[K]) *int { return &e.waiting },
	}
}
