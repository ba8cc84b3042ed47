package store

// queue is a first-in first-out sequence whose copies are immutable views: push
// and drop return a new view and leave the old one as it was. Views share memory
// beyond each other's ends, so only the newest view may be pushed to.
//
// Items have a weight in bytes. What is dropped stays in the shared memory for a
// while, for the sake of the old views; it is freed when it comes to more than
// the living, in items or in bytes.
type queue[T any] struct {
	items []weighed[T]
	bytes int64 // of the living
	// dead and waste are the items, and their bytes, that were dropped but lie in
	// the shared memory still.
	dead  int
	waste int64
}

type weighed[T any] struct {
	value T
	bytes int64
}

func (q queue[T]) len() int { return len(q.items) }

// at is the i-th oldest item.
func (q queue[T]) at(i int) T { return q.items[i].value }

func (q queue[T]) push(item T, bytes int64) queue[T] {
	if len(q.items) == cap(q.items) {
		q.dead, q.waste = 0, 0 // append moves the living
	}
	q.items = append(q.items, weighed[T]{item, bytes})
	q.bytes += bytes
	return q
}

// drop takes the oldest item away.
func (q queue[T]) drop() queue[T] {
	bytes := q.items[0].bytes
	q.items = q.items[1:]
	q.bytes -= bytes
	q.waste += bytes
	q.dead++
	if q.dead > len(q.items) || q.waste > q.bytes {
		// Room for what comes before the next time, so that nothing is moved twice.
		living := make([]weighed[T], len(q.items), 2*len(q.items)+1)
		copy(living, q.items)
		q.items, q.dead, q.waste = living, 0, 0
	}
	return q
}
