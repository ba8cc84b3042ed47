// Package queue is the queue of objects. A key is processed by one worker at a time, urgent
// keys come first, and adds of a waiting key are merged.
//
// # Files
//
//	queue.go   the queue: add, get, done, waiting keys, measurements
//	heap.go    the heaps of ready and waiting keys
package queue

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Priority orders ready keys. The set is closed.
type Priority uint8

const (
	// Background is for first lists, resyncs and retries.
	Background Priority = iota
	// Urgent is for changes.
	Urgent
)

// Queue contains the keys to process, now or at a time. It is bounded by the number of
// keys. It is safe for concurrent use.
type Queue[K comparable] struct {
	mu         sync.Mutex
	changed    *sync.Cond
	entries    map[K]*entry[K]
	ready      entryHeap[K]
	waiting    entryHeap[K]
	processing map[K]time.Time // since when
	timer      *time.Timer     // for the first of waiting; nil before there is one
	count      uint64
	closed     bool
}

// entry is a key in the queue. Invariant: it is in Queue.entries exactly while the key is
// ready, waiting or being processed.
type entry[K comparable] struct {
	key      K
	priority Priority
	since    time.Time
	order    uint64 // of becoming ready
	ready    int    // index in the heap, -1 if not in it
	at       time.Time
	waiting  int
	requeue  bool // became ready while it was being processed
}

// New makes an empty queue.
func New[K comparable]() *Queue[K] {
	q := &Queue[K]{entries: map[K]*entry[K]{}, processing: map[K]time.Time{}, ready: byUrgency[K](), waiting: byTime[K]()}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// Add makes a key ready: it is processed as soon as a worker is free.
func (q *Queue[K]) Add(key K, priority Priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(q.getOrCreate(key), priority)
}

// AddAt makes a key ready at a time, as far ahead as that is now: a clock that is set back later, by which the time was
// read from an object for example, delays nothing. An earlier Add or AddAt takes precedence.
func (q *Queue[K]) AddAt(key K, at time.Time) {
	now := time.Now()
	at = now.Add(at.Sub(now))
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.getOrCreate(key)
	switch {
	case e.ready >= 0 || e.requeue:
		return
	case e.waiting < 0:
		e.at = at
		heap.Push(&q.waiting, e)
	case at.Before(e.at):
		e.at = at
		heap.Fix(&q.waiting, e.waiting)
	}
	q.arm()
}

func (q *Queue[K]) getOrCreate(key K) *entry[K] {
	e := q.entries[key]
	if e == nil {
		e = &entry[K]{key: key, ready: -1, waiting: -1}
		q.entries[key] = e
	}
	return e
}

func (q *Queue[K]) add(e *entry[K], priority Priority) {
	if e.waiting >= 0 {
		heap.Remove(&q.waiting, e.waiting)
	}
	known := e.ready >= 0 || e.requeue
	if !known {
		q.count++
		e.priority, e.since, e.order = priority, time.Now(), q.count
	}
	e.priority = max(e.priority, priority)
	_, processing := q.processing[e.key]
	switch {
	case processing:
		e.requeue = true
	case known:
		heap.Fix(&q.ready, e.ready)
	default:
		heap.Push(&q.ready, e)
		q.changed.Signal()
	}
}

// arm sets the timer for the first waiting key.
func (q *Queue[K]) arm() {
	if q.waiting.Len() == 0 || q.closed {
		return
	}
	wait := time.Until(q.waiting.entries[0].at)
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.runDue)
		return
	}
	q.timer.Reset(wait)
}

func (q *Queue[K]) runDue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for now := time.Now(); q.waiting.Len() > 0 && !q.waiting.entries[0].at.After(now); {
		q.add(q.waiting.entries[0], Background)
	}
	q.arm()
}

// Get waits for a ready key. No other worker gets the key until Done. ok is false when the
// queue is closed. waited is how long the key was ready.
func (q *Queue[K]) Get() (key K, waited time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.ready.Len() == 0 && !q.closed {
		q.changed.Wait()
	}
	if q.closed {
		return key, 0, false
	}
	e := heap.Pop(&q.ready).(*entry[K])
	e.priority = Background
	now := time.Now()
	q.processing[e.key] = now
	return e.key, now.Sub(e.since), true
}

// Done ends the processing of a key that Get returned.
func (q *Queue[K]) Done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[key]
	delete(q.processing, key)
	switch {
	case e.requeue:
		e.requeue = false
		heap.Push(&q.ready, e)
		q.changed.Signal()
	case e.waiting < 0:
		delete(q.entries, key)
	}
}

// Len returns the number of ready keys of a priority. It takes time in proportion to all
// ready keys.
func (q *Queue[K]) Len(priority Priority) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.ready.entries {
		if e.priority == priority {
			n++
		}
	}
	return n
}

// Added counts how often a key became ready that was not ready before.
func (q *Queue[K]) Added() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}

// Unfinished returns how long the keys that are being processed have been: the sum, and
// the longest.
func (q *Queue[K]) Unfinished() (total, longest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, since := range q.processing {
		took := time.Since(since)
		total += took
		longest = max(longest, took)
	}
	return total, longest
}

// CloseWith closes the queue when ctx is done.
func (q *Queue[K]) CloseWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, q.Close)
}

// Close makes every Get return, and later ones too. It may be called more than once.
func (q *Queue[K]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.changed.Broadcast()
}
