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
	// Noticed: the client has dropped it or called it a violation of the protocol, by
	// the time that it asked for what follows.
	Noticed bool
	// Healed: the client has listed since.
	Healed bool
	// Interrupted: the client was stopped before it noticed, and began anew with what it
	// held. Nothing reminds it.
	Interrupted bool
	// Blind: revisions alone don't show it, so that nobody can be blamed for what
	// follows.
	Blind bool
	// Apart: there are other processes to which it was not told. A consumer that goes
	// on there takes along what it was told here.
	Apart bool
}

// heals reports whether a gap makes right what a consumer was told. One from a
// store that was never told does not, but for the whole state.
func (l Lie) heals(g keepwatch.Gap, elsewhere bool) bool {
	switch {
	case l.Interrupted, l.Blind:
		return false
	case l.Apart, elsewhere:
		return g.From == 0
	}
	return true
}

// lies are those of one client.
type lies struct {
	// evidence counts what the client has noticed so far. It, open and seen belong to
	// the client's goroutine, of which there is one at a time.
	evidence func() int
	open     *Lie // told, and not yet answered by the client's next call
	seen     int  // the evidence before open

	mu  sync.Mutex
	all []*Lie
}

func (l *lies) tell(lie Lie) *Lie {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, &lie)
	return &lie
}

// begin tells a lie that takes several deliveries.
func (l *lies) begin(lie Lie) *Lie {
	l.seen = l.evidence()
	return l.tell(lie)
}

func (l *lies) complete(lie *Lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lie.Told = true
	l.open = lie
}

// answer says that the client has dealt with everything it was told.
func (l *lies) answer() {
	if l.open == nil {
		return
	}
	noticed := l.evidence() > l.seen
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.Noticed = noticed
	l.open = nil
}

// heal says that the client has made its state that of a list.
func (l *lies) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lie := range l.all {
		lie.Healed = lie.Healed || lie.Told
	}
}

// interrupt says that the client begins anew with what it holds.
func (l *lies) interrupt() {
	l.answer()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lie := range l.all {
		lie.Interrupted = lie.Interrupted || !lie.Healed && !lie.Noticed
	}
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
