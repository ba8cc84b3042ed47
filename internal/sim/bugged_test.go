package sim

import (
	"context"
	"errors"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// bugged is a source with a bug in its watches.
type bugged struct {
	*Source
	open  func(*bugged, keepwatch.Revision) keepwatch.Revision
	batch func(*bugged, keepwatch.Batch) keepwatch.Batch
	fail  func(*bugged, *keepwatch.Failure) *keepwatch.Failure
	leave func(*bugged, *keepwatch.Failure) bool

	calls  int
	skip   bool // leave out the next deletes
	listed bool // since the last watch
}

func watching(batch func(*bugged, keepwatch.Batch) keepwatch.Batch) func(*Source) keepwatch.Source {
	return func(s *Source) keepwatch.Source { return &bugged{Source: s, batch: batch} }
}

func watchFailing(leave func(*bugged, *keepwatch.Failure) bool) func(*Source) keepwatch.Source {
	return func(s *Source) keepwatch.Source { return &bugged{Source: s, leave: leave} }
}

// every is true at every n-th call.
func (b *bugged) every(n int) bool {
	b.calls++
	return b.calls%n == 0
}

func (b *bugged) without(batch keepwatch.Batch, lost func(keepwatch.Change) bool) keepwatch.Batch {
	var kept []keepwatch.Change
	for _, c := range batch.Changes {
		if !lost(c) {
			kept = append(kept, c)
		}
	}
	batch.Changes = kept
	return batch
}

func (b *bugged) failed(err error) error {
	var f *keepwatch.Failure
	if b.fail == nil || !errors.As(err, &f) {
		return err
	}
	return b.fail(b, f)
}

func (b *bugged) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	b.listed = true
	p, err := b.Source.List(ctx, req)
	return p, b.failed(err)
}

func (b *bugged) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	asked := from
	if b.open != nil {
		from = b.open(b, from)
	}
	w, err := b.Source.Watch(ctx, from)
	if err != nil {
		return nil, b.failed(err)
	}
	return &buggedWatch{Watch: w, bugged: b, ctx: ctx, at: asked, skipped: from != asked}, nil
}

func (b *bugged) StreamList(ctx context.Context, floor keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	r, w, err := b.Source.StreamList(ctx, floor, emit)
	if err != nil {
		return 0, nil, b.failed(err)
	}
	return r, &buggedWatch{Watch: w, bugged: b, ctx: ctx, at: r}, nil
}

type buggedWatch struct {
	keepwatch.Watch
	bugged *bugged
	ctx    context.Context
	at     keepwatch.Revision
	// skipped: the next batch is to look as if nothing was left out.
	skipped bool
}

func (w *buggedWatch) Next() (keepwatch.Batch, error) {
	batch, err := w.Watch.Next()
	var f *keepwatch.Failure
	if errors.As(err, &f) && w.bugged.leave != nil && w.bugged.leave(w.bugged, f) && w.ctx.Err() == nil {
		if again, err := w.bugged.Source.Watch(w.ctx, w.at+1); err == nil {
			w.Watch, w.skipped = again, true
			return w.Next()
		}
	}
	if err != nil {
		return batch, w.bugged.failed(err)
	}
	if w.bugged.skip {
		w.bugged.skip = false
		batch = w.bugged.without(batch, func(c keepwatch.Change) bool { return c.Type == keepwatch.Deleted })
	}
	if w.bugged.batch != nil {
		batch = w.bugged.batch(w.bugged, batch)
	}
	if w.skipped {
		batch.From, w.skipped = w.at, false
	}
	w.at = max(w.at, batch.To)
	return batch, nil
}

// unmoved says that it is where the client is.
type unmoved struct {
	*Source
	from keepwatch.Revision
}

func (s *unmoved) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	s.from = from
	return s.Source.Watch(ctx, from)
}

func (s *unmoved) Newest(ctx context.Context) (keepwatch.Revision, error) {
	r, err := s.Source.Newest(ctx)
	return max(r, s.from), err
}

// staleList shows an older state than it says, when it is asked for one that is
// new enough.
type staleList struct{ *Source }

func (s *staleList) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	p, err := s.Source.List(ctx, req)
	if err == nil && req.NotOlderThan > 3 && req.Continue == "" {
		s.world.mu.Lock()
		defer s.world.mu.Unlock()
		p.Objects, p.Continue = s.world.at(req.NotOlderThan-3), ""
	}
	return p, err
}

