package past

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/store"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// replay is the cache of one watch. It begins with the state of an entry, and shares it.
type replay struct {
	cache *watchcache.Cache
	stop  context.CancelCauseFunc
	begin *store.Snapshot
	// counted is the state whose objects are counted, and own are their bytes that begin does not have, with those of the
	// batch that is to come. Only the watch of the source uses counted.
	counted *store.Snapshot
	own     int64
	coming  int64 // of the batch
}

// end ends the watch without an error.
func (r *replay) end() { r.stop(nil) }

// mayReplay returns an error if no more watches may be open.
func (c *caches) mayReplay() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaysLeft()
}

// replaysLeft is mayReplay. c.mu is locked.
func (c *caches) replaysLeft() error {
	if c.replays < c.bound {
		return nil
	}
	return c.meters.tooMany(boundReplays,
		fmt.Sprintf("%d watches of the past are open, which is the most: try again later", c.replays))
}

// replay returns a cache for one watch, which ends with the request.
func (c *caches) replay(ctx context.Context, e *entry, of *resolved) (*replay, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return nil, apierrors.NewServiceUnavailable("the server is not running")
	}
	if err := c.replaysLeft(); err != nil {
		return nil, err
	}
	begin := e.cache.Snapshot()
	_, added := share(begin, byReplays)
	if c.replays > 0 && added > c.few() && c.replayed+added > c.maxBytes {
		unshare(begin, byReplays)
		return nil, c.tooManyReplayed()
	}
	ctx, stop := context.WithCancelCause(ctx)
	r := &replay{stop: stop, begin: begin, counted: begin}
	var err error
	r.cache, err = e.family.root.At(begin, func(cache *watchcache.Cache) (watchcache.Source, error) {
		return source{caches: c, replay: r, Source: c.history.Source(history.SourceOptions{
			Resource: of.typ.Resource, Namespace: of.stream.ID.Namespace, At: of.point, Onward: true, Speed: of.speed,
			Time: of.time, Start: of.started,
			Decode: func(o *history.Object) keepwatch.Object { return newObject(cache, of.format, o) },
		})}, nil
	})
	if err != nil {
		r.end()
		unshare(begin, byReplays)
		return nil, err
	}
	unhook := context.AfterFunc(c.running, r.end)
	c.replayed += added
	c.replays++
	c.count()
	c.active.Go(func() {
		defer unhook()
		defer r.end()
		if err := r.cache.Run(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "The past of a resource cannot be read", "resource", of.resource, "revision", of.point.Revision)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.replayed -= unshare(begin, byReplays) + r.own
		c.replays--
		c.count()
	})
	return r, nil
}

// tooManyReplayed is the refusal, or the end, of a watch. c.mu is locked.
func (c *caches) tooManyReplayed() error {
	return c.meters.tooMany(boundBytes, fmt.Sprintf(
		"open watches of the past (%d) have %d MiB: try again when some of them have ended", c.replays, c.replayed>>20))
}

// grow counts what a replay has, and the batch that comes next. It returns the error with which the watch ends if all
// have more then than they may have. A watch that has added few bytes goes on, and so does the only one.
func (c *caches) grow(r *replay, next keepwatch.Batch) error {
	now := r.cache.Snapshot()
	var added int64
	for _, change := range r.counted.Diff(now) {
		added -= r.ownBytes(change.Prior)
		if change.Type != keepwatch.Deleted {
			added += r.ownBytes(change.Object)
		}
	}
	r.counted = now
	var coming int64
	for _, change := range next.Changes {
		coming += r.ownBytes(change.Object)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	added += coming - r.coming
	r.coming = coming
	r.own += added
	c.replayed += added
	c.count()
	if added > 0 && c.replays > 1 && r.own > c.few() && c.replayed > c.maxBytes {
		return c.tooManyReplayed()
	}
	return nil
}

// ownBytes returns the bytes of an object, 0 if the replay began with it, or if there is none.
func (r *replay) ownBytes(o keepwatch.Object) int64 {
	cached, ok := o.(*watchcache.Object)
	if !ok {
		return 0
	}
	if first, _ := r.begin.Get(o.Key()); first == o {
		return 0
	}
	return bytesOf(cached)
}

// source is a resource of a history, as a watch cache reads it.
type source struct {
	*history.Source
	caches *caches
	replay *replay
}

// End returns the error of a watch that ends although the history goes on, with the moment from which on another watch
// has the rest. The address of this one begins before that again.
func (s source) End(gap keepwatch.Gap) error {
	reason := "the objects have other contents at their revisions since"
	if gap.Reason == keepwatch.GapRewind {
		reason = "etcd was restored from a backup"
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("%s after revision %d: watch on from the moment %s", reason, gap.From,
		history.Moment{Time: s.Passed()}))
}

// Watch returns a watch that waits for its reader: each state is delivered, and what is not yet is in the database. It
// ends the cache once the database is unavailable: the next request of the client receives the reason.
func (s source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	w, err := s.Source.Watch(ctx, from)
	if err != nil {
		return nil, err
	}
	return pacedWatch{w, ctx, s}, nil
}

type pacedWatch struct {
	keepwatch.Watch
	ctx context.Context
	source
}

// Next returns what comes next once the reader has what came before.
func (w pacedWatch) Next() (keepwatch.Batch, error) {
	batch, err := w.Watch.Next()
	if ended := w.replay.cache.AwaitWatch(w.ctx); ended != nil {
		return keepwatch.Batch{}, &keepwatch.Failure{Kind: keepwatch.Ended, Err: ended}
	}
	if errors.As(err, new(*sink.Unavailable)) {
		w.replay.end()
	}
	if full := w.caches.grow(w.replay, batch); full != nil {
		w.replay.stop(full)
		return keepwatch.Batch{}, &keepwatch.Failure{Kind: keepwatch.Ended, Err: full}
	}
	return batch, err
}

// Seed fails: a moment has no history before it.
func (source) Seed(context.Context, keepwatch.Target) error {
	return errors.New("a moment has no history before it")
}
