package sim

import (
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Breach is a breach of the source's contract. The deliveries of its revisions may be wrong.
// The client must detect it, and a gap must repair it.
type Breach struct {
	Fault    string
	At       time.Time
	From, To keepwatch.Revision
	// Delivered: all of it has reached the client. A breach that was interrupted may stay
	// undetected: for example the bookmark before the event that it claims to include.
	Delivered bool
	// Detected: the client has dropped it or reported a protocol violation before its next
	// request.
	Detected bool
	// Repaired: the client has listed since.
	Repaired bool
	// Interrupted: the client was stopped before it detected the breach, and restarted with
	// the same state. Nothing shows the breach to it any more.
	Interrupted bool
	// Undetectable: revisions do not show it, so that its effects are no problem.
	Undetectable bool
	// Shared: other processes have not received it. A consumer that moves there takes the
	// wrong state along.
	Shared bool
}

// repairs reports whether a gap repairs a consumer's state. A gap of a store that has not
// received the breach does not, unless it has the whole state.
func (l Breach) repairs(g keepwatch.Gap, elsewhere bool) bool {
	switch {
	case l.Interrupted, l.Undetectable:
		return false
	case l.Shared, elsewhere:
		return g.From == 0
	}
	return true
}

// breaches are the breaches of one client's source.
type breaches struct {
	// detections counts the client's detections. Only the client's goroutine, one at a time,
	// uses it, open and before.
	detections func() int
	open       *Breach // delivered, and the client has not called again
	before     int     // the detections before open

	mu  sync.Mutex
	all []*Breach
}

func (l *breaches) add(b Breach) *Breach {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, &b)
	return &b
}

// begin adds a breach that has several deliveries.
func (l *breaches) begin(b Breach) *Breach {
	l.before = l.detections()
	return l.add(b)
}

func (l *breaches) complete(b *Breach) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Delivered = true
	l.open = b
}

// settle records that the client has processed all deliveries.
func (l *breaches) settle() {
	if l.open == nil {
		return
	}
	detected := l.detections() > l.before
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.Detected = detected
	l.open = nil
}

// repair records that the client's state is a list's.
func (l *breaches) repair() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.all {
		b.Repaired = b.Repaired || b.Delivered
	}
}

// interrupt records that the client restarts with the same state.
func (l *breaches) interrupt() {
	l.settle()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.all {
		b.Interrupted = b.Interrupted || !b.Repaired && !b.Detected
	}
}

// list returns the breaches until now.
func (l *breaches) list() []Breach {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Breach
	for _, b := range l.all {
		all = append(all, *b)
	}
	return all
}