// silent does not say what is missing.
type silent struct{ *Source }

func (s *silent) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	p, err := s.Source.List(ctx, req)
	p.Skipped = nil
	return p, err
}

// endless waits for the end of every streaming list.
type endless struct{ *Source }

func (s *endless) StreamList(ctx context.Context, floor keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	r, w, err := s.Source.StreamList(ctx, floor, emit)
	var f *keepwatch.Failure
	if errors.As(err, &f) && f.Kind == keepwatch.StreamingListUnsupported {
		<-ctx.Done()
	}
	return r, w, err
}

// dying says nothing more behind a 410.
type dying struct{ *Source }

func (s *dying) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	w, err := s.Source.Watch(ctx, from)
	die(ctx, err)
	return &dyingWatch{w, ctx}, err
}

type dyingWatch struct {
	keepwatch.Watch
	ctx context.Context
}

func (w *dyingWatch) Next() (keepwatch.Batch, error) {
	b, err := w.Watch.Next()
	die(w.ctx, err)
	return b, err
}

func die(ctx context.Context, err error) {
	var f *keepwatch.Failure
	if errors.As(err, &f) && f.Kind == keepwatch.Expired {
		<-ctx.Done()
	}
}

// forgetful puts what it holds into every list that lacks it.
type forgetful struct{ *store.Store }

func (t *forgetful) Replace(ctx context.Context, r keepwatch.Relist) (keepwatch.Replacement, error) {
	list, err := t.Store.Replace(ctx, r)
	return &forgetfulList{Replacement: list, held: t.Snapshot(), put: map[keepwatch.Key]bool{}}, err
}

type forgetfulList struct {
	keepwatch.Replacement
	held *store.Snapshot
	put  map[keepwatch.Key]bool
}

func (l *forgetfulList) Put(ctx context.Context, objects []keepwatch.Object) error {
	for _, o := range objects {
		l.put[o.Key()] = true
	}
	return l.Replacement.Put(ctx, objects)
}

func (l *forgetfulList) Commit(ctx context.Context, to keepwatch.Revision) error {
	for o := range l.held.All() {
		if !l.put[o.Key()] && o.Revision() <= to {
			if err := l.Replacement.Put(ctx, []keepwatch.Object{o}); err != nil {
				return err
			}
		}
	}
	return l.Replacement.Commit(ctx, to)
}

// sameName takes a listed object for the one that it holds under that name.
type sameName struct{ *store.Store }

func (t *sameName) Replace(ctx context.Context, r keepwatch.Relist) (keepwatch.Replacement, error) {
	list, err := t.Store.Replace(ctx, r)
	return &sameNameList{Replacement: list, held: t.Snapshot()}, err
}

type sameNameList struct {
	keepwatch.Replacement
	held *store.Snapshot
}

func (l *sameNameList) Put(ctx context.Context, objects []keepwatch.Object) error {
	for i, o := range objects {
		if held, ok := l.held.Get(o.Key()); ok && held.UID() != o.UID() {
			same := *plain(o)
			same.uid = held.UID()
			objects[i] = &same
		}
	}
	return l.Replacement.Put(ctx, objects)
}

// careless takes what it could not apply for applied.
type careless struct{ *store.Store }

func (t *careless) Apply(ctx context.Context, b keepwatch.Batch) (int, error) {
	dropped, err := t.Store.Apply(ctx, b)
	if err != nil {
		return t.Store.Apply(ctx, keepwatch.Batch{From: b.From, To: b.To})
	}
	return dropped, nil
}

// oblivious does not remember that what it holds is void.
type oblivious struct{ *store.Store }

func (*oblivious) Invalidate(context.Context, keepwatch.GapReason) error { return nil }

// mourning takes what was ever deleted at a later revision for deleted.
type mourning struct {
	*store.Store
	graves map[keepwatch.Key]keepwatch.Revision
}

func (t *mourning) Apply(ctx context.Context, b keepwatch.Batch) (int, error) {
	var kept []keepwatch.Change
	for _, c := range b.Changes {
		key := c.Object.Key()
		if c.Type == keepwatch.Added && c.Revision <= t.graves[key] {
			continue
		}
		if kept = append(kept, c); c.Type == keepwatch.Deleted {
			t.graves[key] = max(t.graves[key], c.Revision)
		}
	}
	b.Changes = kept
	return t.Store.Apply(ctx, b)
}
