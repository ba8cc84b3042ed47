package past

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// shown is what a read of a namespace shows: objects at a point, and behind it up to another one.
type shown struct {
	of         history.Objects
	stream     sink.Status
	from, upTo sink.Point
	then       time.Time // of from
}

// isTodays reports whether a namespace at the beginning of what is shown is the cluster's of today, which then existed
// from there on. decided is false if the history does not have that.
func (r *shown) isTodays(ctx context.Context, v *history.View, name string, today liveNamespace) (todays, decided bool,
	err error) {
	stream, err := v.StreamOf("namespaces", "")
	if err != nil || stream.Line != r.stream.Line || stream.ID.LabelSelector != "" || stream.ID.FieldSelector != "" {
		return false, false, nil
	}
	at, exact := r.from, true
	err = v.Check(ctx, stream, at)
	if unknown, ok := errors.AsType[*history.Unknown](err); ok { // it may be known to have existed before
		if exact = false; unknown.Earlier == nil || unknown.Earlier.Point.Epoch != at.Epoch {
			return false, false, nil
		}
		at, err = unknown.Earlier.Point, nil
	}
	if err != nil {
		return false, false, err
	}
	states, err := v.Outline(ctx, history.Objects{Resource: "namespaces", Name: name})
	if err != nil {
		return false, false, err
	}
	for _, s := range states {
		if !at.Before(s.From) && (s.To == nil || at.Before(*s.To)) && s.UID == today.uid {
			return true, true, nil
		}
	}
	return false, exact, nil
}

// sinceIn returns the time since when the namespace of what is shown must exist, zero if it does not any more. now is
// the time of the server: the namespace is known to be the one of today. decided is false if the history has no
// namespaces; see sinceOldest.
func (r *shown) sinceIn(ctx context.Context, v *history.View, name string, today liveNamespace,
	now time.Time) (since time.Time, decided bool, err error) {
	todays, decided, err := r.isTodays(ctx, v, name, today)
	if todays {
		since = now
	}
	return since, decided, err
}

// sinceOldest returns the time since when the namespace of what is shown must exist, from the times of its objects.
func (s *Server) sinceOldest(ctx context.Context, r *shown, watch bool) (since time.Time, err error) {
	if watch { // before anything is read for it
		if err := s.caches.mayReplay(); err != nil {
			return since, err
		}
	}
	select {
	case s.creations.turns <- struct{}{}:
		defer func() { <-s.creations.turns }()
	case <-ctx.Done():
		return since, context.Cause(ctx)
	}
	err = s.config.History.View(ctx, func(v *history.View) error {
		oldest, err := s.creations.oldest(ctx, v, r)
		since = existedSince(r.then, oldest)
		return err
	})
	return since, err
}

// creations remembers the earliest creations of objects, and bounds how many reads look for them at a time: they read
// what a namespace had, and each has a connection of the database, of which others need some, too.
type creations struct {
	turns chan struct{}
	mu    sync.Mutex
	known map[creationKey]creation
}

// creationKey is what the earliest creation at a point and behind it depends on.
type creationKey struct {
	of   history.Objects
	from sink.Point
}

// creation is the earliest creation up to a point.
type creation struct {
	oldest time.Time
	upTo   sink.Point
}

const (
	// maxCreations bounds the creations that are remembered, and creationReads the reads that look for them at a time.
	maxCreations  = 1000
	creationReads = 2
)

func newCreations() *creations {
	return &creations{turns: make(chan struct{}, creationReads), known: map[creationKey]creation{}}
}

// oldest returns the earliest creation of the objects of what is shown, zero if there are none.
func (c *creations) oldest(ctx context.Context, v *history.View, r *shown) (time.Time, error) {
	key := creationKey{r.of, r.from}
	c.mu.Lock()
	known, ok := c.known[key]
	c.mu.Unlock()
	var err error
	if !ok {
		known.upTo = r.from
		if known.oldest, err = v.OldestAt(ctx, r.of, r.from); err != nil {
			return time.Time{}, err
		}
	}
	if known.upTo.Before(r.upTo) {
		later, err := v.OldestAfter(ctx, r.of, known.upTo, r.upTo)
		if err != nil {
			return time.Time{}, err
		}
		if known.upTo = r.upTo; known.oldest.IsZero() || !later.IsZero() && later.Before(known.oldest) {
			known.oldest = later
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCreations {
		clear(c.known)
	}
	c.known[key] = known
	return known.oldest, nil
}
