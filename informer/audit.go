package informer

import (
	"context"
	"errors"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Audit is what the comparison of a cache with the server came to, at one exact
// revision.
type Audit struct {
	Revision keepwatch.Revision
	Objects  int // on the server
	// Missing are on the server and not in the cache, Extra in the cache and not on
	// the server, and Different in both with another UID or resource version.
	Missing, Extra, Different []keepwatch.Key
}

// Equal reports whether nothing differs.
func (a Audit) Equal() bool { return len(a.Missing)+len(a.Extra)+len(a.Different) == 0 }

// Audit compares the cache with the server: keys, UIDs and resource versions of all
// objects, those that are skipped included, at the cache's revision. That is
// a list from the server's storage, in pages. It fails with a *keepwatch.Failure
// of kind Expired if the server has forgotten that revision before the list was
// over; then the next audit has another.
func (i *Informer[T]) Audit(ctx context.Context) (Audit, error) {
	current := i.follower.Current()
	if current == nil {
		return Audit{}, errors.New("there is nothing to audit before the first list")
	}
	there := store.New(store.Options{})
	list, err := there.Replace(ctx, keepwatch.Relist{To: current.Revision()})
	if err != nil {
		return Audit{}, err
	}
	err = i.follower.ListAt(ctx, current.Revision(), func(objects []keepwatch.Object) error { return list.Put(ctx, objects) })
	if err != nil {
		return Audit{}, err
	}
	if err := list.Commit(ctx, current.Revision()); err != nil {
		return Audit{}, err
	}
	return compare(current, there.Snapshot()), nil
}

// compare compares what is here with what is there.
func compare(here, there *store.Snapshot) Audit {
	a := Audit{Revision: there.Revision(), Objects: there.Len()}
	if here.Digest() == there.Digest() {
		return a
	}
	for o := range there.All() {
		local, ok := here.Get(o.Key())
		switch {
		case !ok:
			a.Missing = append(a.Missing, o.Key())
		case local.UID() != o.UID() || local.Revision() != o.Revision():
			a.Different = append(a.Different, o.Key())
		}
	}
	for o := range here.All() {
		if _, ok := there.Get(o.Key()); !ok {
			a.Extra = append(a.Extra, o.Key())
		}
	}
	return a
}

// Repair lists again and delivers the difference to the handlers, as soon
// as it hears anything from the server: a bookmark comes once a minute. It is for
// what an [Audit] has found, and does not block.
func (i *Informer[T]) Repair() { i.follower.Repair() }
