package watchcache

import (
	"context"
	"iter"
	"sync"
	"time"

	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// The bounds of term indexes. A list by an index reaches an object at three times the cost of a scan, which reads them
// in a row, so that an index is for values of few objects.
const (
	// maxTermIndexes and maxTermIndexBytes bound the indexes of a cache. postingBytes estimates what the value of one
	// object occupies: 91 bytes with keys of 26 bytes (BenchmarkSelectiveLists), and more once writes have split
	// segments.
	maxTermIndexes    = 8
	maxTermIndexBytes = 256 << 20
	postingBytes      = 128
	// termIndexShare is the part of a scan's objects, as 1/termIndexShare, that a list by an index reads at most.
	termIndexShare = 4
	// scansToIndex is how often a term must have made lists read everything in vain before it is indexed. Every
	// termIndexSweep half of that is forgotten, and an index is dropped that no list has used for termIndexUnused.
	scansToIndex    = 8
	termIndexSweep  = time.Minute
	termIndexUnused = 10 * time.Minute
	// leastRead is how many objects a list must read to count, and maxTermDemands how many terms are counted: clients
	// choose their names.
	leastRead      = 1024
	maxTermDemands = 64
)

// termIndexes are the indexes of a cache by the labels and fields that its lists require again and again, and the
// demand for more. The indexes themselves are the store's, one an attribute's name. They are persistent as its tree is:
// a snapshot has the postings of its own state, so that a list at a revision and the pages of a list use them, too. The
// alternative, an index of the newest state only, needs as much to maintain, and leaves continued pages, which are most
// of a large list's, to scans. A snapshot from before an index was added is scanned.
//
// An index answers nothing by itself: it names the objects that a list must look at, and each is judged by the whole
// predicate, in the order of keys. So a list has the objects, the errors and the continue token of a scan.
type termIndexes struct {
	leastRead int
	wake      chan struct{} // of indexTerms; it has room for one

	mu sync.Mutex
	// demand is how many objects lists have read in vain that required a term, by its name.
	demand map[string]int64
	due    map[string]bool      // the names that are to be indexed
	used   map[string]time.Time // when a list has used an index last, by the name of its term
	// refused is when a name was not indexed because of a bound.
	refused map[string]time.Time

	count, bytes int // as the metrics have them; only indexTerms uses them
}

func newTermIndexes() *termIndexes {
	return &termIndexes{
		leastRead: leastRead, wake: make(chan struct{}, 1), demand: map[string]int64{}, due: map[string]bool{},
		used: map[string]time.Time{}, refused: map[string]time.Time{},
	}
}

// termIndexName returns the name of a term's index in the store. Config.Indexers must not have it.
func termIndexName(term string) string { return "term " + term }

// termValues returns the function of a term's index. A label that an object lacks equals no value; a field
// that it lacks is empty.
func (c *Cache) termValues(name string) store.IndexFunc {
	values := func(content *content) []string { return content.termValues(name) }
	return func(o keepwatch.Object) []string {
		if cached, ok := o.(*Object); ok {
			return cached.judged(values)
		}
		return []string{unread}
	}
}

var emptyField = []string{""}

func (c *content) termValues(name string) []string {
	attributes, key, isField := c.attributesOf(name)
	if values := attributes.valuesOf(key); values != nil || !isField {
		return values
	}
	return emptyField
}

// byTerm returns the objects of a list that may match, in key order, by the index that finds the fewest. It returns
// false if none finds few enough.
func (c *Cache) byTerm(r *ListRequest, snapshot *store.Snapshot) (iter.Seq[keepwatch.Object], bool) {
	if !r.recursive || r.index != nil || !c.termIndexes.any() {
		return nil, false
	}
	by, in, _, ok := fewest(r.scope, &r.predicate, snapshot, r.start)
	if !ok {
		return nil, false
	}
	c.termIndexes.use(by.Name, time.Now())
	return c.byIndex(in, by.Value, r.scope, r.start), true
}

// fewest returns the index that finds the fewest objects of a scope from a path on which may match, and how many. It
// returns false if none finds few enough.
func fewest(s scope, p *predicate, snapshot *store.Snapshot,
	start string) (by store.Term, in store.Index, n int, ok bool) {
	n = -1
	for term := range p.terms() {
		index, has := snapshot.Index(termIndexName(term.Name))
		if !has {
			continue
		}
		if found := s.countIndexed(index, term.Value, start) + s.countIndexed(index, unread, start); n < 0 || found < n {
			n, by, in = found, term, index
		}
	}
	return by, in, n, n >= 0 && int64(n)*termIndexShare <= s.count(snapshot, start)
}

// any reports whether there are indexes.
func (x *termIndexes) any() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.used) > 0
}

// use records that a list uses an index. One that was dropped meanwhile stays dropped.
func (x *termIndexes) use(name string, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, exists := x.used[name]; exists {
		x.used[name] = now
	}
}

