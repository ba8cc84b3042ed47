package memory

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

var _ keepwatch.Source = (*Source)(nil)

// Options configure a Source. Prefix is required; the other fields may be zero.
type Options struct {
	// Prefix is the common prefix of the resource's keys, as for DB.Client: "/registry/pods/".
	Prefix string
	// Accept reports whether a key belongs to the resource. Lists and watches skip other keys, as if the
	// database did not have them. Nil accepts every key.
	Accept func(key keepwatch.Key) bool
	// Decode returns the object to be delivered for a value. It must have o's key, UID and revision. Nil
	// delivers each *[Object]. An error is not possible: readers decode.
	Decode func(o *Object, value []byte) keepwatch.Object
}

// Source reads one resource from a [DB]. List, StreamList, Seed and Watch are for one reflector at a time.
// Newest is safe for concurrent use.
type Source struct {
	db      *DB
	options Options
	bucket  bucket

	mu   sync.Mutex
	open map[*watch]struct{}
}

// Source returns a source of the keys below a prefix.
func (db *DB) Source(options Options) *Source {
	return &Source{db: db, options: options, bucket: bucketOf(options.Prefix), open: map[*watch]struct{}{}}
}

// List returns the whole newest state as one page.
func (s *Source) List(_ context.Context, request keepwatch.ListRequest) (keepwatch.Page, error) {
	state := s.db.state.Snapshot()
	switch {
	case request.Continue != "":
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.Rejected, "list %s: no list has a second page", s.options.Prefix)
	case state.Revision() < request.NotOlderThan:
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.Rewound,
			"list %s: the newest revision is %d, below %d, which was seen before", s.options.Prefix, state.Revision(),
			request.NotOlderThan)
	}
	return keepwatch.Page{Revision: state.Revision(), Objects: s.objects(state)}, nil
}

// objects returns the objects of a state.
func (s *Source) objects(state *store.Snapshot) []keepwatch.Object {
	var found []keepwatch.Object
	s.bucket.from(state, "", func(r *record) bool {
		if o := s.object(r); o != nil {
			found = append(found, o)
		}
		return true
	})
	return found
}

// has reports whether a key belongs to the resource. The prefix itself is not a key, as in source/etcd.
func (s *Source) has(r *record) bool {
	return r.name != "/" && (s.options.Accept == nil || s.options.Accept((*Object)(r).Key()))
}

// object returns the object to deliver, nil if its key does not belong to the resource.
func (s *Source) object(r *record) keepwatch.Object {
	o := (*Object)(r)
	switch {
	case !s.has(r):
		return nil
	case s.options.Decode == nil:
		return o
	}
	return s.options.Decode(o, r.value)
}

// StreamList is not offered: a list is one page.
func (s *Source) StreamList(context.Context, keepwatch.Revision,
	func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	return 0, nil, keepwatch.Failed(keepwatch.StreamingListUnsupported, "list %s: a list is one page", s.options.Prefix)
}

// Newest returns the newest revision, and makes the open watch reach it without delay, even if nothing of
// the resource has changed.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if err := ctx.Err(); err != nil {
		return 0, &keepwatch.Failure{Kind: keepwatch.Ended, Err: context.Cause(ctx)}
	}
	newest := s.db.Revision()
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.requestProgress(newest)
	}
	return newest, nil
}

// Unchanged reports whether the resource has changed after from up to to. A watch of a database in
// memory is not silent, so that a reflector has no reason to ask.
func (s *Source) Unchanged(_ context.Context, from, to keepwatch.Revision) error {
	before, err := s.db.snapshotAt(from)
	if err != nil {
		return s.expired(from)
	}
	after, err := s.db.snapshotAt(to)
	if err != nil {
		return s.expired(to)
	}
	now := s.objects(after)
	if len(now) != len(s.objects(before)) || slices.ContainsFunc(now, func(o keepwatch.Object) bool {
		return o.Revision() > from
	}) {
		return keepwatch.Failed(keepwatch.Silent,
			"watch %s: the watch is silent, although keys have changed between revisions %d and %d", s.options.Prefix, from, to)
	}
	return nil
}

// Watch returns the history after a revision. It fails with Expired if that is compacted, and with Rewound
// if it is still to come.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	newest := s.db.Revision()
	switch {
	case from == 0:
		return nil, keepwatch.Failed(keepwatch.InvariantViolation, "watch %s: no revision to begin from", s.options.Prefix)
	case from > newest:
		return nil, keepwatch.Failed(keepwatch.Rewound,
			"watch %s: the newest revision is %d, below %d, which was seen before", s.options.Prefix, newest, from)
	case from < s.db.Compacted():
		return nil, s.expired(from)
	}
	return s.watch(ctx, from), nil
}

func (s *Source) expired(from keepwatch.Revision) *keepwatch.Failure {
	return keepwatch.Failed(keepwatch.Expired, "watch %s: the history since %d is compacted, up to %d", s.options.Prefix,
		from, s.db.Compacted())
}

// Seed loads an old state into an empty target, and then applies the history since, up to the newest revision
// when Seed was called. A seeded store can answer watches from revisions before its process started. The
// state is the oldest one of the history, but at most back revisions before the newest. Seed returns its
// revision. If it fails, the target is empty.
func (s *Source) Seed(ctx context.Context, target keepwatch.Target,
	back keepwatch.Revision) (keepwatch.Revision, error) {
	if current := target.Revision(); current != 0 {
		return 0, keepwatch.Failed(keepwatch.InvariantViolation, "seed %s: the target has revision %d already",
			s.options.Prefix, current)
	}
	newest := s.db.Revision()
	state, err := s.db.oldestSnapshot(back)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return 0, s.expired(newest)
	}
	if err != nil {
		return 0, err
	}
	list, err := target.Replace(ctx, keepwatch.Relist{To: state.Revision()})
	if err != nil {
		return 0, err
	}
	if err := list.Put(ctx, s.objects(state)); err != nil {
		list.Discard()
		return 0, err
	}
	if err := list.Commit(ctx, state.Revision()); err != nil {
		return 0, err
	}
	s.replay(ctx, target, newest)
	return state.Revision(), nil
}

// replay applies the history up to a revision. After an error a reflector continues at the target's
// revision, and meets the same error.
func (s *Source) replay(ctx context.Context, target keepwatch.Target, to keepwatch.Revision) {
	w := s.watch(ctx, target.Revision())
	defer w.Close()
	for target.Revision() < to {
		batch, err := w.Next()
		if err != nil {
			return
		}
		if _, err := target.Apply(ctx, batch); err != nil {
			return
		}
	}
}
