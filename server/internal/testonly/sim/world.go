package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// World is the source's history: the commits and their times, the compactions and the
// restores. Sources read it, the writer writes it, and the oracle judges by it.
type World struct {
	// Versions makes objects count the writes of their key.
	Versions bool

	mu     sync.Mutex
	epochs []check.Epoch
	log    []commit // of the newest epoch and of the backup before it, in order
	state  map[keepwatch.Key]keepwatch.Object
	head   keepwatch.Revision
	// compacted is the revision up to which the history is compacted.
	compacted    keepwatch.Revision
	compactUntil time.Time // every write before this time is compacted at once
	// unnoticed has the clients that have not seen the newest epoch. As long as there are
	// any, Commit writes nothing; see Restore.
	unnoticed map[string]bool
	redefined []keepwatch.Revision // at which the definition of the objects' type has changed
	changed   chan struct{}        // closed at the next change of anything above
	serial    int
}

// commit is a write, the object that it replaced, and its time.
type commit struct {
	check.Write
	foreign bool // a revision of another resource: only Revision and at are set
	before  keepwatch.Object
	at      time.Time
}

// NewWorld returns an empty source at revision 1.
func NewWorld() *World {
	return &World{
		epochs: []check.Epoch{{Last: 1}}, head: 1,
		state: map[keepwatch.Key]keepwatch.Object{}, changed: make(chan struct{}),
	}
}

// Op is one write of a transaction.
type Op struct {
	Key    keepwatch.Key
	Color  string
	Delete bool
}

// Commit writes each transaction at a revision of its own, all in one instant, and reports
// whether it did. It does not while a client has not noticed a restore. Deletions of absent
// keys are dropped. A transaction without an op belongs to another resource.
func (w *World) Commit(transactions ...[]Op) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unnoticed) > 0 {
		return false
	}
	for _, ops := range transactions {
		w.commit(ops)
	}
	if time.Now().Before(w.compactUntil) {
		w.compacted = w.head
	}
	w.wake()
	return true
}

func (w *World) commit(ops []Op) {
	ops = slices.DeleteFunc(slices.Clone(ops), func(op Op) bool { return op.Delete && w.state[op.Key] == nil })
	w.head++
	epoch := &w.epochs[len(w.epochs)-1]
	epoch.Last = w.head
	if len(ops) == 0 {
		w.log = append(w.log, commit{Write: check.Write{Revision: w.head}, foreign: true, at: time.Now()})
	}
	for _, op := range ops {
		c := commit{Write: check.Write{Revision: w.head, Key: op.Key}, before: w.state[op.Key], at: time.Now()}
		if op.Delete {
			delete(w.state, op.Key)
		} else {
			c.Object = w.object(op, c.before)
			w.state[op.Key] = c.Object
		}
		epoch.Writes = append(epoch.Writes, c.Write)
		w.log = append(w.log, c)
	}
}

func (w *World) object(op Op, before keepwatch.Object) keepwatch.Object {
	w.serial++
	o := Object{key: op.Key, uid: keepwatch.UID(fmt.Sprintf("u%d", w.serial)), revision: w.head, color: op.Color}
	o.content = fmt.Sprintf("%s%d", op.Color, w.serial)
	version := int64(1)
	if before != nil {
		o.uid = before.UID()
		if n, ok := before.(*Versioned); ok {
			version = n.version + 1
		}
	}
	if w.Versions {
		return &Versioned{o, version}
	}
	return &o
}

// wake wakes all waiting sources. w.mu is held.
func (w *World) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Compact compacts the history up to r.
func (w *World) Compact(r keepwatch.Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compacted = max(w.compacted, min(r, w.head))
	w.wake()
}

// CompactFor compacts the whole history now, and every write within d at once.
func (w *World) CompactFor(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compacted, w.compactUntil = w.head, time.Now().Add(d)
	w.wake()
}

// Wake makes all waiting sources check their state again.
func (w *World) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake()
}

