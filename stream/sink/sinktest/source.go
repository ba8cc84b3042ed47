package sinktest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/keepwatch/keepwatch"
)

// source is one resource of a world.
type source struct {
	*world
	resource string
}

const pageSize = 5

func (s *source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	revision, _ := s.head()
	return revision, nil
}

// Unchanged compares the states at both revisions.
func (s *source) Unchanged(_ context.Context, from, to keepwatch.Revision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.epoch().writes {
		if x.resource == s.resource && x.revision > from && x.revision <= to {
			return keepwatch.Failed(keepwatch.Silent, "%s has changed at revision %d, after %d", s.resource, x.revision, from)
		}
	}
	return nil
}

func (s *source) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "no streaming lists here")
}

// List returns a page. Its continue token is "REVISION BROKEN KEY": a list does not survive a restore.
func (s *source) List(_ context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.epoch()
	revision, after := e.head(), ""
	switch {
	case req.Continue != "":
		fields := strings.SplitN(req.Continue, " ", 3)
		n, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			return keepwatch.Page{}, keepwatch.Failed(keepwatch.Rejected, "continue token: %w", err)
		}
		revision, after = keepwatch.Revision(n), fields[2]
		if revision < s.compacted || fields[1] != strconv.Itoa(len(s.epochs)) {
			return keepwatch.Page{}, keepwatch.Failed(keepwatch.Expired, "the list expired")
		}
	case req.NotOlderThan > revision:
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.RevisionTooLarge, "revision %d is not reached", req.NotOlderThan)
	}
	page := keepwatch.Page{Revision: revision}
	var keys []string
	state := map[string]*object{}
	for id, o := range e.at(revision) {
		if key := id.key.String(); id.resource == s.resource && key > after {
			keys, state[key] = append(keys, key), o
		}
	}
	slices.Sort(keys)
	for _, key := range keys[:min(pageSize, len(keys))] {
		page.Objects = append(page.Objects, state[key])
	}
	if len(keys) > pageSize {
		page.Continue = strings.Join([]string{revision.String(), strconv.Itoa(len(s.epochs)), keys[pageSize-1]}, " ")
	}
	return page, nil
}

func (s *source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch head := s.epoch().head(); {
	case from < s.compacted:
		return nil, keepwatch.Failed(keepwatch.Expired, "revision %d is compacted", from)
	case from > head:
		return nil, keepwatch.Failed(keepwatch.RevisionTooLarge, "revision %d is not reached", from)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &watch{source: s, ctx: ctx, cancel: cancel, at: from, broken: s.broken}, nil
}

// watch is a watch from a revision on.
type watch struct {
	*source
	ctx    context.Context
	cancel context.CancelFunc
	at     keepwatch.Revision
	broken int
	once   sync.Once
}

func (w *watch) Close() { w.once.Do(w.cancel) }

// Next returns the changes up to the newest revision or, by chance, up to one before it. A batch
// without changes of the resource is a bookmark.
func (w *watch) Next() (keepwatch.Batch, error) {
	for {
		batch, changed, err := w.try()
		if err != nil || changed == nil {
			return batch, err
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
			return keepwatch.Batch{}, keepwatch.Failed(keepwatch.Ended, "the watch was closed: %w", w.ctx.Err())
		}
	}
}

// try returns a batch, or a channel to wait for.
func (w *watch) try() (batch keepwatch.Batch, changed <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.epoch()
	head := e.head()
	switch {
	case w.broken != w.world.broken:
		return batch, nil, keepwatch.Failed(keepwatch.Ended, "the watch was ended")
	case head == w.at:
		return batch, w.changed, nil
	}
	// The epoch begins at or below w.at, because a restore ends all watches.
	batch = keepwatch.Batch{From: w.at, To: head}
	if n := uint64(head - w.at); w.random.IntN(2) == 0 {
		batch.To = w.at + keepwatch.Revision(1+w.random.Uint64N(n))
	}
	before := e.at(w.at)
	for _, x := range e.writes {
		if x.revision <= w.at || x.revision > batch.To {
			continue
		}
		if x.resource == w.resource {
			batch.Changes = append(batch.Changes, change(x, before[x.id]))
		}
		before[x.id] = x.object
	}
	w.at = batch.To
	return batch, nil, nil
}

// change returns a write as an event of a watch: a deletion has the last state with the revision
// of the deletion.
func change(x write, prior *object) keepwatch.Change {
	switch {
	case x.object == nil:
		last := *prior
		last.revision = x.revision
		return keepwatch.Change{Type: keepwatch.Deleted, Revision: x.revision, Object: &last}
	case prior == nil:
		return keepwatch.Change{Type: keepwatch.Added, Revision: x.revision, Object: x.object}
	}
	return keepwatch.Change{Type: keepwatch.Modified, Revision: x.revision, Object: x.object}
}
