package watchcache

import (
	"iter"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// ListResult is the answer to a list before it is made into objects or bytes. It copies no
// object, and may be used as long as a snapshot.
type ListResult struct {
	// Revision is the revision of the state.
	Revision keepwatch.Revision
	// Segments are the objects in key order, if the list shows all objects of its range;
	// otherwise they are empty.
	Segments []store.Segment
	// Selected are the objects in key order, if the list shows those that match.
	Selected []*Object
	// Shard is the shard selector that the objects match, as the API writes it; empty if there is none.
	Shard string
	// Continue is the token of the next page, empty if there is none. Remaining is the number of
	// objects on it and after it, nil if that is unknown.
	Continue  string
	Remaining *int64
	// Annotations are those of the list's metadata, which ListMeta does not have: a reader that has any sets them.
	Annotations map[string]string
}

// result returns the page of a state that r asks for.
func (c *Cache) result(r ListRequest, snapshot *store.Snapshot) (*ListResult, error) {
	return c.resultBy(r, snapshot, (*ListResult).choose)
}

// resultBy is result. choose adds the objects of a page that match a predicate, and reports whether objects that
// may match follow it.
func (c *Cache) resultBy(r ListRequest, snapshot *store.Snapshot,
	choose func(*ListResult, *Cache, *ListRequest, *store.Snapshot) (bool, error),
) (*ListResult, error) {
	result := &ListResult{Revision: snapshot.Revision()}
	if r.predicate.shard != nil {
		result.Shard = r.predicate.ShardSelector.String()
	}
	var more bool
	var err error
	if r.predicate.Empty() {
		more = result.page(&r, snapshot)
	} else {
		more, err = choose(result, c, &r, snapshot)
	}
	if err != nil || !more {
		return result, err
	}
	count := int64(0)
	if r.predicate.Empty() {
		count = r.count(snapshot, r.start)
	}
	end := r.key + strings.TrimPrefix(result.last().String(), r.path)
	result.Continue, result.Remaining, err = apistorage.PrepareContinueToken(end, r.key, int64(result.Revision), count,
		true, r.options)
	if r.predicate.shard != nil {
		result.Remaining = nil // which objects follow in the shard is not counted
	}
	return result, err
}

// page adds the segments of a page. It reports whether objects follow it.
func (l *ListResult) page(r *ListRequest, snapshot *store.Snapshot) (more bool) {
	left := int(r.predicate.Limit)
	for segment := range r.segments(snapshot, r.start) {
		if r.predicate.Limit > 0 {
			if left == 0 {
				return true
			}
			if left < segment.Len() {
				segment, more = segment.Part(0, left), true
			}
			left -= segment.Len()
		}
		l.Segments = append(l.Segments, segment)
		if more {
			break
		}
	}
	return more
}

// choose is scan, or finds the objects by the index of a term that the predicate requires, if that reads far fewer,
// and at once that there can be none.
func (l *ListResult) choose(c *Cache, r *ListRequest, snapshot *store.Snapshot) (more bool, err error) {
	if r.predicate.isEmptyIn(r.scope) {
		c.meter.selected(lookupIndex)
		return false, nil
	}
	if objects, ok := c.byTerm(r, snapshot); ok {
		return l.filterIndexed(c, r, snapshot, objects)
	}
	return l.scan(c, r, snapshot)
}

// scan adds the objects of a page that match, of all that the list may have or of those that one of Config.Indexers
// finds. It reports whether objects that may match follow it.
func (l *ListResult) scan(c *Cache, r *ListRequest, snapshot *store.Snapshot) (more bool, err error) {
	if shard := r.predicate.shard; shard != nil && !shard.byNamespace && r.index == nil {
		c.meter.selected(lookupScan)
		return l.filterShard(c, r, snapshot)
	}
	objects, by := c.candidates(r, snapshot)
	c.meter.selected(by)
	read, more, err := l.filter(c, r, objects)
	if err == nil && by == lookupScan {
		c.termIndexes.scanned(&r.predicate, read, len(l.Selected), snapshot.Len())
	}
	return more, err
}

// filterIndexed adds the objects of a page that match, of those that an index finds. It reports whether objects follow
// it that a scan would look at.
func (l *ListResult) filterIndexed(
	c *Cache, r *ListRequest, snapshot *store.Snapshot, found iter.Seq[keepwatch.Object],
) (more bool, err error) {
	c.meter.selected(lookupIndex)
	if _, more, err = l.filter(c, r, found); err != nil || more || !l.full(r) {
		return more, err
	}
	for range r.objects(snapshot, l.last().String()+"\x00") {
		return true, nil
	}
	return false, nil
}

// filter adds the objects of a page that match, and returns how many it read. It reports whether one follows.
func (l *ListResult) filter(
	c *Cache, r *ListRequest, objects iter.Seq[keepwatch.Object],
) (read int, more bool, err error) {
	for o := range objects {
		if l.full(r) {
			return read, true, nil
		}
		read++
		if err := l.add(c, r, o); err != nil {
			return read, false, err
		}
	}
	return read, false, nil
}

// filterShard is filter for a shard of UIDs. It does not touch the objects of other shards.
func (l *ListResult) filterShard(c *Cache, r *ListRequest, snapshot *store.Snapshot) (more bool, err error) {
	for segment := range r.segments(snapshot, r.start) {
		hashes := c.uidHashesOf(segment)
		for i := range segment.Len() {
			if l.full(r) {
				return true, nil
			}
			if hashes != nil && !r.predicate.shard.has(hashes[i]) {
				continue
			}
			if err := l.add(c, r, segment.At(i)); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// full reports whether the page has as many objects as the request allows.
func (l *ListResult) full(r *ListRequest) bool {
	return r.predicate.Limit > 0 && int64(len(l.Selected)) == r.predicate.Limit
}

// add adds an object if the predicate selects it.
func (l *ListResult) add(c *Cache, r *ListRequest, o keepwatch.Object) error {
	cached, err := c.Read(o)
	if err != nil {
		return notCached(err)
	}
	if cached.selectedBy(&r.predicate) {
		l.Selected = append(l.Selected, cached)
	}
	return nil
}

// last returns the key of the last object, which the list must have.
func (l *ListResult) last() keepwatch.Key {
	if n := len(l.Segments); n > 0 {
		segment := l.Segments[n-1]
		return segment.Key(segment.Len() - 1)
	}
	return l.Selected[len(l.Selected)-1].Key()
}

// candidates iterates over the objects that may match: by one of Config.Indexers if one helps.
func (c *Cache) candidates(r *ListRequest, snapshot *store.Snapshot) (iter.Seq[keepwatch.Object], lookup) {
	for _, by := range r.index {
		if index, ok := snapshot.Index(by.IndexName); ok {
			return c.byIndex(index, by.Value, r.scope, r.start), lookupIndex
		}
	}
	return r.objects(snapshot, r.start), lookupScan
}

// All iterates over the listed objects, in key order.
func (l *ListResult) All() iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for _, o := range l.Selected {
			if !yield(o) {
				return
			}
		}
		for _, segment := range l.Segments {
			for o := range segment.All() {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// contains reports whether an object is listed, in this state.
func (l *ListResult) contains(o *Object) bool {
	key := o.Key()
	reaches := func(other keepwatch.Key) bool { return other.Compare(key) >= 0 }
	if i := sort.Search(len(l.Selected), func(i int) bool { return reaches(l.Selected[i].Key()) }); i < len(l.Selected) {
		return l.Selected[i] == o
	}
	i := sort.Search(len(l.Segments), func(i int) bool { return reaches(l.Segments[i].Key(l.Segments[i].Len() - 1)) })
	if i == len(l.Segments) {
		return false
	}
	segment := l.Segments[i]
	return segment.At(sort.Search(segment.Len()-1, func(j int) bool {
		return reaches(segment.Key(j))
	})) == keepwatch.Object(o)
}

// Len returns the number of listed objects.
func (l *ListResult) Len() int {
	n := len(l.Selected)
	for _, segment := range l.Segments {
		n += segment.Len()
	}
	return n
}

// decoded returns the listed objects as Go values, which are the caller's. It fails if one can't be
// decoded.
func (l *ListResult) decoded(c *Cache) ([]runtime.Object, error) {
	all := make([]runtime.Object, 0, l.Len())
	for o := range l.All() {
		cached, err := c.Read(o)
		if err != nil {
			return nil, notCached(err)
		}
		decoded, err := cached.Decoded()
		if err != nil {
			return nil, ErrNotCached
		}
		all = append(all, decoded)
	}
	return all, nil
}
