package store

import (
	"sort"

	"github.com/keepwatch/keepwatch"
)

// history is a batch on its way into the store: an edition, and the checks that
// each change must pass. They are always on.
type history struct {
	edition
	graves *graveyard         // of the base
	last   keepwatch.Revision // of the news taken so far
}

// follows checks that a batch goes on where the state ends.
func follows(v *view, b keepwatch.Batch) error {
	held := v.snapshot
	switch {
	case held.revision == 0, v.void != "":
		return keepwatch.Failed(keepwatch.Broken, "history (%d, %d] arrives before the list that is due", b.From, b.To)
	case b.From > held.revision:
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"history from %d on leaves a hole after %d", b.From, held.revision)
	case b.To < b.From, b.To < held.revision && b.Bookmark():
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"history (%d, %d] goes back from %d", b.From, b.To, held.revision)
	}
	return nil
}

// take takes one change. It reports false for one that is not news, and fails for
// one that can't follow what is held.
func (h *history) take(c keepwatch.Change) (news bool, err error) {
	if err := plausible(c, h.revision); err != nil {
		return false, err
	}
	p := h.seek(c.Object.Key())
	if p.entry != nil && c.Revision <= p.object.Revision() || p.entry == nil && h.buried(c) {
		return false, nil
	}
	if c.Revision <= h.base.revision || c.Revision < h.last {
		return false, keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s %s at %d is news, but arrives after %d", c.Type, c.Object.Key(), c.Revision, max(h.last, h.base.revision))
	}
	if err := continuous(c, p.entry); err != nil {
		return false, err
	}
	h.last = c.Revision
	if c.Type == keepwatch.Deleted {
		h.delete(p, c)
	} else {
		h.write(p, c)
	}
	return true, nil
}

// plausible checks a change by itself.
func plausible(c keepwatch.Change, to keepwatch.Revision) error {
	if err := named(c.Object); err != nil {
		return err
	}
	written := c.Object.Revision()
	switch {
	case c.Type == keepwatch.Deleted && written <= c.Revision && c.Revision <= to:
	case (c.Type == keepwatch.Added || c.Type == keepwatch.Modified) && written == c.Revision && c.Revision <= to:
	default:
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s %s at %d, written at %d, can't be part of the history up to %d", c.Type, c.Object.Key(), c.Revision, written, to)
	}
	return nil
}

// buried reports whether the object of a change was deleted since, or by it, so
// that the change is an old one. Where deletions are not known that far back, one
// more is taken for old; but not an object, since a list too many is better than
// an object lost.
func (h *history) buried(c keepwatch.Change) bool {
	key, found := c.Object.Key(), false
	match := func(t tombstone) {
		again := c.Type == keepwatch.Deleted || t.revision > c.Revision || t.object.UID() == c.Object.UID()
		found = found || t.object.Key() == key && again
	}
	h.graves.since(c.Revision-1, match)
	for _, t := range h.dead[sort.Search(len(h.dead), func(i int) bool { return h.dead[i].revision >= c.Revision }):] {
		match(t)
	}
	return found || c.Type == keepwatch.Deleted && !h.graves.knows(c.Revision-1)
}

// continuous checks that a change has the prior state it must have (P2).
func continuous(c keepwatch.Change, held *entry) error {
	key, uid := c.Object.Key(), c.Object.UID()
	if held == nil && c.Type != keepwatch.Added {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "%s %s at %d, but it was never added", c.Type, key, c.Revision)
	}
	if c.Type == keepwatch.Deleted {
		if uid != "" && uid != held.object.UID() {
			return keepwatch.Failed(keepwatch.ProtocolViolation,
				"%s at %d deletes UID %s, but UID %s is held: an event was missed", key, c.Revision, uid, held.object.UID())
		}
		return nil
	}
	prior := int64(0)
	if held != nil && held.object.UID() == uid {
		if prior = version(held.object); prior == 0 {
			return nil
		}
	}
	if next := version(c.Object); next != 0 && next != prior+1 {
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s has version %d after %d: an event was missed", key, next, prior)
	}
	return nil
}

// version returns the number of an object's last write, or 0 if the source does not
// number writes: kine sends 0 where etcd counts.
func version(o keepwatch.Object) int64 {
	if v, ok := o.(Versioned); ok {
		return v.Version()
	}
	return 0
}

// write takes the new state of an object.
func (h *history) write(p place, c keepwatch.Change) {
	switch {
	case p.entry == nil:
		h.report(added(c.Object))
	case p.object.UID() != c.Object.UID():
		// The delete in between was not seen; the view must show it (P6).
		h.report(removed(p.object, p.object, c.Revision))
		h.report(added(c.Object))
		h.bury(p.entry, p.object, c.Revision)
	default:
		h.report(modified(p.object, c.Object))
	}
	h.set(p, p.entry, c.Object, c.Revision)
}

// delete takes a deletion. Its object is the last state, or says no more than the
// key, without a UID, when the source does not know it.
func (h *history) delete(p place, c keepwatch.Change) {
	last := c.Object
	if last.UID() == "" {
		last = p.object
	}
	h.report(removed(p.object, last, c.Revision))
	h.bury(p.entry, last, c.Revision)
	h.unset(p)
}
