package sim

import (
	"slices"

	"github.com/keepwatch/keepwatch"
)

// The definition of the objects' type says what they look like. It changes without a write of theirs: an object has
// another content at its revision then. The server ends the watches without a reason; a source asks for the definition
// when a watch is opened again.

// Redefine changes the definition by a write of another resource. It reports false if nothing can be written now.
func (w *World) Redefine() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unnoticed) > 0 {
		return false
	}
	w.commit(nil)
	w.redefined = append(w.redefined, w.head)
	w.wake()
	return true
}

// definitionAt returns the number of the definition of a server that has reached a revision. w.mu is held.
func (w *World) definitionAt(r keepwatch.Revision) int {
	return len(w.redefined) - len(slices.DeleteFunc(slices.Clone(w.redefined), func(at keepwatch.Revision) bool {
		return at <= r
	}))
}

// Definition returns the number of the newest definition.
func (w *World) Definition() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.redefined)
}

// shown returns the state at a revision as a server shows it that has reached it. w.mu is held.
func (w *World) shown(r keepwatch.Revision) []keepwatch.Object {
	objects := w.at(r)
	for i, o := range objects {
		objects[i] = defined(o, w.definitionAt(r))
	}
	return objects
}

// defined returns an object as a definition shows it.
func defined(o keepwatch.Object, definition int) keepwatch.Object {
	if plain(o).definition == definition {
		return o
	}
	if v, ok := o.(*Versioned); ok {
		shown := *v
		shown.definition = definition
		return &shown
	}
	shown := *plain(o)
	shown.definition = definition
	return &shown
}

// redefined reports whether two states of an object differ in their definitions.
func redefined(a, b keepwatch.Object) bool { return plain(a).definition != plain(b).definition }

// wrongDefinitions returns the objects of the process's store that the newest definition does not show so.
func (p *process) wrongDefinitions() (wrong []keepwatch.Object) {
	if len(p.source.breaches.list()) > 0 {
		return nil // a restore may be unnoticed
	}
	newest := p.source.world.Definition()
	for o := range p.incarnation.store.Snapshot().All() {
		if plain(o).definition != newest {
			wrong = append(wrong, o)
		}
	}
	return wrong
}

// wrongDefinitions returns the objects that the consumer has in another definition than its store. One that has come
// from another store may have them from there.
func (c *consumer) wrongDefinitions() (wrong []keepwatch.Object) {
	if !c.steady || len(c.moves) > 0 || c.incarnation == nil || c.cursor != c.incarnation.store.Snapshot().Cursor() {
		return nil
	}
	for o := range c.incarnation.store.Snapshot().All() {
		if received := c.fold[o.Key()]; c.matches(o) && received != nil && redefined(received, o) {
			wrong = append(wrong, received)
		}
	}
	return wrong
}
