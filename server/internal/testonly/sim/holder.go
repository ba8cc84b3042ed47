package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// holder follows a process's store as an informer does: it keeps a snapshot and asks for the
// changes since. The changes must lead to the newest snapshot, one by one.
type holder struct {
	director *Director
	process  *process
	phase    time.Duration

	snapshot *store.Snapshot
	state    map[keepwatch.Key]keepwatch.Object // of snapshot, folded from the changes
	problems []string
}

// run follows until ctx is done.
func (h *holder) run(ctx context.Context) {
	for {
		inc := h.process.connect(ctx)
		if inc == nil {
			return
		}
		h.reset()
		for h.follow(inc) {
		}
		if !sleep(ctx, h.phase) {
			return
		}
	}
}

func (h *holder) reset() {
	h.snapshot, h.state = new(store.Snapshot), map[keepwatch.Key]keepwatch.Object{}
}

// follow applies the available changes and waits for more. It returns false when the
// incarnation has ended.
func (h *holder) follow(l *incarnation) bool {
	x := h.director.Decide("holder", AtTurn)
	switch x.Choice {
	case "slow":
		sleep(l.ctx, time.Duration(1+x.Arg%90)*time.Second+h.phase)
	case "reset":
		h.reset()
	}
	changes, now, newer := l.store.Since(h.snapshot, 64>>(x.Arg%8))
	for _, c := range changes {
		h.apply(c, now)
	}
	h.compare(now)
	h.snapshot = now
	select {
	case <-newer:
		return sleep(l.ctx, h.phase)
	case <-l.ctx.Done():
		return false
	}
}

// apply folds one change into the state and checks that it follows from it.
func (h *holder) apply(c keepwatch.Change, now *store.Snapshot) {
	key := c.Object.Key()
	current := h.state[key]
	switch {
	case c.Prior != current:
		h.problem("%s %s at %d replaces %v, but the delivered state is %v", c.Type, key, c.Revision, c.Prior, current)
	case (current == nil) != (c.Type == keepwatch.Added), current != nil && current.UID() != c.Object.UID():
		h.problem("%s %s at %d (%s) follows %v", c.Type, key, c.Revision, c.Object.UID(), current)
	case c.Revision > now.Revision() && h.snapshot.Cursor().Epoch == now.Cursor().Epoch:
		h.problem("%s %s at %d is beyond %d", c.Type, key, c.Revision, now.Revision())
	}
	if h.state[key] = c.Object; c.Type == keepwatch.Deleted {
		delete(h.state, key)
	}
}

// compare checks that the folded state equals a snapshot.
func (h *holder) compare(now *store.Snapshot) {
	for o := range now.All() {
		if h.state[o.Key()] != o {
			h.problem("%d shows %v, but the changes lead to %v", now.Revision(), o, h.state[o.Key()])
		}
	}
	if now.Len() != len(h.state) {
		h.problem("%d has %d objects, but the changes lead to %d", now.Revision(), now.Len(), len(h.state))
	}
}

func (h *holder) problem(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf("from %d: "+format, append([]any{h.snapshot.Revision()}, args...)...))
}
