package watchcache

import (
	"context"
	"time"

	apistorage "k8s.io/apiserver/pkg/storage"
)

// WarmAfter sets the time from the start to the decoding of what was read until then.
func (c *Cache) WarmAfter(d time.Duration) { c.warmAfter = d }

// DecodeAll decodes all objects, as the cache does after the start.
func (c *Cache) DecodeAll(ctx context.Context) bool { return c.decodeAll(ctx) }

// LeastRead sets how many objects a list must read to count for an index.
func (c *Cache) LeastRead(n int) { c.termIndexes.leastRead = n }

// AddTermIndex adds the index of a term, as lists do that need it; SweepTermIndexes drops those that are not used.
func (c *Cache) AddTermIndex(name string, now time.Time) { c.addTermIndex(name, now) }
func (c *Cache) SweepTermIndexes(now time.Time)          { c.sweepTermIndexes(now) }
func (c *Cache) TermIndexes() (count, bytes int)         { return c.termIndexUse() }

// The bounds of term indexes.
const (
	MaxTermIndexes  = maxTermIndexes
	PostingBytes    = postingBytes
	ScansToIndex    = scansToIndex
	TermIndexUnused = termIndexUnused
)

// Twins returns what a list answers, and what its twin answers by a scan of the same state. byIndex is true if the
// first one used an index.
func (c *Cache) Twins(
	ctx context.Context, key string, options apistorage.ListOptions, within *Namespaces,
) (list, scan Answer, byIndex bool, err error) {
	r, err := c.ListRequest(ctx, key, options)
	if err != nil {
		return list, scan, false, err
	}
	r.within = within
	snapshot, err := c.state(ctx, r)
	if err != nil {
		return list, scan, false, err
	}
	if _, byIndex = c.byTerm(&r, snapshot); byIndex && r.predicate.Empty() {
		panic("an index for a list of everything")
	}
	scan.ListResult, scan.Err = c.resultBy(r, snapshot, (*ListResult).scan)
	list.ListResult, list.Err = c.result(r, snapshot)
	return list, scan, byIndex, nil
}

// Answer is a result or an error.
type Answer struct {
	*ListResult
	Err error
}

// ScanList is List by a scan.
func (c *Cache) ScanList(ctx context.Context, key string, options apistorage.ListOptions) (*ListResult, error) {
	r, err := c.ListRequest(ctx, key, options)
	if err != nil {
		return nil, err
	}
	snapshot, err := c.state(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.resultBy(r, snapshot, (*ListResult).scan)
}
