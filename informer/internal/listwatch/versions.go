package listwatch

import (
	"encoding/json"
	"fmt"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
)

// versionAssigner assigns revisions and UIDs to the objects of a server that has none. Each
// event and each list increases the revision by one. It stores the assigned versions by key, so
// that a list returns the same item for an object that did not change.
type versionAssigner struct {
	last    keepwatch.Revision
	seed    maphash.Seed
	entries map[keepwatch.Key]entry
	next    map[keepwatch.Key]entry // of the list that is being read

	// token is the resourceVersion to watch from, as the server sent it. It is stale if the last
	// event had none.
	token string
	stale bool
}

type entry struct {
	uid  string // as the server sent it
	sum  uint64 // of the content
	item *item.Item
}

func newVersionAssigner(last keepwatch.Revision) *versionAssigner {
	return &versionAssigner{last: last, seed: maphash.MakeSeed(), entries: map[keepwatch.Key]entry{}}
}

// page returns the items of a page, and the list's revision. Unchanged objects keep their item;
// all other objects have the list's revision.
func (a *versionAssigner) page(first bool, about metav1.ListInterface,
	objects []runtime.Object) (keepwatch.Revision, []keepwatch.Object) {
	if first {
		a.last++
		a.next = map[keepwatch.Key]entry{}
		a.token, a.stale = about.GetResourceVersion(), false
	}
	page := make([]keepwatch.Object, 0, len(objects))
	for _, o := range objects {
		about, err := meta.Accessor(o)
		if err != nil || about.GetName() == "" {
			continue // a store has no key for it
		}
		key := keyOf(about)
		known, ok := a.entries[key]
		e := a.newEntry(about, o, known, ok)
		if ok && e.sameAs(known) {
			e = known
		}
		a.next[key] = e
		page = append(page, e.item)
	}
	if about.GetContinue() == "" {
		a.entries, a.next = a.next, nil
	}
	return a.last, page
}

// newEntry returns an entry for a state at the last revision. The object has the UID of the
// known entry, if ok, unless the server sent another one.
func (a *versionAssigner) newEntry(about metav1.Object, o runtime.Object, known entry, ok bool) entry {
	e := entry{uid: string(about.GetUID()), sum: a.sum(o)}
	uid := keepwatch.UID(e.uid)
	switch {
	case ok && e.uid == known.uid:
		uid = known.item.UID()
	case e.uid == "":
		uid = keepwatch.UID(fmt.Sprintf("%s#%d", keyOf(about), a.last))
	}
	e.item = item.New(keyOf(about), uid, a.last, o)
	return e
}

// sameAs reports whether two entries are the same state of the same object.
func (e entry) sameAs(other entry) bool {
	return e.item.UID() == other.item.UID() && e.sum == other.sum
}

// sum returns a hash of the content.
func (a *versionAssigner) sum(o runtime.Object) uint64 {
	text, err := json.Marshal(o)
	if err != nil {
		return maphash.Comparable(a.seed, a.last) // cannot be compared: always another state
	}
	return maphash.Bytes(a.seed, text)
}

// event returns the change of an event. ok is false if the event changes nothing.
func (a *versionAssigner) event(kind watch.EventType, o runtime.Object) (change keepwatch.Change, ok bool) {
	about, err := meta.Accessor(o)
	if err != nil || about.GetName() == "" {
		return keepwatch.Change{}, false
	}
	a.setToken(about.GetResourceVersion())
	key := keyOf(about)
	known, exists := a.entries[key]
	if kind == watch.Deleted {
		if !exists {
			return keepwatch.Change{}, false
		}
		a.last++
		delete(a.entries, key)
		final := item.New(key, known.item.UID(), a.last, o)
		return keepwatch.Change{Type: keepwatch.Deleted, Revision: a.last, Object: final}, true
	}
	a.last++
	e := a.newEntry(about, o, known, exists)
	if kind == watch.Added && exists && e.sameAs(known) {
		a.last--
		return keepwatch.Change{}, false // fakes send every object again when a watch begins
	}
	a.entries[key] = e
	change = keepwatch.Change{Type: keepwatch.Added, Revision: a.last, Object: e.item}
	if exists {
		change.Type = keepwatch.Modified
	}
	return change, true
}

// setToken stores the resourceVersion of an event or a bookmark.
func (a *versionAssigner) setToken(token string) {
	if a.stale = token == "" || token == "0"; !a.stale {
		a.token = token
	}
}
