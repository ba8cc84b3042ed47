package sim

import (
	"context"
	"errors"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// buggySource is a source with a bug in its watches.
type buggySource struct {
	*Source
	open   func(*buggySource, keepwatch.Revision) keepwatch.Revision
	batch  func(*buggySource, keepwatch.Batch) keepwatch.Batch
	fail   func(*buggySource, *keepwatch.Failure) *keepwatch.Failure
	ignore func(*buggySource, *keepwatch.Failure) bool

	calls  int
	from   keepwatch.Revision // of the last watch
	skip   bool               // drop the next deletions
	listed bool               // since the last watch
}

func watching(batch func(*buggySource, keepwatch.Batch) keepwatch.Batch) func(*Source) keepwatch.Source {
	return func(s *Source) keepwatch.Source { return &buggySource{Source: s, batch: batch} }
}

func watchFailing(leave func(*buggySource, *keepwatch.Failure) bool) func(*Source) keepwatch.Source {
	return func(s *Source) keepwatch.Source { return &buggySource{Source: s, ignore: leave} }
}

// every returns true at every n-th call.
func (b *buggySource) every(n int) bool {
	b.calls++
	return b.calls%n == 0
}

func (b *buggySource) remove(batch keepwatch.Batch, lost func(keepwatch.Change) bool) keepwatch.Batch {
	var rest []keepwatch.Change
	for _, c := range batch.Changes {
		if !lost(c) {
			rest = append(rest, c)
		}
	}
	batch.Changes = rest
	return batch
}

func (b *buggySource) failed(err error) error {
	var f *keepwatch.Failure
	if b.fail == nil || !errors.As(err, &f) {
		return err
	}
	return b.fail(b, f)
}

func (b *buggySource) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	b.listed = true
	p, err := b.Source.List(ctx, req)
	return p, b.failed(err)
}

func (b *buggySource) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	asked := from
	if b.open != nil {
		from = b.open(b, from)
	}
	w, err := b.Source.Watch(ctx, from)
	if err != nil {
		return nil, b.failed(err)
	}
	return &buggyWatch{Watch: w, source: b, ctx: ctx, at: asked, skipped: from != asked}, nil
}

func (b *buggySource) StreamList(ctx context.Context, floor keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	r, w, err := b.Source.StreamList(ctx, floor, emit)
	if err != nil {
		return 0, nil, b.failed(err)
	}
	return r, &buggyWatch{Watch: w, source: b, ctx: ctx, at: r}, nil
}

type buggyWatch struct {
	keepwatch.Watch
	source *buggySource
	ctx    context.Context
	at     keepwatch.Revision
	// skipped: the next batch must hide the hole before it.
	skipped bool
}

func (w *buggyWatch) Next() (keepwatch.Batch, error) {
	batch, err := w.Watch.Next()
	var f *keepwatch.Failure
	if errors.As(err, &f) && w.source.ignore != nil && w.source.ignore(w.source, f) && w.ctx.Err() == nil {
		if again, err := w.source.Source.Watch(w.ctx, w.at+1); err == nil {
			w.Watch, w.skipped = again, true
			return w.Next()
		}
	}
	if err != nil {
		return batch, w.source.failed(err)
	}
	if w.source.skip {
		w.source.skip = false
		batch = w.source.remove(batch, func(c keepwatch.Change) bool { return c.Type == keepwatch.Deleted })
	}
	if w.source.batch != nil {
		batch = w.source.batch(w.source, batch)
	}
	if w.skipped {
		batch.From, w.skipped = w.at, false
	}
	w.at = max(w.at, batch.To)
	return batch, nil
}

// echoingSource reports at least the client's revision as its newest.
type echoingSource struct {
	*Source
	from keepwatch.Revision
}

func (s *echoingSource) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	s.from = from
	return s.Source.Watch(ctx, from)
}

func (s *echoingSource) Newest(ctx context.Context) (keepwatch.Revision, error) {
	r, err := s.Source.Newest(ctx)
	return max(r, s.from), err
}

// unquestionedSource reports that the resource has not changed, without a comparison.
type unquestionedSource struct{ *Source }

func (*unquestionedSource) Unchanged(context.Context, keepwatch.Revision, keepwatch.Revision) error {
	return nil
}

// patientSource takes a silent watch for an unreachable source.
type patientSource struct{ *Source }

func (s *patientSource) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	if err := s.Source.Unchanged(ctx, from, to); err != nil {
		return keepwatch.Failed(keepwatch.Unreachable, "%w", err)
	}
	return nil
}

// hastySource takes one answer that the type is not served for its end: it has no objects then, and the watch resumes
// behind it.
type hastySource struct{ *Source }

func (s *hastySource) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	p, err := s.Source.List(ctx, req)
	if f, ok := errors.AsType[*keepwatch.Failure](err); ok && f.Kind == keepwatch.Absent && req.Continue == "" {
		s.world.mu.Lock()
		defer s.world.mu.Unlock()
		return keepwatch.Page{Revision: s.world.head}, nil
	}
	return p, err
}

// staleList shows an older state than its revision, if the request has a lower bound.
type staleList struct{ *Source }

func (s *staleList) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	p, err := s.Source.List(ctx, req)
	if err == nil && req.NotOlderThan > 3 && req.Continue == "" {
		s.world.mu.Lock()
		defer s.world.mu.Unlock()
		p.Objects, p.Continue = s.world.shown(req.NotOlderThan-3), ""
	}
	return p, err
}

