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

// ledger gives revisions and UIDs to objects of a server that has none: each
// event and each list is one revision more. It remembers what it has given to
// which object, so that an object that a list shows again as it was is the same.
type ledger struct {
	last    keepwatch.Revision
	seed    maphash.Seed
	entries map[keepwatch.Key]entry
	listing map[keepwatch.Key]entry // of the list on its way

	// token is the resourceVersion to watch from, whatever the server takes it for.
	// It is stale when what was delivered last came without one.
	token string
	stale bool
}

type entry struct {
	uid  string // as the server gave it
	sum  uint64 // of the content
	item *item.Item
}

func newLedger(last keepwatch.Revision) *ledger {
	return &ledger{last: last, seed: maphash.MakeSeed(), entries: map[keepwatch.Key]entry{}}
}

// list takes a page. What is as it was stays as it was; all that is new in a list
// has the list's revision.
func (l *ledger) list(first bool, about metav1.ListInterface, objects []runtime.Object) (keepwatch.Revision, []keepwatch.Object) {
	if first {
		l.last++
		l.listing = map[keepwatch.Key]entry{}
		l.token, l.stale = about.GetResourceVersion(), false
	}
	page := make([]keepwatch.Object, 0, len(objects))
	for _, o := range objects {
		about, err := meta.Accessor(o)
		if err != nil || about.GetName() == "" {
			continue // a store has no place for it
		}
		key := keyOf(about)
		held, known := l.entries[key]
		e := l.enter(about, o, held, known)
		if known && e.item.UID() == held.item.UID() && e.sum == held.sum {
			e = held
		}
		l.listing[key] = e
		page = append(page, e.item)
	}
	if about.GetContinue() == "" {
		l.entries, l.listing = l.listing, nil
	}
	return l.last, page
}

// enter makes an entry for a state at the last revision. It goes on with the life
// that is held unless the server says that it is another one.
func (l *ledger) enter(about metav1.Object, o runtime.Object, held entry, known bool) entry {
	e := entry{uid: string(about.GetUID()), sum: l.sum(o)}
	uid := keepwatch.UID(e.uid)
	switch {
	case known && e.uid == held.uid:
		uid = held.item.UID()
	case e.uid == "":
		uid = keepwatch.UID(fmt.Sprintf("%s#%d", keyOf(about), l.last))
	}
	e.item = item.New(keyOf(about), uid, l.last, o)
	return e
}

// sum is equal for states of equal content.
func (l *ledger) sum(o runtime.Object) uint64 {
	text, err := json.Marshal(o)
	if err != nil {
		return maphash.Comparable(l.seed, l.last) // can't be compared: always another one
	}
	return maphash.Bytes(l.seed, text)
}

// event takes an event; ok is false for one that is not news.
func (l *ledger) event(kind watch.EventType, o runtime.Object) (change keepwatch.Change, ok bool) {
	about, err := meta.Accessor(o)
	if err != nil || about.GetName() == "" {
		return keepwatch.Change{}, false
	}
	l.move(about.GetResourceVersion())
	key := keyOf(about)
	held, known := l.entries[key]
	if kind == watch.Deleted {
		if !known {
			return keepwatch.Change{}, false
		}
		l.last++
		delete(l.entries, key)
		final := item.New(key, held.item.UID(), l.last, o)
		return keepwatch.Change{Type: keepwatch.Deleted, Revision: l.last, Object: final}, true
	}
	l.last++
	e := l.enter(about, o, held, known)
	if kind == watch.Added && known && e.item.UID() == held.item.UID() && e.sum == held.sum {
		l.last--
		return keepwatch.Change{}, false // what fakes show again when a watch begins
	}
	l.entries[key] = e
	change = keepwatch.Change{Type: keepwatch.Added, Revision: l.last, Object: e.item}
	if known {
		change.Type = keepwatch.Modified
	}
	return change, true
}

// move takes note of the resourceVersion that an event or a bookmark came with.
func (l *ledger) move(token string) {
	if l.stale = token == "" || token == "0"; !l.stale {
		l.token = token
	}
}
