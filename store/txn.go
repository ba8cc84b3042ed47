package store

import (
	"slices"
	"sort"

	"github.com/keepwatch/keepwatch"
)

// txn builds the next state from a base. [Store.Apply] feeds it a batch of changes,
// [Store.Replace] a list. Readers see nothing of it before it is published.
type txn struct {
	editor
	base      *Snapshot
	graveyard *graveyard         // of the base
	revision  keepwatch.Revision // of the next state
	last      keepwatch.Revision // of the newest change that was applied
	epoch     uint64
	digest    digest
	// changes turn the base into the next state, and tombstones are their deletions.
	changes    []keepwatch.Change
	tombstones []tombstone
}

func newTxn(v *view, revision keepwatch.Revision) *txn {
	base := v.snapshot
	return &txn{
		editor: base.tree.edit(), base: base, graveyard: v.graveyard, revision: revision,
		epoch: base.epoch, digest: base.digest,
	}
}

// snapshot returns the next state and ends the transaction.
func (t *txn) snapshot() *Snapshot {
	return &Snapshot{tree: t.editor.publish(), epoch: t.epoch, revision: t.revision, digest: t.digest}
}

// apply applies one change of a batch. It reports false for a duplicate, and fails for a
// change that cannot follow the current state.
func (t *txn) apply(c keepwatch.Change) (applied bool, err error) {
	if err := validateChange(c, t.revision); err != nil {
		return false, err
	}
	p := t.seek(c.Object.Key())
	if p.entry != nil && c.Type == keepwatch.Deleted && c.Revision == p.object.Revision() &&
		c.Object.UID() == p.object.UID() {
		// It is no duplicate: an earlier deletion of the object is at an earlier revision.
		return false, keepwatch.Failed(keepwatch.ProtocolViolation, "%s was deleted at %d, but exists at that revision",
			c.Object.Key(), c.Revision)
	}
	if p.entry != nil && c.Revision <= p.object.Revision() || p.entry == nil && t.deletedSince(c) {
		return false, nil
	}
	if c.Revision <= t.base.revision || c.Revision < t.last {
		return false, keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s %s at %d is news, but arrives after %d", c.Type, c.Object.Key(), c.Revision, max(t.last, t.base.revision))
	}
	if err := validatePrior(c, p.entry); err != nil {
		return false, err
	}
	t.last = c.Revision
	if c.Type == keepwatch.Deleted {
		t.applyDelete(p, c)
	} else {
		t.applyWrite(p, c)
	}
	return true, nil
}

// deletedSince reports whether the object of a change was deleted by that change or by a
// later one, so that the change is a duplicate. Where the tombstones do not reach back to
// the change, a deletion counts as a duplicate and a write does not: an unnecessary relist
// is better than a lost object.
func (t *txn) deletedSince(c keepwatch.Change) bool {
	key, found := c.Object.Key(), false
	match := func(s tombstone) {
		again := c.Type == keepwatch.Deleted || s.revision > c.Revision || s.object.UID() == c.Object.UID()
		found = found || s.object.Key() == key && again
	}
	t.graveyard.since(c.Revision-1, match)
	first := sort.Search(len(t.tombstones), func(i int) bool { return t.tombstones[i].revision >= c.Revision })
	for _, s := range t.tombstones[first:] {
		match(s)
	}
	return found || c.Type == keepwatch.Deleted && !t.graveyard.coversSince(c.Revision-1)
}

// applyWrite stores the new state of an object.
func (t *txn) applyWrite(p position, c keepwatch.Change) {
	switch {
	case p.entry == nil:
		t.record(added(c.Object))
	case p.object.UID() != c.Object.UID():
		// The source did not deliver the deletion in between; the view must show it (P6).
		t.record(removed(p.object, p.object, c.Revision))
		t.record(added(c.Object))
		t.addTombstone(p.entry, p.object, c.Revision)
	default:
		t.record(modified(p.object, c.Object))
	}
	t.putObject(p, p.entry, c.Object, c.Revision)
}

// applyDelete removes an object. The change carries its last state, or an object without a
// UID if the source does not know that state.
func (t *txn) applyDelete(p position, c keepwatch.Change) {
	last := c.Object
	if last.UID() == "" {
		last = p.object
	}
	t.record(removed(p.object, last, c.Revision))
	t.addTombstone(p.entry, last, c.Revision)
	t.removeObject(p)
}

// diffBase records the difference between the base and the next state.
func (t *txn) diffBase() {
	diff(t.base.tree, tree{t.root}, func(before, after *entry) {
		if before != nil && before.adopted(after) {
			return
		}
		t.changes = append(t.changes, between(before, after, t.revision)...)
		if before != nil && (after == nil || before.object.UID() != after.object.UID()) {
			t.addTombstone(before, before.object, t.revision)
		}
	})
}

// contradictsBase reports whether the source returned another state for a revision than before: for
// the base's, or for that of an object. No watcher can continue from such a state: revisions do not
// show the difference.
func (t *txn) contradictsBase() bool {
	if t.revision == t.base.revision {
		return len(t.changes) > 0
	}
	return slices.ContainsFunc(t.changes, func(c keepwatch.Change) bool {
		return c.Type == keepwatch.Modified && c.Revision == c.Prior.Revision()
	})
}

// capRevisions lowers the revisions of all entries to that of the next state. Entries are
// newer than it when the source went back in time.
func (t *txn) capRevisions() {
	old := t.editor.publish()
	t.editor = tree{}.edit()
	old.all(func(s Segment) bool {
		for _, n := range s.entries() {
			key := n.object.Key()
			t.put(t.seek(key), key, &entry{n.object, min(n.created, t.revision), min(n.stored, t.revision)})
		}
		return true
	})
}

// undo reverts the changes of a log entry that are newer than the transaction's revision.
func (t *txn) undo(e logEntry) {
	changes := e.changes()
	for i := len(changes) - 1; i >= 0; i-- {
		c := changes[i]
		if !e.isGap() && c.Revision <= t.revision {
			return
		}
		if p := t.seek(c.Object.Key()); c.Prior == nil {
			t.removeObject(p)
		} else {
			t.putObject(p, nil, c.Prior, c.Prior.Revision())
		}
	}
}

// putObject puts an object at the position of its key and replaces the object there. prior
// is the entry of the key in the base, nil if there was none.
func (t *txn) putObject(p position, prior *entry, o keepwatch.Object, at keepwatch.Revision) {
	switch {
	case p.entry == nil:
		t.digest = t.digest.with(o)
	case p.object.UID() == o.UID():
		t.digest = t.digest.replace(p.object, o)
	default:
		t.digest = t.digest.without(p.object).with(o)
	}
	created := at
	if prior != nil && prior.object.UID() == o.UID() {
		created = prior.created
	}
	t.put(p, o.Key(), &entry{object: o, created: created, stored: at})
}

// removeObject removes the object at a position.
func (t *txn) removeObject(p position) {
	t.digest = t.digest.without(p.object)
	t.remove(p)
}

func (t *txn) record(c keepwatch.Change) { t.changes = append(t.changes, c) }

// addTombstone records the deletion of an entry; last is the object's final state.
func (t *txn) addTombstone(deleted *entry, last keepwatch.Object, at keepwatch.Revision) {
	t.tombstones = append(t.tombstones, tombstone{object: last, created: deleted.created, revision: at})
}
