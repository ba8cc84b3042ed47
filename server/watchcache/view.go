package watchcache

import (
	"context"
	"crypto/sha256"
	"iter"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Namespaces is a set of namespaces, each with its UID: one that was deleted and created again is another namespace. It
// is immutable.
type Namespaces struct {
	all    []namespace // in the order of keys
	byName bool        // the objects are namespaces themselves, which have no namespace
	digest [sha256.Size]byte
}

// namespace is one of a set.
type namespace struct {
	name string
	uid  keepwatch.UID
}

// path returns the beginning of the keys of a namespace's objects.
func path(namespace string) string { return namespace + "/" }

// comparePaths compares the paths of two names: "ns-a/" is before "ns/".
func comparePaths(a, b string) int {
	n := min(len(a), len(b))
	if a[:n] != b[:n] || len(a) == len(b) {
		return strings.Compare(a, b)
	}
	return strings.Compare(path(a[n:]), path(b[n:]))
}

// NewNamespaces returns the set of namespaces with their UIDs. byName says that it restricts objects which are
// themselves namespaces.
func NewNamespaces(uids map[string]keepwatch.UID, byName bool) *Namespaces {
	n := &Namespaces{all: make([]namespace, 0, len(uids)), byName: byName}
	for name, uid := range uids {
		n.all = append(n.all, namespace{name, uid})
	}
	slices.SortFunc(n.all, func(a, b namespace) int { return comparePaths(a.name, b.name) })
	h := sha256.New()
	for _, of := range n.all {
		h.Write([]byte(of.name + "/" + string(of.uid) + "\n")) // neither has these two characters
	}
	h.Sum(n.digest[:0])
	return n
}

// Len returns the number of namespaces.
func (n *Namespaces) Len() int { return len(n.all) }

// Has reports whether a namespace is in the set.
func (n *Namespaces) Has(namespace string) bool {
	_, has := n.uid(namespace)
	return has
}

// uid returns the UID of a namespace, and whether it is in the set.
func (n *Namespaces) uid(name string) (keepwatch.UID, bool) {
	i, has := slices.BinarySearchFunc(n.all, name, func(of namespace, name string) int {
		return comparePaths(of.name, name)
	})
	if !has {
		return "", false
	}
	return n.all[i].uid, true
}

// All returns the namespaces with their UIDs, in the order of keys.
func (n *Namespaces) All() iter.Seq2[string, keepwatch.UID] {
	return func(yield func(string, keepwatch.UID) bool) {
		for _, of := range n.all {
			if !yield(of.name, of.uid) {
				return
			}
		}
	}
}

// hasSame reports whether a namespace is in both sets, with the same UID.
func (n *Namespaces) hasSame(o *Namespaces, name string) bool {
	uid, has := n.uid(name)
	other, hadOther := o.uid(name)
	return has && hadOther && uid == other
}

// Equal reports whether two sets have the same namespaces with the same UIDs.
func (n *Namespaces) Equal(o *Namespaces) bool { return n.digest == o.digest }

// Digest returns a digest of the names and the UIDs.
func (n *Namespaces) Digest() []byte { return n.digest[:] }

// Names returns the names in the order of keys.
func (n *Namespaces) Names() []string {
	names := make([]string, len(n.all))
	for i, of := range n.all {
		names[i] = of.name
	}
	return names
}

// covers reports whether an object is in one of the namespaces.
func (n *Namespaces) covers(key keepwatch.Key) bool {
	if n.byName {
		return n.Has(key.Name)
	}
	return n.Has(key.Namespace)
}

// count returns how many objects of the namespaces a snapshot has from a path on.
func (n *Namespaces) count(snapshot *store.Snapshot, start string) (sum int64) {
	for _, s := range n.scopesFrom(start) {
		sum += s.count(snapshot, start)
	}
	return sum
}

// scopesFrom returns the scopes of the namespaces that have paths from one on.
func (n *Namespaces) scopesFrom(start string) iter.Seq2[string, scope] {
	return func(yield func(string, scope) bool) {
		for name, s := range n.scopes() {
			if s.path < start && !(s.recursive && strings.HasPrefix(start, s.path)) {
				continue
			}
			if !yield(name, s) {
				return
			}
		}
	}
}

// scopes returns the scopes of the namespaces, in the order of keys.
func (n *Namespaces) scopes() iter.Seq2[string, scope] {
	return func(yield func(string, scope) bool) {
		for _, of := range n.all {
			s := scope{path: path(of.name), recursive: true, namespaced: true}
			if n.byName {
				s = scope{path: of.name}
			}
			if !yield(of.name, s) {
				return
			}
		}
	}
}

// segments iterates over the segments of a snapshot's objects in the namespaces, in key order, from a path on. Adjacent
// parts of a segment are one part.
func (n *Namespaces) segments(snapshot *store.Snapshot, start string) iter.Seq[store.Segment] {
	return func(yield func(store.Segment) bool) {
		var last store.Segment
		for _, s := range n.scopesFrom(start) {
			for segment := range s.segments(snapshot, start) {
				if joined, ok := last.Join(segment); ok {
					last = joined
					continue
				}
				if last.Len() > 0 && !yield(last) {
					return
				}
				last = segment
			}
		}
		if last.Len() > 0 {
			yield(last)
		}
	}
}

// View is the part of a resource that one user may see: the objects of some namespaces, which change as permissions do.
// Its methods are safe for concurrent use.
type View interface {
	// Namespaces returns the present set, and a channel that is closed when another one takes its place, or may have at
	// another server. It fails if the set is not known.
	Namespaces() (present *Namespaces, replaced <-chan struct{}, err error)
	// Resumable returns the set of which all was that a client may have at a revision, from here or from another server,
	// which need not be the present set: its lists may have other namespaces than its watches. It reports false if that
	// is not known.
	Resumable(from keepwatch.Revision) (listed *Namespaces, ok bool)
	// Agreement is how long after this server another one may still show another set, or did before it.
	Agreement() time.Duration
}

// ListIn is List for the objects of some namespaces.
func (c *Cache) ListIn(ctx context.Context, key string, options apistorage.ListOptions,
	within *Namespaces) (*ListResult, error) {
	if err := c.ReadinessCheck(); err != nil {
		return nil, err
	}
	r, err := c.ListRequest(ctx, key, options)
	if err != nil {
		return nil, err
	}
	r.within = within
	return c.answer(ctx, r)
}

// WatchIn is Watch for the objects of a view. A namespace that is granted begins with the ADDED events of its objects,
// and one that is revoked ends with their DELETED events, with the states that the watch has delivered. A watch that
// resumes begins with the difference of the present set from the one that its client may have at the revision, and
// receives 410 Expired if that is not known.
func (c *Cache) WatchIn(ctx context.Context, key string, options apistorage.ListOptions, view View) (*Watch, error) {
	return c.watch(ctx, key, options, view)
}

// errOtherSet ends a watch whose client may have been shown other namespaces than those of the present set, so that the
// difference is not known.
var errOtherSet = apierrors.NewResourceExpired(
	"The namespaces of this personal view have changed since the provided resourceVersion, or may have.")

// viewed is what a watch of a view needs beyond others.
type viewed struct {
	view     View
	resumed  bool            // the watch began at a revision that its client has named
	next     *Namespaces     // the set that takes the place of the one which the client has listed; nil if it is the same
	replaced <-chan struct{} // when the scope's set is no longer the present one, or may not be another server's
	granted  []granted       // that are not delivered yet
	marks    bool            // a bookmark follows what is granted
	began    time.Time
}

// isDelivered reports whether the watch has delivered the objects of all namespaces of its view, once it has reached a
// revision: otherwise no bookmark of that may be sent. It is true of a watch without a view.
func (v *viewed) isDelivered() bool {
	return v == nil || v.next == nil && len(v.granted) == 0 && !isClosed(v.replaced)
}

// granted is a namespace whose objects are to be delivered, in the state at the watch's revision.
type granted struct {
	namespace string
	segments  []store.Segment
}

// newViewed returns what a watch of a view begins with, and the set that its client has. resumes is the revision that
// it has named, or zero.
func newViewed(view View, resumes keepwatch.Revision) (*viewed, *Namespaces, error) {
	present, replaced, err := view.Namespaces()
	if err != nil {
		return nil, nil, RequestError{err}
	}
	v := &viewed{view: view, resumed: resumes > 0, replaced: replaced, began: time.Now()}
	if resumes == 0 {
		return v, present, nil
	}
	listed, ok := view.Resumable(resumes)
	if !ok {
		return nil, nil, errOtherSet
	}
	if !listed.Equal(present) {
		v.next = present
	}
	return v, listed, nil
}

// viewChanges returns a channel that is closed when the set of a watch is replaced; nil if it has none.
func (w *Watch) viewChanges() <-chan struct{} {
	if w.viewed == nil {
		return nil
	}
	return w.viewed.replaced
}

// nextOfView returns the events of a change of the set, and those of the namespaces that are granted. It returns none
// if the watch can continue.
func (w *Watch) nextOfView() (events []Event, err error) {
	v := w.viewed
	if v == nil {
		return nil, nil
	}
	if next := v.next; next != nil {
		v.next = nil
		if events, err = w.continueIn(next); err != nil || len(events) > 0 {
			return events, err
		}
	}
	select {
	case <-v.replaced:
		if events, err = w.replaceSet(); err != nil || len(events) > 0 {
			return events, err
		}
	default:
	}
	for len(w.state) == 0 && len(v.granted) > 0 {
		g := &v.granted[0]
		if len(g.segments) == 0 {
			v.granted = v.granted[1:]
			v.marks = w.wantsBookmarks() && (w.stated || !w.bookmark) // the initial state ends with one
			continue
		}
		segment := g.segments[0]
		g.segments = g.segments[1:]
		if events, err = w.added(segment); err != nil || len(events) > 0 {
			return events, err
		}
	}
	// with the revision of an object that is older a client could not resume
	if v.marks && len(v.granted) == 0 {
		v.marks = false
		return []Event{w.progress()}, nil
	}
	return nil, nil
}

// replaceSet continues the watch in the present set. It ends with Expired if another server may have shown another set
// before: also if the set here is the same, and has known the change from the beginning.
func (w *Watch) replaceSet() ([]Event, error) {
	v := w.viewed
	present, replaced, err := v.view.Namespaces()
	if err != nil {
		return nil, err
	}
	v.replaced = replaced
	if v.resumed && time.Since(v.began) < v.view.Agreement() {
		return nil, errOtherSet
	}
	return w.continueIn(present)
}

// continueIn continues the watch in another set. Its revision remains. It returns the deletions of what is revoked. The
// watch ends with Expired if its client may have been shown a part of that.
func (w *Watch) continueIn(present *Namespaces) ([]Event, error) {
	v, before := w.viewed, w.scope.within
	if present.Equal(before) {
		return nil, nil
	}
	asked := w.scope // what the client asks for of all namespaces
	asked.within = nil
	state, err := w.cache.store.At(w.Revision())
	if err != nil || state.Cursor() != w.watcher.Cursor() {
		return nil, errOtherSet
	}
	var deleted []Event
	for name, s := range before.scopes() {
		if present.hasSame(before, name) {
			continue
		}
		if !w.stated || slices.ContainsFunc(v.granted, func(g granted) bool { return g.namespace == name }) {
			return nil, errOtherSet
		}
		if deleted, err = w.appendDeleted(deleted, state, s, asked); err != nil {
			return nil, err
		}
	}
	for name, s := range present.scopes() {
		if !before.hasSame(present, name) {
			v.granted = append(v.granted, granted{name, slices.Collect(s.segments(state, ""))})
		}
	}
	w.scope.within = present
	filter, byKey := w.cache.filter(w.scope, &w.predicate)
	w.watcher, w.byKey = w.cache.store.Watch(w.watcher.Cursor(), filter), byKey
	return deleted, nil
}

// appendDeleted adds the deletions of the objects of a namespace that a watch has delivered.
func (w *Watch) appendDeleted(events []Event, state *store.Snapshot, of, asked scope) ([]Event, error) {
	for segment := range of.segments(state, "") {
		for o := range segment.All() {
			if !asked.covers(o.Key()) {
				continue
			}
			cached, err := w.cache.Read(o)
			if err != nil {
				return nil, errOtherSet // the client lists again, and so loses the object
			}
			if cached.selectedBy(&w.predicate) {
				w.sent = max(w.sent, w.Revision())
				events = append(events, Event{Type: watch.Deleted, Object: cached, Revision: w.Revision()})
			}
		}
	}
	return events, nil
}
