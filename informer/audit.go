package informer

import (
	"context"
	"errors"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Audit is the result of a comparison of a cache with the server at one exact revision.
type Audit struct {
	Revision keepwatch.Revision
	Objects  int // on the server
	// Missing has the objects that are only on the server, Extra those that are only in the
	// cache, and Different those with another UID or resource version.
	Missing, Extra, Different []keepwatch.Key
}

// Equal reports whether nothing differs.
func (a Audit) Equal() bool { return len(a.Missing)+len(a.Extra)+len(a.Different) == 0 }

// Audit compares keys, UIDs and resource versions of all objects, also of skipped ones, with the
// server's at the cache's revision. It does not compare contents, which differ at an equal resource
// version only after a change of the definition: the next list corrects that. The server reads them from its storage,
// in pages. Audit returns a *keepwatch.Failure of kind Expired if the server compacts that revision meanwhile; the next
// audit uses a newer revision.
func (i *Informer[T]) Audit(ctx context.Context) (Audit, error) {
	current := i.follower.Current()
	if current == nil {
		return Audit{}, errors.New("an audit is not possible before the first list")
	}
	server := store.New(store.Options{})
	list, err := server.Replace(ctx, keepwatch.Relist{To: current.Revision()})
	if err != nil {
		return Audit{}, err
	}
	err = i.follower.ListAt(ctx, current.Revision(), func(objects []keepwatch.Object) error {
		return list.Put(ctx, objects)
	})
	if err != nil {
		return Audit{}, err
	}
	if err := list.Commit(ctx, current.Revision()); err != nil {
		return Audit{}, err
	}
	return compare(current, server.Snapshot()), nil
}

// compare compares two states.
func compare(cached, server *store.Snapshot) Audit {
	a := Audit{Revision: server.Revision(), Objects: server.Len()}
	if cached.Digest() == server.Digest() {
		return a
	}
	for o := range server.All() {
		local, ok := cached.Get(o.Key())
		switch {
		case !ok:
			a.Missing = append(a.Missing, o.Key())
		case local.UID() != o.UID() || local.Revision() != o.Revision():
			a.Different = append(a.Different, o.Key())
		}
	}
	for o := range cached.All() {
		if _, ok := server.Get(o.Key()); !ok {
			a.Extra = append(a.Extra, o.Key())
		}
	}
	return a
}

// Repair makes the informer list again and deliver the difference to the handlers, once it
// receives the next event or bookmark of the server; bookmarks arrive once a minute. It corrects
// what an [Audit] has found. It does not block.
func (i *Informer[T]) Repair() { i.follower.Repair() }
