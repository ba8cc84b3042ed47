package store

// queue is a first-in first-out sequence whose copies are immutable views: push and drop
// return a new view and leave the old one unchanged. Views share memory beyond each
// other's ends, so only the newest view may be pushed to.
//
// Items have a size in bytes. Dropped items stay in the shared memory, since old views may
// have them. They are freed when they exceed the remaining items, in number or in bytes.
type queue[T any] struct {
	items []sized[T]
	bytes int64 // of items
	// dropped counts the dropped items that are still in the shared memory, and
	// droppedBytes their bytes.
	dropped      int
	droppedBytes int64
}

type sized[T any] struct {
	value T
	bytes int64
}

func (q queue[T]) len() int { return len(q.items) }

// at returns the i-th oldest item.
func (q queue[T]) at(i int) T { return q.items[i].value }

func (q queue[T]) push(item T, bytes int64) queue[T] {
	if len(q.items) == cap(q.items) {
		q.dropped, q.droppedBytes = 0, 0 // append moves the items
	}
	q.items = append(q.items, sized[T]{item, bytes})
	q.bytes += bytes
	return q
}

// drop removes the oldest item.
func (q queue[T]) drop() queue[T] {
	bytes := q.items[0].bytes
	q.items = q.items[1:]
	q.bytes -= bytes
	q.droppedBytes += bytes
	q.dropped++
	if q.dropped > len(q.items) || q.droppedBytes > q.bytes {
		// With room for the items until the next time, so that none is moved twice.
		items := make([]sized[T], len(q.items), 2*len(q.items)+1)
		copy(items, q.items)
		q.items, q.dropped, q.droppedBytes = items, 0, 0
	}
	return q
}
