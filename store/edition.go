package store

import "github.com/keepwatch/keepwatch"

// Versioned is implemented by objects whose source numbers the writes of each
// key: 1 for a create, one more for each update (etcd's Version). With it a
// missed event is noticed at the next one of its key.
type Versioned interface{ Version() int64 }

// Equaler is implemented by objects that can compare their content. It is asked
// only after a rewind, when equal revisions no longer mean equal content.
type Equaler interface {
	Equal(keepwatch.Object) bool
}

// edition is the next state while it is being made.
type edition struct {
	*editor
	base     *Snapshot
	revision keepwatch.Revision // that it will have
	epoch    uint64
	digest   digest
	changes  []keepwatch.Change
	dead     []tombstone
	last     keepwatch.Revision // of the changes applied so far
}

func newEdition(base *Snapshot, revision keepwatch.Revision) *edition {
	return &edition{
		editor: base.tree.edit(), base: base, revision: revision,
		epoch: base.epoch, digest: base.digest, last: base.revision,
	}
}

// snapshot ends the edition.
func (e *edition) snapshot() *Snapshot {
	return &Snapshot{tree: e.editor.publish(), epoch: e.epoch, revision: e.revision, digest: e.digest}
}

// apply takes one change of the history. It reports false for one that is not
// news, and fails for one that can't follow what is held.
func (e *edition) apply(c keepwatch.Change, graves graveyard) (news bool, err error) {
	key := c.Object.Key()
	held, known := e.get(key)
	if known && c.Revision <= held.object.Revision() {
		return false, nil
	}
	if c.Revision <= e.base.revision || c.Revision < e.last || c.Revision > e.revision {
		if !known && (c.Type == keepwatch.Deleted || e.buried(key, c.Revision, graves)) {
			return false, nil
		}
		return false, keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s %s at %d arrives out of order, after %d", c.Type, key, c.Revision, e.last)
	}
	if err := continuous(c, held, known); err != nil {
		return false, err
	}
	e.last = c.Revision
	if c.Type == keepwatch.Deleted {
		e.delete(held, c.Revision, c.Object)
		return true, nil
	}
	e.set(held, known, c.Object, c.Revision)
	return true, nil
}

// continuous checks that a change has the prior state it must have (P2).
func continuous(c keepwatch.Change, held entry, known bool) error {
	if !known && c.Type != keepwatch.Added {
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s %s at %d, but it was never added", c.Type, c.Object.Key(), c.Revision)
	}
	next, ok := c.Object.(Versioned)
	if !ok || c.Type == keepwatch.Deleted {
		return nil
	}
	prior := int64(0)
	if known && held.object.UID() == c.Object.UID() {
		prior = held.object.(Versioned).Version()
	}
	if next.Version() != prior+1 {
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"%s has version %d after %d: an event was missed", c.Object.Key(), next.Version(), prior)
	}
	return nil
}

// buried reports whether key was deleted at or after r, as far as is remembered.
func (e *edition) buried(key keepwatch.Key, r keepwatch.Revision, graves graveyard) bool {
	found := false
	match := func(t tombstone) { found = found || t.key == key }
	graves.since(r-1, match)
	for _, t := range e.dead {
		if t.revision >= r {
			match(t)
		}
	}
	return found
}

// set puts an object in the place of what is held under its key.
func (e *edition) set(held entry, known bool, o keepwatch.Object, at keepwatch.Revision) {
	created := at
	switch {
	case !known:
		e.changes = append(e.changes, added(o))
	case held.object.UID() != o.UID():
		// The delete in between was not seen; the view must show it (P6).
		e.changes = append(e.changes, removed(held.object, at), added(o))
		e.bury(held, held.object, at)
	default:
		created = held.created
		e.changes = append(e.changes, modified(held.object, o))
	}
	if known {
		e.digest = e.digest.without(held.object)
	}
	e.digest = e.digest.with(o)
	e.put(entry{key: o.Key(), object: o, created: created})
}

// delete takes out what is held; last is its final state as the source gave it.
func (e *edition) delete(held entry, at keepwatch.Revision, last keepwatch.Object) {
	c := removed(held.object, at)
	c.Object = last
	e.changes = append(e.changes, c)
	e.bury(held, last, at)
	e.digest = e.digest.without(held.object)
	e.remove(held.key)
}

func (e *edition) bury(held entry, last keepwatch.Object, at keepwatch.Revision) {
	e.dead = append(e.dead, tombstone{key: held.key, object: last, created: held.created, revision: at})
}
