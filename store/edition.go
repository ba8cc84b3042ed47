package store

import (
	"strings"

	"github.com/keepwatch/keepwatch"
)

// Versioned is implemented by objects whose source numbers the writes of each
// key: 1 for a create, one more for each update (etcd's Version). With it a
// missed event is noticed at the next one of its key. 0 is for a source that does not
// number them; then nothing is checked.
type Versioned interface{ Version() int64 }

// edition is the next state while it is being made.
type edition struct {
	editor
	base     *Snapshot
	revision keepwatch.Revision // that it will have
	epoch    uint64
	digest   digest
	changes  []keepwatch.Change
	dead     []tombstone
}

func newEdition(base *Snapshot, revision keepwatch.Revision) edition {
	return edition{
		editor: base.tree.edit(), base: base, revision: revision,
		epoch: base.epoch, digest: base.digest,
	}
}

// named checks that an object's key has a place in the order: a slash within a
// namespace would make two keys one.
func named(o keepwatch.Object) error {
	if key := o.Key(); key.Name == "" || strings.Contains(key.Namespace, "/") {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "%q in namespace %q is no object's name", key.Name, key.Namespace)
	}
	return nil
}

// snapshot ends the edition.
func (e *edition) snapshot() *Snapshot {
	return &Snapshot{tree: e.editor.publish(), epoch: e.epoch, revision: e.revision, digest: e.digest}
}

// compare reports and buries what differs between the base and the edition.
func (e *edition) compare() {
	diff(e.base.tree, tree{e.root}, func(before, after *entry) {
		e.changes = append(e.changes, between(before, after, e.revision)...)
		if before != nil && (after == nil || before.object.UID() != after.object.UID()) {
			e.bury(before, before.object, e.revision)
		}
	})
}

// restamp makes the edition's entries as old as its revision at least, where the
// source went back behind the revisions they had come with.
func (e *edition) restamp() {
	old := e.editor.publish()
	e.editor = tree{}.edit()
	old.all(func(s Segment) bool {
		for _, n := range s.entries() {
			key := n.object.Key()
			e.put(e.seek(key), key, &entry{n.object, min(n.created, e.revision), min(n.stored, e.revision)})
		}
		return true
	})
}

// set puts an object at its place, which may hold another. held is what
// came before it, nil if nothing did.
func (e *edition) set(p place, held *entry, o keepwatch.Object, at keepwatch.Revision) {
	switch {
	case p.entry == nil:
		e.digest = e.digest.with(o)
	case p.object.UID() == o.UID():
		e.digest = e.digest.replace(p.object, o)
	default:
		e.digest = e.digest.without(p.object).with(o)
	}
	created := at
	if held != nil && held.object.UID() == o.UID() {
		created = held.created
	}
	e.put(p, o.Key(), &entry{object: o, created: created, stored: at})
}

// unset takes out what a place holds.
func (e *edition) unset(p place) {
	e.digest = e.digest.without(p.object)
	e.remove(p)
}

// report adds a change that the edition made to what was held before.
func (e *edition) report(c keepwatch.Change) { e.changes = append(e.changes, c) }

// bury keeps what was held as a tombstone; last is its final state.
func (e *edition) bury(held *entry, last keepwatch.Object, at keepwatch.Revision) {
	e.dead = append(e.dead, tombstone{object: last, created: held.created, revision: at})
}
