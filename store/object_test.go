package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// thing is the object of these tests.
type thing struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	color    string // the attribute that filters use
}

func (t *thing) Key() keepwatch.Key           { return t.key }
func (t *thing) UID() keepwatch.UID           { return t.uid }
func (t *thing) Revision() keepwatch.Revision { return t.revision }
func (t *thing) String() string {
	return fmt.Sprintf("%s %s %d %s", t.key, t.uid, t.revision, t.color)
}

// Equal compares everything.
func (t *thing) Equal(o keepwatch.Object) bool { other, ok := o.(*thing); return ok && *other == *t }

// Sum hashes the color.
func (t *thing) Sum() uint64 { return absorb(2, t.color) }

// opaque is a thing that cannot be compared.
type opaque struct{ *thing }

func (opaque) Equal() {} // hides thing's

func key(namespace, name string) keepwatch.Key {
	return keepwatch.Key{Namespace: namespace, Name: name}
}

// thingAt is "ns/name" with the first UID of its name.
func thingAt(name string, r keepwatch.Revision) *thing {
	return &thing{key: key("ns", name), uid: keepwatch.UID(name + "-1"), revision: r}
}

func (t *thing) with(change func(*thing)) *thing {
	c := *t
	change(&c)
	return &c
}

func (t *thing) withUID(uid keepwatch.UID) *thing { return t.with(func(t *thing) { t.uid = uid }) }
func (t *thing) at(r keepwatch.Revision) *thing {
	return t.with(func(t *thing) { t.revision = r })
}
func (t *thing) painted(color string) *thing { return t.with(func(t *thing) { t.color = color }) }
func (t *thing) in(namespace string) *thing {
	return t.with(func(t *thing) { t.key.Namespace = namespace })
}

// add, modify and del are changes as a source gives them: without Prior.
func add(o keepwatch.Object) keepwatch.Change {
	return keepwatch.Change{Type: keepwatch.Added, Revision: o.Revision(), Object: o}
}

func modify(o keepwatch.Object) keepwatch.Change {
	return keepwatch.Change{Type: keepwatch.Modified, Revision: o.Revision(), Object: o}
}

// del shows the object at the deletion's revision, as Kubernetes does.
func del(t *thing, r keepwatch.Revision) keepwatch.Change {
	return keepwatch.Change{Type: keepwatch.Deleted, Revision: r, Object: t.at(r)}
}

func batch(from, to keepwatch.Revision, changes ...keepwatch.Change) keepwatch.Batch {
	return keepwatch.Batch{From: from, To: to, Changes: changes}
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// listed makes a store that has listed objects at a revision.
func listed(t fataler, o Options, at keepwatch.Revision, objects ...keepwatch.Object) *Store {
	t.Helper()
	s := New(o)
	relist(t, s, "", at, objects...)
	return s
}

// relist replaces the state.
func relist(t fataler, s *Store, reason keepwatch.GapReason, to keepwatch.Revision, objects ...keepwatch.Object) {
	t.Helper()
	if err := replace(s, reason, to, objects...); err != nil {
		t.Fatalf("relist at %d: %v", to, err)
	}
}

func replace(s *Store, reason keepwatch.GapReason, to keepwatch.Revision, objects ...keepwatch.Object) error {
	r, err := s.Replace(context.Background(), keepwatch.Relist{Reason: reason, To: to})
	if err != nil {
		return err
	}
	if err := r.Put(context.Background(), objects); err != nil {
		r.Discard()
		return err
	}
	return r.Commit(context.Background(), to)
}

// apply applies history that must be accepted without loss.
func apply(t fataler, s *Store, to keepwatch.Revision, changes ...keepwatch.Change) {
	t.Helper()
	if dropped, err := s.Apply(context.Background(), batch(s.Revision(), to, changes...)); err != nil || dropped > 0 {
		t.Fatalf("apply up to %d: %d dropped, %v", to, dropped, err)
	}
}

// poll returns all deliveries that a watcher has.
func poll(t fataler, w *Watcher) []keepwatch.Delivery {
	t.Helper()
	var all []keepwatch.Delivery
	for {
		d, _, err := w.TryNext()
		if err != nil {
			t.Fatalf("poll after %v: %v", all, err)
		}
		if d == nil {
			return all
		}
		all = append(all, d)
	}
}

// failure is the kind of an error, 0 if it is none.
func failure(err error) keepwatch.FailureKind {
	var f *keepwatch.Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	return 0
}

func wantFailure(t *testing.T, err error, kind keepwatch.FailureKind) {
	t.Helper()
	if failure(err) != kind {
		t.Fatalf("got %v, want a failure of kind %q", err, kind)
	}
}

// lines formats deliveries as "kind from-to changes".
func lines(deliveries ...keepwatch.Delivery) []string {
	lines := []string{}
	for _, d := range deliveries {
		switch d := d.(type) {
		case keepwatch.Batch:
			lines = append(lines, fmt.Sprintf("batch %d-%d%s", d.From, d.To, changesText(d.Changes)))
		case keepwatch.Gap:
			lines = append(lines, fmt.Sprintf("gap %d-%d %s%s", d.From, d.To, d.Reason, changesText(d.Changes)))
		}
	}
	return lines
}

func changesText(changes []keepwatch.Change) (text string) {
	for _, c := range changes {
		text += fmt.Sprintf("; %s@%d %s %s@%d", c.Type, c.Revision, c.Object.Key(), c.Object.UID(), c.Object.Revision())
	}
	return text
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got:\n%q\nwant:\n%q", got, want)
	}
}

// state is the content of a snapshot or a fold.
type state map[keepwatch.Key]keepwatch.Object

func stateOf(s *Snapshot) state {
	current := state{}
	for o := range s.All() {
		current[o.Key()] = o
	}
	return current
}

// through returns the objects that a filter selects.
func (s state) through(f Filter) state {
	selected := state{}
	for k, o := range s {
		if f.covers(o.Key()) && (f.Match == nil || f.Match(o)) {
			selected[k] = o
		}
	}
	return selected
}

// equal compares by value: a list has copies of a watch's objects.
func (s state) equal(o state) bool {
	return maps.EqualFunc(s, o, func(a, b keepwatch.Object) bool { return *a.(*thing) == *b.(*thing) })
}

func (s state) String() (text string) {
	sorted := slices.SortedFunc(maps.Keys(s), keepwatch.Key.Compare)
	for _, k := range sorted {
		text += fmt.Sprintln(s[k])
	}
	return text
}

// sorted are the objects in key order.
func (s state) sorted() []keepwatch.Object {
	return slices.SortedFunc(maps.Values(s), func(a, b keepwatch.Object) int { return a.Key().Compare(b.Key()) })
}