// silentSource does not report skipped objects.
type silentSource struct{ *Source }

func (s *silentSource) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	p, err := s.Source.List(ctx, req)
	p.Skipped = nil
	return p, err
}

// credulousSource reads a list whose pages repeat for ever.
type credulousSource struct{ *Source }

func (s *credulousSource) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	p, err := s.Source.List(ctx, req)
	if err == nil && req.Continue != "" && p.Continue == req.Continue {
		<-ctx.Done()
	}
	return p, err
}

// endlessSource waits for the end of every streaming list.
type endlessSource struct{ *Source }

func (s *endlessSource) StreamList(ctx context.Context, floor keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	r, w, err := s.Source.StreamList(ctx, floor, emit)
	var f *keepwatch.Failure
	if errors.As(err, &f) && f.Kind == keepwatch.StreamingListUnsupported {
		<-ctx.Done()
	}
	return r, w, err
}

// dyingSource sends nothing after a 410.
type dyingSource struct{ *Source }

func (s *dyingSource) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	w, err := s.Source.Watch(ctx, from)
	blockIfExpired(ctx, err)
	return &dyingWatch{w, ctx}, err
}

type dyingWatch struct {
	keepwatch.Watch
	ctx context.Context
}

func (w *dyingWatch) Next() (keepwatch.Batch, error) {
	b, err := w.Watch.Next()
	blockIfExpired(w.ctx, err)
	return b, err
}

func blockIfExpired(ctx context.Context, err error) {
	var f *keepwatch.Failure
	if errors.As(err, &f) && f.Kind == keepwatch.Expired {
		<-ctx.Done()
	}
}

// forgetfulTarget adds its own objects to every list that lacks them.
type forgetfulTarget struct{ *store.Store }

func (t *forgetfulTarget) Replace(ctx context.Context, r keepwatch.Relist) (keepwatch.Replacement, error) {
	list, err := t.Store.Replace(ctx, r)
	return &forgetfulList{Replacement: list, before: t.Snapshot(), put: map[keepwatch.Key]bool{}}, err
}

type forgetfulList struct {
	keepwatch.Replacement
	before *store.Snapshot
	put    map[keepwatch.Key]bool
}

func (l *forgetfulList) Put(ctx context.Context, objects []keepwatch.Object) error {
	for _, o := range objects {
		l.put[o.Key()] = true
	}
	return l.Replacement.Put(ctx, objects)
}

func (l *forgetfulList) Commit(ctx context.Context, to keepwatch.Revision) error {
	for o := range l.before.All() {
		if !l.put[o.Key()] && o.Revision() <= to {
			if err := l.Replacement.Put(ctx, []keepwatch.Object{o}); err != nil {
				return err
			}
		}
	}
	return l.Replacement.Commit(ctx, to)
}

// editedTarget puts what edit makes of each listed object whose name the store has.
type editedTarget struct {
	*store.Store
	edit func(current, listed keepwatch.Object) keepwatch.Object
}

func (t *editedTarget) Replace(ctx context.Context, r keepwatch.Relist) (keepwatch.Replacement, error) {
	list, err := t.Store.Replace(ctx, r)
	return &editedList{list, t, t.Snapshot()}, err
}

type editedList struct {
	keepwatch.Replacement
	target *editedTarget
	before *store.Snapshot
}

func (l *editedList) Put(ctx context.Context, objects []keepwatch.Object) error {
	for i, o := range objects {
		if current, ok := l.before.Get(o.Key()); ok {
			objects[i] = l.target.edit(current, o)
		}
	}
	return l.Replacement.Put(ctx, objects)
}

// sameName takes a listed object for the store's own object of that name.
func sameName(current, listed keepwatch.Object) keepwatch.Object {
	same := *plain(listed)
	same.uid = current.UID()
	return &same
}

// sameNumbers takes a listed object for the store's own one of the same UID and revision.
func sameNumbers(current, listed keepwatch.Object) keepwatch.Object {
	if current.UID() == listed.UID() && current.Revision() == listed.Revision() {
		return current
	}
	return listed
}

// carelessTarget advances its revision after a batch that it could not apply.
type carelessTarget struct{ *store.Store }

func (t *carelessTarget) Apply(ctx context.Context, b keepwatch.Batch) (int, error) {
	dropped, err := t.Store.Apply(ctx, b)
	if err != nil {
		return t.Store.Apply(ctx, keepwatch.Batch{From: b.From, To: b.To})
	}
	return dropped, nil
}

// obliviousTarget does not record that it was invalidated.
type obliviousTarget struct{ *store.Store }

func (*obliviousTarget) Invalidate(context.Context, keepwatch.GapReason) error { return nil }

// stickyTarget drops objects that were deleted at a later revision.
type stickyTarget struct {
	*store.Store
	deletions map[keepwatch.Key]keepwatch.Revision
}

func (t *stickyTarget) Apply(ctx context.Context, b keepwatch.Batch) (int, error) {
	var rest []keepwatch.Change
	for _, c := range b.Changes {
		key := c.Object.Key()
		if c.Type == keepwatch.Added && c.Revision <= t.deletions[key] {
			continue
		}
		if rest = append(rest, c); c.Type == keepwatch.Deleted {
			t.deletions[key] = max(t.deletions[key], c.Revision)
		}
	}
	b.Changes = rest
	return t.Store.Apply(ctx, b)
}
