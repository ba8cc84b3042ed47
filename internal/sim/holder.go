package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// holder follows a process's store as an informer does: it holds a snapshot, and
// asks how that became the newest. What it is told has to lead there, step by step.
type holder struct {
	director *Director
	home     *process
	phase    time.Duration

	seen     *store.Snapshot
	state    map[keepwatch.Key]keepwatch.Object // seen, as told
	problems []string
}

// run follows until ctx is done.
func (h *holder) run(ctx context.Context) {
	for {
		life := h.home.connect(ctx)
		if life == nil {
			return
		}
		h.forget()
		for h.follow(life) {
		}
		if !sleep(ctx, h.phase) {
			return
		}
	}
}

func (h *holder) forget() {
	h.seen, h.state = new(store.Snapshot), map[keepwatch.Key]keepwatch.Object{}
}

// follow takes what there is, and waits for more; false when the life is over.
func (h *holder) follow(l *life) bool {
	x := h.director.Decide("holder", AtTurn)
	switch x.Choice {
	case "slow":
		sleep(l.ctx, time.Duration(1+x.Arg%90)*time.Second+h.phase)
	case "anew":
		h.forget()
	}
	changes, now, newer := l.store.Since(h.seen, 64>>(x.Arg%8))
	for _, c := range changes {
		h.take(c, now)
	}
	h.compare(now)
	h.seen = now
	select {
	case <-newer:
		return sleep(l.ctx, h.phase)
	case <-l.ctx.Done():
		return false
	}
}

// take folds one change in, which has to follow from the state.
func (h *holder) take(c keepwatch.Change, now *store.Snapshot) {
	key := c.Object.Key()
	held := h.state[key]
	switch {
	case c.Prior != held:
		h.wrong("%s %s at %d replaces %v, but what was told before is %v", c.Type, key, c.Revision, c.Prior, held)
	case (held == nil) != (c.Type == keepwatch.Added), held != nil && held.UID() != c.Object.UID():
		h.wrong("%s %s at %d (%s) follows %v", c.Type, key, c.Revision, c.Object.UID(), held)
	case c.Revision > now.Revision() && h.seen.Cursor().Epoch == now.Cursor().Epoch:
		h.wrong("%s %s at %d is beyond %d", c.Type, key, c.Revision, now.Revision())
	}
	if h.state[key] = c.Object; c.Type == keepwatch.Deleted {
		delete(h.state, key)
	}
}

// compare looks whether what was told leads to a snapshot.
func (h *holder) compare(now *store.Snapshot) {
	for o := range now.All() {
		if h.state[o.Key()] != o {
			h.wrong("%d shows %v, but what was told leads to %v", now.Revision(), o, h.state[o.Key()])
		}
	}
	if now.Len() != len(h.state) {
		h.wrong("%d has %d objects, but what was told leads to %d", now.Revision(), now.Len(), len(h.state))
	}
}

func (h *holder) wrong(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf("from %d: "+format, append([]any{h.seen.Revision()}, args...)...))
}
