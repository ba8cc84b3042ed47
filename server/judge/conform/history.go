package conform

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// A server acknowledges a creation or an update with the revision of the new state, and a deletion
// without one. Each name has one writer, which waits for the outcome of each write, so the order of the
// writes of a name is known. The revision of a deletion is the one of its DELETED event, which is behind
// the deleted state and before the next creation.

// life is the states of an object from its creation to its deletion. Only its writer changes it.
type life struct {
	states  []*object
	deleted bool
}

func (l *life) last() *object { return l.states[len(l.states)-1] }

// history has the acknowledged writes. It is safe for concurrent use.
type history struct {
	mu    sync.Mutex
	lives map[keepwatch.UID]*life
	next  map[keepwatch.UID]keepwatch.Revision // the revision of the creation that followed under the same name
	names map[keepwatch.Key]keepwatch.UID      // of the newest life

	newest keepwatch.Revision // of all states
	undone []string           // facts: acknowledged writes that the server does not have any more
}

func newHistory() *history {
	return &history{lives: map[keepwatch.UID]*life{}, next: map[keepwatch.UID]keepwatch.Revision{},
		names: map[keepwatch.Key]keepwatch.UID{}}
}

// wrote adds a state that the server has acknowledged or returned. States of a name are added in order.
func (h *history) wrote(o *object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.newest = max(h.newest, o.revision)
	l := h.lives[o.uid]
	if l != nil {
		h.compare(l, o)
	} else {
		if previous, ok := h.names[o.key]; ok {
			h.lives[previous].deleted = true // by a deletion whose answer was lost
			h.next[previous] = o.revision
		}
		l = &life{}
		h.lives[o.uid], h.names[o.key] = l, o.uid
	}
	if len(l.states) == 0 || l.last().revision < o.revision {
		l.states = append(l.states, o)
	}
}

// compare records the writes of a known object that a state of it contradicts. A lower revision of the same
// content contradicts none: the server has answered the write with a wrong revision. h.mu is locked.
func (h *history) compare(l *life, o *object) {
	last := l.last()
	switch {
	case l.deleted:
		h.undo("no %s with UID %s, which was deleted at %d or later; received: it at %d", o.key.Name, o.uid, last.revision,
			o.revision)
	case o.revision < last.revision && o.content() != last.content():
		h.undo("%v, which was acknowledged, or a later state; received: it at %d", last, o.revision)
	default:
		return
	}
	l.states, l.deleted = nil, false
}

func (h *history) undo(format string, args ...any) {
	h.undone = append(h.undone, fmt.Sprintf("required: "+format, args...))
}

// vanished adds that an object does not exist although nobody has deleted it.
func (h *history) vanished(o *object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.undo("%v, which was acknowledged; received: 404", o)
	h.lives[o.uid].deleted = true
}

// lost returns the acknowledged writes that the server does not have any more. The last list is at a revision.
func (h *history) lost(listed keepwatch.Revision) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if listed < h.newest {
		return append(h.undone,
			fmt.Sprintf("required: a revision of at least %d, with which a write was acknowledged; received: a list at %d",
				h.newest, listed))
	}
	return h.undone
}

// removed adds the deletion of an object.
func (h *history) removed(o *object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives[o.uid].deleted = true
}

// deletions are the ends of objects in views, as watchers received them.
type deletions struct {
	events map[keepwatch.UID]map[keepwatch.Revision]bool // DELETED events
	gaps   map[keepwatch.UID]interval                    // in which a list has shown that a known object is deleted
}

// interval is the revisions above from, up to to.
type interval struct{ from, to keepwatch.Revision }

func newDeletions() deletions {
	return deletions{map[keepwatch.UID]map[keepwatch.Revision]bool{}, map[keepwatch.UID]interval{}}
}

// event adds a DELETED event: of a deletion, or of a change after which the object does not match a selector.
func (d deletions) event(uid keepwatch.UID, at keepwatch.Revision) {
	if d.events[uid] == nil {
		d.events[uid] = map[keepwatch.Revision]bool{}
	}
	d.events[uid][at] = true
}

// gap adds a list without an object that a watcher had, and the interval of that watcher's gap.
func (d deletions) gap(uid keepwatch.UID, in interval) {
	if known, ok := d.gaps[uid]; ok {
		in = interval{max(known.from, in.from), min(known.to, in.to)}
	}
	d.gaps[uid] = in
}

// add adds what another watcher received.
func (d deletions) add(other deletions) {
	for uid, events := range other.events {
		for at := range events {
			d.event(uid, at)
		}
	}
	for uid, in := range other.gaps {
		d.gap(uid, in)
	}
}

// writes returns all writes in the order of their revisions. A deletion has the revision of its DELETED
// event. If no watcher received one, the deletion has a free revision within its bounds: either all
// watchers relisted, which bounds it by their gaps, or check finds that the event is missing. The facts are the
// deletions whose events are out of their bounds.
func (h *history) writes(received deletions) (all []check.Write, facts []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	used, unseen := map[keepwatch.Revision]bool{}, []unseenDeletion{}
	for uid, l := range h.lives {
		for _, o := range l.states {
			used[o.revision] = true
			delete(received.events[uid], o.revision) // the change to that state
			all = append(all, check.Write{Revision: o.revision, Key: o.key, Object: o})
		}
		if !l.deleted {
			continue
		}
		last, next := l.last(), h.next[uid]
		if next == 0 {
			next = math.MaxUint64
		}
		events := slices.Sorted(maps.Keys(received.events[uid]))
		in := slices.IndexFunc(events, func(at keepwatch.Revision) bool { return at > last.revision && at < next })
		if in >= 0 {
			used[events[in]] = true
			all = append(all, check.Write{Revision: events[in], Key: last.key})
			continue
		}
		if len(events) > 0 {
			facts = append(facts, fmt.Sprintf("required: the deletion of %s with UID %s between %d and %d; received: at %v",
				last.key.Name, uid, last.revision, next, events))
		}
		after := last.revision
		if in, ok := received.gaps[uid]; ok {
			if next = min(next, in.to+1); in.from+1 < next { // otherwise the watcher lacks more than the deletion
				after = max(after, in.from)
			}
		}
		unseen = append(unseen, unseenDeletion{last, after, next})
	}
	// The one whose bound is the nearest has the first free revision, so that all find one.
	slices.SortFunc(unseen, func(a, b unseenDeletion) int { return cmp.Compare(a.before, b.before) })
	for _, d := range unseen {
		at := d.after + 1
		for used[at] && at+1 < d.before {
			at++
		}
		used[at] = true
		all = append(all, check.Write{Revision: at, Key: d.last.key})
	}
	slices.SortStableFunc(all, func(a, b check.Write) int { return cmp.Compare(a.Revision, b.Revision) })
	slices.Sort(facts)
	return all, facts
}

// unseenDeletion is a deletion of a last state without an event: it is above a revision and below another one.
type unseenDeletion struct {
	last          *object
	after, before keepwatch.Revision
}

// contentOf returns what check compares in addition to key, UID and revision.
func contentOf(o keepwatch.Object) string { return o.(*object).content() }