// Restore rewinds the world to r and breaks every connection. Unless blind is set, nothing is
// committed before each of the clients has seen the new epoch: a client that is overtaken
// before cannot detect it, because only revisions distinguish epochs. Restore reports whether
// it has undone a revision.
func (w *World) Restore(r keepwatch.Revision, blind bool, clients ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r >= w.head || r < 1 {
		return false
	}
	w.unnoticed = map[string]bool{}
	if !blind {
		for _, c := range clients {
			w.unnoticed[c] = true
		}
	}
	first := slices.IndexFunc(w.log, func(c commit) bool { return c.Revision > r })
	if first >= 0 {
		w.log = slices.Clip(w.log[:first])
	}
	clear(w.state)
	for _, o := range w.at(r) {
		w.state[o.Key()] = o
	}
	w.epochs = append(w.epochs, check.Epoch{Base: r, Last: r, Began: time.Now()})
	w.head, w.compacted = r, min(w.compacted, r)
	w.redefined = slices.DeleteFunc(w.redefined, func(at keepwatch.Revision) bool { return at > r })
	w.wake()
	return true
}

// noticed records that a client has seen the newest epoch. w.mu is held.
func (w *World) noticed(client string) { delete(w.unnoticed, client) }

// undone reports whether a revision of an epoch, counted from 1, is not part of the newest
// epoch, and returns the newest epoch's base.
func (w *World) undone(epoch int, r keepwatch.Revision) (base keepwatch.Revision, undone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	base = w.epochs[len(w.epochs)-1].Base
	return base, epoch < len(w.epochs) && r > base
}

// History returns the history for the oracle.
func (w *World) History() check.History {
	w.mu.Lock()
	defer w.mu.Unlock()
	return check.History{Epochs: slices.Clone(w.epochs), Content: content, Redefined: redefined}
}

// lastChange returns the time of the newest change, or of a restore after it, zero if there is none.
func (w *World) lastChange() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.epochs[len(w.epochs)-1].Began
	if n := len(w.log); n > 0 && w.log[n-1].at.After(last) {
		last = w.log[n-1].at
	}
	return last
}

// Head returns the newest revision and the number of restores.
func (w *World) Head() (head keepwatch.Revision, epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head, len(w.epochs) - 1
}

// at returns the state at r in key order. w.mu is held.
func (w *World) at(r keepwatch.Revision) []keepwatch.Object {
	state := map[keepwatch.Key]keepwatch.Object{}
	for _, c := range w.log {
		if c.Revision > r {
			break
		}
		if delete(state, c.Key); c.Object != nil {
			state[c.Key] = c.Object
		}
	}
	objects := make([]keepwatch.Object, 0, len(state))
	for _, o := range state {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b keepwatch.Object) int { return a.Key().Compare(b.Key()) })
	return objects
}

// visible returns the newest revision that a replica with a lag has at a time, and the time of
// its next one, zero if there is none yet. w.mu is held.
func (w *World) visible(now time.Time, lag time.Duration) (r keepwatch.Revision, next time.Time) {
	for _, c := range slices.Backward(w.log) {
		shown := c.at.Add(lag)
		if !shown.After(now) {
			return c.Revision, next
		}
		next = shown
	}
	return 1, next
}

// events returns the changes of (from, to] as a source sends them. w.mu is held.
func (w *World) events(from, to keepwatch.Revision) []keepwatch.Change {
	var all []keepwatch.Change
	for _, c := range w.log {
		if c.Revision > from && c.Revision <= to && !c.foreign {
			all = append(all, c.change())
		}
	}
	return all
}

func (c commit) change() keepwatch.Change {
	switch {
	case c.Object == nil:
		return keepwatch.Change{Type: keepwatch.Deleted, Revision: c.Revision, Object: deleted(c.before, c.Revision)}
	case c.before == nil:
		return keepwatch.Change{Type: keepwatch.Added, Revision: c.Revision, Object: c.Object}
	}
	return keepwatch.Change{Type: keepwatch.Modified, Revision: c.Revision, Object: c.Object}
}

// oldest returns the revision up to which the history is compacted.
func (w *World) oldest() keepwatch.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.compacted
}

// priorCompacted reports whether the state before a deletion is compacted.
func (w *World) priorCompacted(c keepwatch.Change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.log {
		if e.Revision == c.Revision && e.Key == c.Object.Key() && e.before != nil {
			return e.before.Revision() <= w.compacted
		}
	}
	return false
}

// deletes reports whether r is a deletion.
func (w *World) deletes(r keepwatch.Revision) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events(r-1, r)
	return len(events) > 0 && events[0].Type == keepwatch.Deleted
}