// scanned records that a list of a predicate has read objects and selected some of them, of a state of a size. Lists
// for which an index would be no use do not count.
func (x *termIndexes) scanned(p *predicate, read, selected, size int) {
	if read < x.leastRead || selected*termIndexShare > read {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	first := len(x.demand) == 0
	for term := range p.terms() {
		if !x.wanted(term.Name) {
			continue
		}
		x.demand[term.Name] += int64(read - selected)
		if x.demand[term.Name] >= scansToIndex*int64(size) {
			x.due[term.Name] = true
		}
	}
	if len(x.due) > 0 || first && len(x.demand) > 0 {
		select {
		case x.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// wanted reports whether the demand for a term counts. x.mu is locked.
func (x *termIndexes) wanted(name string) bool {
	_, indexed := x.used[name]
	_, refused := x.refused[name]
	_, known := x.demand[name]
	return !indexed && !refused && (known || len(x.demand) < maxTermDemands)
}

// indexTerms adds and drops the indexes of terms until ctx is done. While lists require no terms, it does nothing.
func (c *Cache) indexTerms(ctx context.Context) {
	defer c.countTermIndexes(0, 0)
	var next time.Time // of the sweeps
	for {
		var sweep <-chan time.Time
		if c.termIndexes.idle() {
			next = time.Time{}
		} else {
			if next.IsZero() {
				next = time.Now().Add(termIndexSweep)
			}
			sweep = time.After(time.Until(next))
		}
		select {
		case <-c.termIndexes.wake:
			for name := range c.termIndexes.takeDue() {
				c.addTermIndex(name, time.Now())
			}
		case now := <-sweep:
			c.sweepTermIndexes(now)
			next = time.Time{}
		case <-ctx.Done():
			return
		}
	}
}

// idle reports whether a sweep would do nothing.
func (x *termIndexes) idle() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.demand) == 0 && len(x.used) == 0 && len(x.refused) == 0
}

// takeDue returns the names that are to be indexed, and counts them no longer.
func (x *termIndexes) takeDue() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	due := x.due
	x.due = map[string]bool{}
	for name := range due {
		delete(x.demand, name)
	}
	return due
}

// addTermIndex adds an index, or refuses it because of the bounds.
func (c *Cache) addTermIndex(name string, now time.Time) {
	x := c.termIndexes
	count, bytes := c.termIndexUse()
	added := c.countTerm(name) * postingBytes
	if count == maxTermIndexes || bytes+added > maxTermIndexBytes {
		klog.V(2).InfoS("Watch cache does not index a term of selectors", "resource", c.config.GroupResource, "term", name,
			"bytes", added, "indexes", count, "bytesOfIndexes", bytes)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.refused[name] = now
		return
	}
	if err := c.store.AddIndexes(map[string]store.IndexFunc{termIndexName(name): c.termValues(name)}); err != nil {
		return // it has the index
	}
	x.mu.Lock()
	x.used[name] = now
	x.mu.Unlock()
	c.countTermIndexes(c.termIndexUse())
}

// countTerm returns how many objects an index would have.
func (c *Cache) countTerm(name string) (n int) {
	of := c.termValues(name)
	for o := range c.store.Snapshot().All() {
		n += len(of(o))
	}
	return n
}

// sweepTermIndexes forgets half of the demand, and drops the indexes that are not used and those that have grown beyond
// the bound.
func (c *Cache) sweepTermIndexes(now time.Time) {
	for _, name := range c.termIndexes.sweep(now) {
		c.store.RemoveIndex(termIndexName(name))
	}
	count, bytes := c.termIndexUse()
	if bytes > maxTermIndexBytes {
		c.store.RemoveIndex(termIndexName(c.termIndexes.refuseOldest(now)))
		count, bytes = c.termIndexUse()
	}
	c.countTermIndexes(count, bytes)
}

// sweep returns the names of the indexes that are to be dropped.
func (x *termIndexes) sweep(now time.Time) (dropped []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range x.demand {
		if x.demand[name] /= 2; x.demand[name] == 0 {
			delete(x.demand, name)
		}
	}
	for name, last := range x.used {
		if now.Sub(last) >= termIndexUnused {
			delete(x.used, name)
			dropped = append(dropped, name)
		}
	}
	for name, at := range x.refused {
		if now.Sub(at) >= termIndexUnused {
			delete(x.refused, name)
		}
	}
	return dropped
}

// refuseOldest returns the name of the index that was used least recently, which is to be dropped.
func (x *termIndexes) refuseOldest(now time.Time) (oldest string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var at time.Time
	for name, last := range x.used {
		if at.IsZero() || last.Before(at) {
			oldest, at = name, last
		}
	}
	delete(x.used, oldest)
	x.refused[oldest] = now
	return oldest
}

// termIndexUse returns how many term indexes the newest state has, and their size.
func (c *Cache) termIndexUse() (count, bytes int) {
	x, snapshot := c.termIndexes, c.store.Snapshot()
	x.mu.Lock()
	defer x.mu.Unlock()
	for name := range x.used {
		if index, ok := snapshot.Index(termIndexName(name)); ok {
			count, bytes = count+1, bytes+index.Len()*postingBytes
		}
	}
	return count, bytes
}

// countTermIndexes reports the indexes to the metrics, which caches of one resource share.
func (c *Cache) countTermIndexes(count, bytes int) {
	x := c.termIndexes
	c.meter.indexed(count-x.count, bytes-x.bytes)
	x.count, x.bytes = count, bytes
}

// Cost returns at how many objects of the newest state a list looks: at those of a namespace, or of all for the empty
// one; at those of some namespaces alone if within is not nil; and at fewer if an index helps with what the list
// selects. It visits none of them.
func (c *Cache) Cost(namespace string, within *Namespaces, by apistorage.SelectionPredicate) int64 {
	s := scope{recursive: true, namespaced: c.config.Namespaced, within: within}
	if namespace != "" && s.namespaced {
		s.path = namespace + "/"
	}
	snapshot := c.store.Snapshot()
	all := s.count(snapshot, "")
	p, err := c.predicateOf(by)
	switch {
	case err == nil && p.isEmptyIn(s):
		return 0
	case err != nil || !c.termIndexes.any():
		return all
	}
	if _, _, n, ok := fewest(s, &p, snapshot, ""); ok {
		return int64(n)
	}
	return all
}
