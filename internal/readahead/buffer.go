package readahead

import (
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Buffer joins the parts of a stream into batches. One goroutine puts, another one
// takes; End may be called from any.
type Buffer struct {
	limit Limit

	mu      sync.Mutex
	changed sync.Cond          // next, full or failure
	next    pending            // was put and not taken
	open    time.Time          // until then Next waits for parts of the newest revision; zero: it does not
	opened  time.Time          // when the batch was opened first; zero: it was not
	full    bool               // Put waits for next to be taken
	failure *keepwatch.Failure // follows next; nil while the stream is open
}

// New returns a buffer that continues first. If first is not empty, Next returns it
// as it is.
func New(first keepwatch.Batch, limit Limit) *Buffer {
	news := first.From != first.To
	b := &Buffer{limit: limit, next: pending{Batch: first, ready: news, ended: news}}
	b.changed.L = &b.mu
	return b
}

// Fill calls read until it returns a failure, and ends the buffer with it. read
// reads one message of the stream, and puts it.
func (b *Buffer) Fill(read func() *keepwatch.Failure) {
	for {
		if failure := read(); failure != nil {
			b.End(failure)
			return
		}
	}
}

// Put adds p to the next batch, and waits while it does not fit. It copies the
// changes. It returns the failure of the buffer once that has ended, and then adds
// nothing.
func (b *Buffer) Put(p Part) *keepwatch.Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.failure == nil && !b.next.fits(p, b.limit) {
		b.full = true
		b.changed.Broadcast() // Next does not wait for more
		b.changed.Wait()
	}
	b.full = false
	if b.failure != nil {
		return b.failure
	}
	b.add(p)
	return nil
}

// Join adds p, which continues the newest revision, to the batch that reaches it. It reports false if that one was
// taken, or would exceed maxJoined.
func (b *Buffer) Join(p Part) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	joins := b.failure == nil && len(b.next.Changes) > 0 && !b.next.ended && b.next.From < p.To && b.next.To == p.To &&
		b.next.bytes+p.Bytes <= maxJoined
	if joins {
		b.add(p)
	}
	return joins
}

func (b *Buffer) add(p Part) {
	b.next.add(p)
	b.open = time.Time{}
	if p.Open > 0 {
		now := time.Now()
		if b.opened.IsZero() {
			b.opened = now
		}
		if b.open = now.Add(p.Open); b.open.After(b.opened.Add(maxOpens * p.Open)) {
			b.open = b.opened.Add(maxOpens * p.Open)
		}
		time.AfterFunc(b.open.Sub(now), func() {
			b.mu.Lock() // Next, which holds it, sees the time or waits
			defer b.mu.Unlock()
			b.changed.Broadcast()
		})
	}
	b.changed.Broadcast()
}

// End ends the buffer with failure, and returns the failure that it has ended with:
// only the first call counts. Parts that were put before are still delivered.
func (b *Buffer) End(failure *keepwatch.Failure) *keepwatch.Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		b.failure = failure
		b.changed.Broadcast()
	}
	return b.failure
}

// Next returns what was put since the last call, within the limit. It waits while
// that is nothing. After the last part, each call returns the failure that the buffer
// has ended with.
func (b *Buffer) Next() (keepwatch.Batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.failure == nil && (!b.next.ready || !b.full && time.Now().Before(b.open)) {
		b.changed.Wait()
	}
	if !b.next.ready {
		return keepwatch.Batch{}, b.failure
	}
	batch := b.next.Batch
	b.next, b.opened = pending{Batch: keepwatch.Batch{From: batch.To, To: batch.To}}, time.Time{}
	b.changed.Broadcast()
	return batch, nil
}

// Revision returns the greatest revision that the stream has reached.
func (b *Buffer) Revision() keepwatch.Revision {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next.To
}

// Full reports whether Put waits for a call of Next.
func (b *Buffer) Full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full
}
