package past

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/store"
)

// family is what the caches of one resource at several moments share: the objects that are there at several of them,
// and their encodings.
type family struct {
	root    *watchcache.Cache // makes the objects; it is not run
	reader  *readpath.Reader  // of root; its Tables have the ages of now
	format  *format
	entries int
}

// familyOf returns the family of a request. c.mu is locked.
func (c *caches) familyOf(key familyKey, of *resolved) (*family, error) {
	if f := c.families[key]; f != nil {
		return f, nil
	}
	table, err := of.tables.table(of)
	if err != nil {
		return nil, err
	}
	f := of.format
	root, err := watchcache.New(watchcache.Config{
		GroupResource: of.resource.GroupResource(), ResourcePrefix: "/" + of.resource.Resource, Namespaced: f.namespaced,
		SourceName: "the history", SourcePrefix: of.resource.Resource + "/",
		Codec: f, NewFunc: f.newDocument, GetAttrs: f.attributes, Sharded: true, Metrics: c.metrics,
		// Replays wait for their watches, which need no history.
		Store: store.Options{WindowBytes: 1, Tombstones: 1, TombstoneBytes: 1, SlimBytes: 1, AttributeBytes: 1},
	}, func(*watchcache.Cache) (watchcache.Source, error) { return source{}, nil })
	if err != nil {
		return nil, err
	}
	reader, err := readpath.NewReader(readpath.Resource{
		Cache: root, Resource: of.resource, Kind: f.kind, Namespaced: f.namespaced, Dynamic: f.dynamic,
		Serializer: of.tables.serializer, Table: table, FieldLabel: f.fieldLabel,
		Predicate: func(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
			return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: f.attributes}
		},
	}, c.budget)
	if err != nil {
		return nil, err
	}
	made := &family{root: root, reader: reader, format: f}
	c.families[key] = made
	return made, nil
}

// readerAt returns the reader of a cache whose Tables have the ages at the time of a request's moment.
func (f *family) readerAt(cache *watchcache.Cache, of *resolved) *readpath.Reader {
	reader := f.reader.Of(cache)
	then := of.tableTime()
	if then.IsZero() {
		return reader
	}
	return reader.At(func() time.Time { return then })
}

// sharer is what the bytes of objects are counted for.
type sharer int

const (
	byMoments sharer = iota // in memory
	byReplays               // the states that they began with
)

// object is a state of an object in the caches of moments.
type object struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	sum      uint64          // of its text
	sharers  [2]atomic.Int32 // how many of each kind have it
}

var (
	_ store.Equaler = (*object)(nil)
	// sums is the seed of sums: they are compared in this process only.
	sums = maphash.MakeSeed()
)

func (o *object) Key() keepwatch.Key           { return o.key }
func (o *object) UID() keepwatch.UID           { return o.uid }
func (o *object) Revision() keepwatch.Revision { return o.revision }

// Equal reports whether two states have one content: the state at a gap's end has most of those before it.
func (o *object) Equal(other keepwatch.Object) bool {
	p, ok := other.(*object)
	return ok && o.uid == p.uid && o.revision == p.revision && o.sum == p.sum
}

// newObject returns the object of a cache. The history's is not retained: it has the text once more.
func newObject(cache *watchcache.Cache, f *format, o *history.Object) *watchcache.Object {
	text, err := f.item(o.JSON())
	if err != nil {
		text = o.JSON() // its readers get the error
	}
	made := &object{key: o.Key(), uid: o.UID(), revision: o.Revision(), sum: maphash.Bytes(sums, text)}
	return cache.NewObject(made, text)
}

// objectBytes is about what an object takes beside its text: its values and those of the watch cache, its names, labels
// and its place in the tree.
const objectBytes = 600

func bytesOf(o *watchcache.Object) int64 { return int64(o.Size()) + objectBytes }

// share counts a sharer of a state, and returns the bytes of all objects, and of those that no other such sharer has.
func share(of *store.Snapshot, by sharer) (all, alone int64) { return countSharer(of, by, 1, 1) }

// unshare counts a sharer less, and returns the bytes of the objects that no other such sharer has.
func unshare(of *store.Snapshot, by sharer) int64 {
	_, alone := countSharer(of, by, -1, 0)
	return alone
}

// countSharer adds to the sharers of each object, and returns the bytes of all, and of those that have so many then.
func countSharer(of *store.Snapshot, by sharer, n, so int32) (all, alone int64) {
	for o := range of.All() {
		cached, ok := o.(*watchcache.Object)
		if !ok {
			continue
		}
		if counted, ok := cached.Object.(*object); ok {
			all += bytesOf(cached)
			if counted.sharers[by].Add(n) == so {
				alone += bytesOf(cached)
			}
		}
	}
	return all, alone
}

// loading is the read of an entry's state.
type loading struct {
	*caches
	entry   *entry
	mark    history.Mark
	unknown *history.Unknown // why the state is not known, though it is read
	bytes   int64            // reserved
}

// read returns the state of the entry: what differs from the nearest moment in memory, if that is near enough.
func (l *loading) read(ctx context.Context) (*store.Snapshot, error) {
	var removed []keepwatch.Key
	var put []keepwatch.Object
	base := &store.Snapshot{}
	remove := func(key keepwatch.Key) { removed = append(removed, key) }
	add := func(o *history.Object) error {
		made := newObject(l.entry.family.root, l.entry.family.format, o)
		put = append(put, made)
		l.meters.states.Inc()
		l.bytes += bytesOf(made)
		return l.reserve(bytesOf(made), l.bytes)
	}
	err := l.history.View(ctx, func(v *history.View) error {
		of, err := v.StreamOf(l.entry.key.resource.GroupResource().String(), l.entry.key.namespace)
		if err != nil {
			return err
		}
		at := l.entry.key.mark.Point
		l.mark = v.Mark(of, at)
		err = v.Check(ctx, of, at) // the history may have changed since the request was resolved
		if unknown, ok := errors.AsType[*history.Unknown](err); ok && unknown.Gap != nil {
			l.unknown = unknown
			return v.Load(ctx, of, at, add)
		}
		if err != nil {
			return momentError(err)
		}
		for _, near := range l.nearest() {
			if known, err := v.IsKnown(ctx, of, near.mark); err != nil {
				return err
			} else if !known {
				continue
			}
			from := near.cache.Snapshot()
			found, err := v.LoadDifference(ctx, of, near.mark.Point, at, from.Len(), remove, add)
			if err != nil {
				return err
			}
			if found {
				base = from
				return nil
			}
			break // the others are farther
		}
		return v.Load(ctx, of, at, add)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(put, func(a, b keepwatch.Object) int { return a.Key().Compare(b.Key()) })
	return base.With(l.entry.key.mark.Point.Revision, removed, put), nil
}

// nearest returns the moments of the entry's family and epoch that are in memory, the nearest one first.
func (l *loading) nearest() (all []*entry) {
	at := l.entry.key.mark.Point
	distance := func(e *entry) keepwatch.Revision {
		return max(e.key.mark.Point.Revision, at.Revision) - min(e.key.mark.Point.Revision, at.Revision)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.all {
		if e.cache != nil && key.familyKey == l.entry.key.familyKey && key.mark.Point.Epoch == at.Epoch {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(distance(a), distance(b)) })
	return all
}
