package store

import (
	"slices"
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
)

// Term is an equality that a filter by content requires: the attribute of a name has a value. The watchers of one value
// are woken together, for changes of objects that have it or had it: ten thousand watchers of a node's pods each cost a
// write of another node's pod nothing.
type Term struct{ Name, Value string }

const (
	// maxTerms bounds the names, since clients choose them, and termScopes the scopes of each. Values share them by
	// hash; a watcher may be woken for a change that its filter excludes, and then waits again.
	maxTerms   = 16
	termScopes = 4096
	// recentChanges is how many changes of a scope a watcher finds without a search.
	recentChanges = 7
)

// term has the scopes of the values of one name.
type term struct {
	name string
	// since is the number of the view that was the newest when the term was added: what it and earlier views changed is
	// not known here.
	since uint64
	// unknown is the number of the newest view with changes that may belong to any value. It is stored before that
	// view is published, as each scope's changes are.
	unknown atomic.Uint64
	scopes  [termScopes]termScope
}

// termScope is shared by the values of one hash.
type termScope struct {
	notifier
	term    *term
	changed atomic.Pointer[viewNumbers] // nil before the first change
}

// viewNumbers are the numbers of the newest views that changed something in a scope, in rising order. They are
// immutable.
type viewNumbers struct {
	list [recentChanges]uint64
	n    int
}

// terms are the terms that watchers have named. Only the writer, or who holds Store.writing, adds one.
type terms struct{ all atomic.Pointer[[]*term] }

func (ts *terms) load() []*term {
	if all := ts.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (ts *terms) find(name string) *term {
	for _, t := range ts.load() {
		if t.name == name {
			return t
		}
	}
	return nil
}

// valueOf returns the scope of a term's value, nil if there is no term or if its name cannot be added now: its watchers
// are woken for every change of what else their filters name.
func (s *Store) valueOf(by *Term) *termScope {
	if by == nil || s.options.Term == nil {
		return nil
	}
	t := s.terms.find(by.Name)
	if t == nil {
		t = s.addTerm(by.Name)
	}
	if t == nil {
		return nil
	}
	return t.scope(by.Value)
}

// addTerm adds a name. It returns nil if there are too many, or while the writer writes: a watcher does not wait for
// it.
func (s *Store) addTerm(name string) *term {
	if !s.writing.TryLock() {
		return nil
	}
	defer s.writing.Unlock()
	if known := s.terms.find(name); known != nil {
		return known
	}
	all := s.terms.load()
	if len(all) == maxTerms {
		return nil
	}
	added := &term{name: name, since: s.view.Load().number}
	for i := range added.scopes {
		added.scopes[i].term = added
	}
	all = append(slices.Clip(all), added)
	s.terms.all.Store(&all)
	return added
}

// scope returns the scope of a value.
func (t *term) scope(value string) *termScope { return &t.scopes[absorb(3, value)%termScopes] }

// mark records for each term which scopes the changes of a view belong to, before the view is published. It returns the
// scopes to be woken, once each at least; all is true if that is every one.
func (ts *terms) mark(changes []keepwatch.Change, gap bool, number uint64, o Options) (touched []*termScope, all bool) {
	for _, t := range ts.load() {
		if gap {
			t.unknown.Store(number)
			all = true
			continue
		}
		for _, c := range changes {
			for _, object := range [2]keepwatch.Object{c.Prior, c.Object} {
				if object == nil || c.Type == keepwatch.Deleted && object != c.Prior {
					continue
				}
				value, known := o.Term(object, t.name)
				if !known {
					t.unknown.Store(number)
					all = true
					continue
				}
				if scope := t.scope(value); scope.add(number) {
					touched = append(touched, scope)
				}
			}
		}
	}
	return touched, all
}

// broadcast wakes the watchers of some scopes, or of all.
func (ts *terms) broadcast(touched []*termScope, all bool) {
	for _, scope := range touched {
		scope.notifier.broadcast()
	}
	if !all {
		return
	}
	for _, t := range ts.load() {
		for i := range t.scopes {
			t.scopes[i].notifier.broadcast()
		}
	}
}

// add records that a view changed something. It reports false if that is recorded already.
func (s *termScope) add(number uint64) bool {
	last := s.changed.Load()
	if last != nil && last.list[last.n-1] == number {
		return false
	}
	next := &viewNumbers{}
	if last != nil {
		*next = *last
	}
	if next.n == recentChanges {
		copy(next.list[:], next.list[1:])
		next.n--
	}
	next.list[next.n] = number
	next.n++
	s.changed.Store(next)
	return true
}

// after returns the numbers of the views after one, up to another, that changed something in the scope. It returns
// false if that is not known.
func (s *termScope) after(seen, now uint64) (numbers []uint64, ok bool) {
	if seen < s.term.since || s.term.unknown.Load() > seen {
		return nil, false
	}
	changed := s.changed.Load()
	if changed == nil {
		return nil, true
	}
	numbers = changed.list[:changed.n]
	if changed.n == recentChanges && numbers[0] > seen {
		return nil, false
	}
	for len(numbers) > 0 && numbers[0] <= seen {
		numbers = numbers[1:]
	}
	for len(numbers) > 0 && numbers[len(numbers)-1] > now { // of a view that is published meanwhile
		numbers = numbers[:len(numbers)-1]
	}
	return numbers, true
}

// advanceByTerm is advance for a watcher with a term: it looks only at what changed in the scope of the term's value.
// It returns false if the changes since the cursor must be searched.
func (w *Watcher) advanceByTerm(v *view) (_ keepwatch.Delivery, ok bool, _ error) {
	seen := w.seen
	numbers, ok := w.value.after(seen, v.number)
	if !ok || len(numbers) > 0 && v.number-numbers[0] >= uint64(v.window.len()) {
		return nil, false, nil
	}
	for _, number := range numbers {
		e := v.window.at(v.window.len() - 1 - int(v.number-number)) // each view since has appended one entry
		batch, isBatch := e.delivery.(keepwatch.Batch)
		if !isBatch {
			return nil, false, nil
		}
		changes, unreadable := w.filter.filter(after(batch.Changes, w.cursor.Revision), 0)
		w.cursor = e.to
		if unreadable != nil {
			d, err := w.stopBefore(changes, unreadable)
			return d, true, err
		}
		w.seen = number
		if len(changes) > 0 {
			return w.deliver(keepwatch.Batch{From: w.delivered, To: batch.To, Changes: changes}), true, nil
		}
	}
	w.cursor = v.snapshot.Cursor()
	return w.finish(v, v.bookmark > seen), true, nil
}
