package store

import "slices"

// queue is a first-in first-out sequence whose copies are immutable views: push
// and drop return a new view and leave the old one as it was. Views share memory
// beyond each other's ends, so only the newest view may be pushed to.
type queue[T any] struct {
	items []T
	// dropped is how many items were dropped before items[0], ever.
	dropped uint64
	// dead counts the dropped items that the shared memory still holds.
	dead int
}

func (q queue[T]) push(item T) queue[T] {
	if len(q.items) == cap(q.items) {
		q.dead = 0 // append moves the living
	}
	q.items = append(q.items, item)
	return q
}

// drop takes the oldest n items away. What they hold is freed once they outnumber
// the living, so that a queue never pins more than twice its length.
func (q queue[T]) drop(n int) queue[T] {
	q.items = q.items[n:]
	q.dropped += uint64(n)
	if q.dead += n; q.dead > len(q.items) {
		q.items, q.dead = slices.Clone(q.items), 0
	}
	return q
}

// end is the sequence number that the next item gets.
func (q queue[T]) end() uint64 { return q.dropped + uint64(len(q.items)) }

// at returns the item with a sequence number in [dropped, end).
func (q queue[T]) at(sequence uint64) T { return q.items[sequence-q.dropped] }
