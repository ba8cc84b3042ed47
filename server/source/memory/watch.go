package memory

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// watch is a cursor in the history of a database. It has no goroutine and no buffer.
type watch struct {
	source *Source
	cursor *store.Watcher
	ctx    context.Context
	cancel context.CancelFunc
	// delivered is the revision up to which the last batch reached.
	delivered keepwatch.Revision
	// requested has a revision that the watch must reach without a change; the newest request replaces an
	// older one.
	requested chan keepwatch.Revision
	progress  keepwatch.Revision // the newest revision that was requested
	end       *keepwatch.Failure // permanent
}

// watch opens a watch. A watch that is opened below the newest revision reaches it without a change, as open watches do
// after Newest: a caller of Newest that found no open watch waits for that revision.
func (s *Source) watch(ctx context.Context, from keepwatch.Revision) *watch {
	w := &watch{
		source: s, delivered: from, requested: make(chan keepwatch.Revision, 1),
		cursor: s.db.state.Watch(store.Cursor{Epoch: s.db.state.Snapshot().Cursor().Epoch, Revision: from},
			store.Filter{Namespace: string(s.bucket)}),
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	s.open[w] = struct{}{}
	s.mu.Unlock()
	w.requestProgress(s.db.Revision()) // read last: from now on, Newest finds the watch
	return w
}

// Close ends the watch.
func (w *watch) Close() {
	w.cancel()
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	delete(w.source.open, w)
}

// requestProgress makes Next deliver up to a revision without delay.
func (w *watch) requestProgress(r keepwatch.Revision) {
	for {
		select {
		case w.requested <- r:
			return
		case older := <-w.requested:
			r = max(r, older)
		}
	}
}

// Next returns the next batch; see keepwatch.Watch.
func (w *watch) Next() (keepwatch.Batch, error) {
	for w.end == nil {
		batch, newer, failure := w.tryNext()
		switch {
		case failure != nil:
			w.end = failure
		case newer == nil:
			return batch, nil
		default:
			w.wait(newer)
		}
	}
	return keepwatch.Batch{}, w.end
}

// progressEvery is how often a watch without changes reaches the newest revision, so that bookmarks do not lag behind
// writes to other resources. It is the interval of the source of etcd.
const progressEvery = 10 * time.Second

// wait waits for a change, a request of progress, or the end.
func (w *watch) wait(newer <-chan struct{}) {
	due := time.NewTimer(progressEvery)
	defer due.Stop()
	select {
	case <-newer:
	case r := <-w.requested:
		w.progress = max(w.progress, r)
	case <-due.C:
		w.progress = max(w.progress, w.source.db.Revision())
	case <-w.ctx.Done():
		w.end = &keepwatch.Failure{Kind: keepwatch.Ended, Err: context.Cause(w.ctx)}
	}
}

// tryNext returns the next batch, or the channel that is closed when there may be one.
func (w *watch) tryNext() (keepwatch.Batch, <-chan struct{}, *keepwatch.Failure) {
	from := w.delivered
	delivery, newer, err := w.cursor.TryNext()
	if batch, ok := delivery.(keepwatch.Batch); ok {
		w.delivered = batch.To
		return keepwatch.Batch{From: from, To: batch.To, Changes: w.changes(batch.Changes)}, nil, nil
	}
	if delivery != nil || err != nil { // only a gap leads to the newest state, or not even that
		return keepwatch.Batch{}, nil, w.source.expired(from)
	}
	if reached := w.cursor.Cursor().Revision; reached > from && w.progress > from {
		w.delivered = reached
		return keepwatch.Batch{From: from, To: reached}, nil, nil
	}
	return keepwatch.Batch{}, newer, nil
}

// changes returns changes with the objects of the resource.
func (w *watch) changes(stored []keepwatch.Change) []keepwatch.Change {
	changes := make([]keepwatch.Change, 0, len(stored))
	for _, c := range stored {
		r := c.Object.(*record)
		if c.Type == keepwatch.Deleted {
			r = &record{bucket: r.bucket, name: r.name, slash: r.slash, revision: c.Revision}
			if w.source.has(r) {
				changes = append(changes, keepwatch.Change{Type: c.Type, Revision: c.Revision, Object: (*Object)(r)})
			}
			continue
		}
		if o := w.source.object(r); o != nil {
			changes = append(changes, keepwatch.Change{Type: c.Type, Revision: c.Revision, Object: o})
		}
	}
	return changes
}
