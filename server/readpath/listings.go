package readpath

import (
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
)

// listings knows which encodings clients list more than once. The first large list in an encoding leaves none of it in
// memory: who lists once, or once an hour, pays with the time of the encoding, and not with the memory of all objects.
type listings struct {
	mu sync.Mutex
	of [tableWholeBeta + 1]listing
}

// listing is the large lists in one encoding, those without compression and those with gzip.
type listing struct {
	last     time.Time          // of the newest list, zero before the first
	revision keepwatch.Revision // of the first one: its pages have the same
	repeated bool
	reported [2]bool // in which compression
}

// relistWithin is how long after a list another one repeats it, in intervals of the sweep for cold encodings: as long
// as what is not used stays at most.
const relistWithin = 3

// add records a list, or a page of one, at a revision. A page continues another one. It reports whether the list
// repeats another one, so that its encodings are worth their memory.
func (l *listings) add(as encoding, revision keepwatch.Revision, continued bool, now time.Time,
	within time.Duration) (repeated bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := &l.of[as]
	switch {
	case of.last.IsZero() || now.Sub(of.last) > within:
		of.revision, of.repeated = revision, false
	case !continued || revision != of.revision:
		of.repeated = true
	}
	of.last = now
	return of.repeated
}

// report calls notify with the name of an encoding that is listed again and again, once. notify may be nil.
func (l *listings) report(as encoding, gzip bool, notify func(ListEncoding)) {
	if notify == nil || int(as) >= len(listEncodingsOf) {
		return
	}
	i := 0
	if gzip {
		i = 1
	}
	l.mu.Lock()
	reported := l.of[as].reported[i]
	l.of[as].reported[i] = true
	l.mu.Unlock()
	if !reported {
		notify(listEncodingsOf[as][i])
	}
}

// listUse records a large list, or the initial state of a watch, and returns how it uses item encodings; usual is how a
// repeated one does. Protobuf is always cached, if the watch cache does not have it: a list needs it twice, since its
// head has the size of the body.
func (s *Reader) listUse(as encoding, revision keepwatch.Revision, continued bool, usual use) use {
	if s.listings.add(as, revision, continued, time.Now(), relistWithin*s.budget.coldAfter) || isProtobuf(as) {
		return usual
	}
	return onlyRead
}
