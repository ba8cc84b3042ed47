package past

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

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

// sinceOldest returns the time since when the namespace of what is shown to a user must exist, from the times of its
// objects.
func (s *Server) sinceOldest(ctx context.Context, u user.Info, r *shown, watch bool) (since time.Time, err error) {
	if watch { // before anything is read for it
		if err := s.caches.mayReplay(); err != nil {
			return since, err
		}
	}
	end, err := s.creations.turn(ctx, u.GetName())
	if err != nil {
		return since, err
	}
	defer end()
	err = s.config.History.View(ctx, func(v *history.View) error {
		oldest, err := s.creations.oldest(ctx, v, r)
		since = existedSince(r.then, oldest)
		return err
	})
	return since, err
}

// creations remembers the earliest creations of objects, and bounds how many reads look for them at a time: they read
// what a namespace had, and each has a connection of the database, of which others need some, too. A user has one at a
// time, so that slow ones of one user delay no other.
type creations struct {
	turns chan struct{} // has an element for each read
	mu    sync.Mutex
	users map[string]*userTurn
	known map[creationKey]creation
}

// userTurn is the turn of a user who has, or waits for one.
type userTurn struct {
	taken chan struct{} // has an element while there is a read
	count int           // of the reads, and of those that wait
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
	// maxCreations bounds the creations that are remembered, and creationReads the reads that look for them at a time:
	// half of the connections of a database.
	maxCreations  = 1000
	creationReads = 4
)

func newCreations() *creations {
	return &creations{turns: make(chan struct{}, creationReads), users: map[string]*userTurn{},
		known: map[creationKey]creation{}}
}

// turn waits until a user has no other read, and all have fewer than creationReads. It returns what ends the read.
func (c *creations) turn(ctx context.Context, name string) (end func(), err error) {
	own := c.enter(name)
	for _, turns := range []chan struct{}{own.taken, c.turns} {
		select {
		case turns <- struct{}{}:
			continue
		case <-ctx.Done():
		}
		if turns != own.taken {
			<-own.taken
		}
		c.leave(name)
		return nil, context.Cause(ctx)
	}
	return func() { <-c.turns; <-own.taken; c.leave(name) }, nil
}

// tryTurn is turn without a wait: it returns nil if there is no turn now.
func (c *creations) tryTurn(name string) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users[name] != nil {
		return nil
	}
	select {
	case c.turns <- struct{}{}:
	default:
		return nil
	}
	own := &userTurn{taken: make(chan struct{}, 1), count: 1}
	own.taken <- struct{}{}
	c.users[name] = own
	return func() { <-c.turns; <-own.taken; c.leave(name) }
}

func (c *creations) enter(name string) *userTurn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users[name] == nil {
		c.users[name] = &userTurn{taken: make(chan struct{}, 1)}
	}
	c.users[name].count++
	return c.users[name]
}

func (c *creations) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users[name].count--; c.users[name].count == 0 {
		delete(c.users, name)
	}
}

// oldest returns the earliest creation of the objects of what is shown, zero if there are none. What it has read before
// an error is remembered: a read that takes longer than its deadline goes on with the next request.
func (c *creations) oldest(ctx context.Context, v *history.View, r *shown) (oldest time.Time, err error) {
	key := creationKey{r.of, r.from}
	c.mu.Lock()
	known, ok := c.known[key]
	c.mu.Unlock()
	if !ok {
		known.upTo = r.from
		if known.oldest, err = v.OldestAt(ctx, r.of, r.from); err != nil {
			return oldest, err
		}
	}
	if known.upTo.Before(r.upTo) {
		var later time.Time
		later, known.upTo, err = v.OldestAfter(ctx, r.of, known.upTo, r.upTo)
		if known.oldest.IsZero() || !later.IsZero() && later.Before(known.oldest) {
			known.oldest = later
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCreations {
		clear(c.known)
	}
	c.known[key] = known
	return known.oldest, err
}
