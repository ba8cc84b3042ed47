package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// World is the source's truth: what was committed, when, what is compacted, and
// how often it was restored from a backup. Sources read it, the writer writes it,
// and the oracle gets its history.
type World struct {
	// Versions: objects count the writes of their key.
	Versions bool

	mu     sync.Mutex
	epochs []check.Epoch
	log    []commit // of the newest epoch and what it was restored to; in order
	state  map[keepwatch.Key]keepwatch.Object
	head   keepwatch.Revision
	// compacted is the revision up to which the history is gone.
	compacted keepwatch.Revision
	greedy    time.Time // until when every write is compacted at once
	// unaware are the clients that were not yet shown the newest epoch. As long as
	// there are any, nothing is written; see Restore.
	unaware map[string]bool
	moved   chan struct{} // closed at the next change of anything above
	serial  int
}

// commit is a write, what it replaced, and when it was.
type commit struct {
	check.Write
	foreign bool // a revision of another resource: only Revision and at count
	before  keepwatch.Object
	at      time.Time
}

// NewWorld is an empty source at revision 1.
func NewWorld() *World {
	return &World{
		epochs: []check.Epoch{{Last: 1}}, head: 1,
		state: map[keepwatch.Key]keepwatch.Object{}, moved: make(chan struct{}),
	}
}

// Op is one write of a transaction.
type Op struct {
	Key    keepwatch.Key
	Color  string
	Delete bool
}

// Commit writes each transaction at a revision of its own, all in one instant,
// and reports whether it did: not while the world waits for somebody to notice
// that it was restored. A delete of nothing is left out. A transaction without any
// op belongs to another resource.
func (w *World) Commit(transactions ...[]Op) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unaware) > 0 {
		return false
	}
	for _, ops := range transactions {
		w.commit(ops)
	}
	if time.Now().Before(w.greedy) {
		w.compacted = w.head
	}
	w.stir()
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
		if n, ok := before.(*Numbered); ok {
			version = n.version + 1
		}
	}
	if w.Versions {
		return &Numbered{o, version}
	}
	return &o
}

// stir wakes everybody who waits for the world. w.mu is held.
func (w *World) stir() {
	close(w.moved)
	w.moved = make(chan struct{})
}

// Compact forgets the history up to r.
func (w *World) Compact(r keepwatch.Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compacted = max(w.compacted, min(r, w.head))
	w.stir()
}

// CompactFor forgets everything now, and for a while each write at once.
func (w *World) CompactFor(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compacted, w.greedy = w.head, time.Now().Add(d)
	w.stir()
}

// Stir makes everybody who waits for the world look again.
func (w *World) Stir() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stir()
}

// Restore goes back to r and cuts every connection. With blind unset, nothing is
// committed before each of the clients was shown the new epoch: one that is
// overtaken before can't know, since revisions are all that tells epochs apart. It
// reports whether there was anything to undo.
func (w *World) Restore(r keepwatch.Revision, blind bool, clients ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r >= w.head || r < 1 {
		return false
	}
	w.unaware = map[string]bool{}
	if !blind {
		for _, c := range clients {
			w.unaware[c] = true
		}
	}
	keep := slices.IndexFunc(w.log, func(c commit) bool { return c.Revision > r })
	if keep >= 0 {
		w.log = slices.Clip(w.log[:keep])
	}
	clear(w.state)
	for _, o := range w.at(r) {
		w.state[o.Key()] = o
	}
	w.epochs = append(w.epochs, check.Epoch{Base: r, Last: r, Began: time.Now()})
	w.head, w.compacted = r, min(w.compacted, r)
	w.stir()
	return true
}

// notice says that a client was shown the newest epoch. w.mu is held.
func (w *World) notice(client string) { delete(w.unaware, client) }

// undone reports whether a revision of an epoch, counted from 1, is not the
// newest epoch's, and what that was restored to.
func (w *World) undone(epoch int, r keepwatch.Revision) (base keepwatch.Revision, undone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	base = w.epochs[len(w.epochs)-1].Base
	return base, epoch < len(w.epochs) && r > base
}

// History is what the oracle judges by.
func (w *World) History() check.History {
	w.mu.Lock()
	defer w.mu.Unlock()
	return check.History{Epochs: slices.Clone(w.epochs), Content: content}
}

// Head is the newest revision, and Epoch counts the restores.
func (w *World) Head() (head keepwatch.Revision, epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head, len(w.epochs) - 1
}

// at is the state at r, in key order. w.mu is held.
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

// visible is the newest revision that a replica with a lag shows at a time, and
// when it shows the next; zero when there is none yet. w.mu is held.
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

// events are the changes of (from, to], as a source shows them. w.mu is held.
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

// oldest is the revision up to which the history is gone.
func (w *World) oldest() keepwatch.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.compacted
}

// priorCompacted reports whether the state that a delete ended is gone.
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

// deletes reports whether something was deleted at r.
func (w *World) deletes(r keepwatch.Revision) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events(r-1, r)
	return len(events) > 0 && events[0].Type == keepwatch.Deleted
}
