package queue

// readyHeap has what is urgent first, then what has waited longest.
type readyHeap[K comparable] []*entry[K]

func (h readyHeap[K]) Len() int { return len(h) }
func (h readyHeap[K]) Less(i, j int) bool {
	if h[i].priority != h[j].priority {
		return h[i].priority > h[j].priority
	}
	return h[i].order < h[j].order
}
func (h readyHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].ready, h[j].ready = i, j
}
func (h *readyHeap[K]) Push(x any) {
	e := x.(*entry[K])
	e.ready = len(*h)
	*h = append(*h, e)
}
func (h *readyHeap[K]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h, e.ready = (*h)[:last], -1
	return e
}

// waitingHeap has what is due first.
type waitingHeap[K comparable] []*entry[K]

func (h waitingHeap[K]) Len() int           { return len(h) }
func (h waitingHeap[K]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h waitingHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].waiting, h[j].waiting = i, j
}
func (h *waitingHeap[K]) Push(x any) {
	e := x.(*entry[K])
	e.waiting = len(*h)
	*h = append(*h, e)
}
func (h *waitingHeap[K]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h, e.waiting = (*h)[:last], -1
	return e
}
