package queue

// ordered is a heap whose entries know their places in it: -1 when out of it.
type ordered[K comparable] struct {
	entries []*entry[K]
	before  func(a, b *entry[K]) bool
	place   func(*entry[K]) *int
}

func (h *ordered[K]) Len() int           { return len(h.entries) }
func (h *ordered[K]) Less(i, j int) bool { return h.before(h.entries[i], h.entries[j]) }
func (h *ordered[K]) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	*h.place(h.entries[i]), *h.place(h.entries[j]) = i, j
}
func (h *ordered[K]) Push(x any) {
	e := x.(*entry[K])
	*h.place(e) = len(h.entries)
	h.entries = append(h.entries, e)
}
func (h *ordered[K]) Pop() any {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = nil
	h.entries, *h.place(e) = h.entries[:last], -1
	return e
}

// byUrgency has what is urgent first, then what has waited longest.
func byUrgency[K comparable]() ordered[K] {
	return ordered[K]{
		before: func(a, b *entry[K]) bool {
			if a.priority != b.priority {
				return a.priority > b.priority
			}
			return a.order < b.order
		},
		place: func(e *entry[K]) *int { return &e.ready },
	}
}

// byTime has what is due first.
func byTime[K comparable]() ordered[K] {
	return ordered[K]{
		before: func(a, b *entry[K]) bool { return a.at.Before(b.at) },
		place:  func(e *entry[K]) *int { return &e.waiting },
	}
}
