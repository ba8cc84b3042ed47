package sim

import (
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Lie is a breach of the source's contract. What consumers were told of its
// revisions may be wrong; that has to be noticed, and healed by a gap.
type Lie struct {
	Fault    string
	At       time.Time
	From, To keepwatch.Revision
	// Told: all of it has reached the client. A lie that was cut off may never be
	// noticed: an event behind a bookmark that claimed to cover it, for example.
	Told bool
	// Blind: nothing at all shows it, so that nobody can be blamed before the next
	// gap.
	Blind bool
}

// lies are those of one client.
type lies struct {
	mu  sync.Mutex
	all []*Lie
}

func (l *lies) tell(lie Lie) *Lie {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, &lie)
	return &lie
}

func (l *lies) complete(lie *Lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lie.Told = true
}

// list are the lies so far.
func (l *lies) list() []Lie {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Lie
	for _, lie := range l.all {
		all = append(all, *lie)
	}
	return all
}
