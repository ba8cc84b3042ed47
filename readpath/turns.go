package readpath

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// inFlight bounds the bytes that large lists hold at a time, beyond what is kept
	// with the objects: a slow client holds its buffers for as long as it reads.
	inFlight = 64 << 20
	// perList is what one holds.
	perList = 2 * chunk
	// queueLength and queueTime bound who waits for a turn. Beyond them a client is
	// asked to come back in a second.
	queueLength = 1000
	queueTime   = 10 * time.Second
)

// errBusy is for who has to come back.
var errBusy = errors.New("too many lists at a time, please try again later")

// turns lets no more go on at a time than there is room for. Who waits is let in in
// turn by flow, so that one user's many requests don't keep out another's few, and in
// order within a flow.
type turns struct {
	mu      sync.Mutex
	free    int64
	waiting int
	flows   map[string][]*waiter // none is empty
	next    []string             // their names, each once, in turn
}

// waiter waits until let in.
type waiter struct{ in chan struct{} }

func newTurns(most int64) *turns {
	return &turns{free: most, flows: map[string][]*waiter{}}
}

// take waits for room. Who is let in calls leave at the end.
func (t *turns) take(ctx context.Context, flow string) (leave func(), err error) {
	t.mu.Lock()
	if t.free >= perList {
		t.free -= perList
		t.mu.Unlock()
		return t.leave, nil
	}
	if t.waiting >= queueLength {
		t.mu.Unlock()
		return nil, errBusy
	}
	w := &waiter{make(chan struct{})}
	if len(t.flows[flow]) == 0 {
		t.next = append(t.next, flow)
	}
	t.flows[flow] = append(t.flows[flow], w)
	t.waiting++
	t.mu.Unlock()

	timer := time.NewTimer(queueTime)
	defer timer.Stop()
	select {
	case <-w.in:
		return t.leave, nil
	case <-timer.C:
		err = errBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if t.forget(flow, w) {
		return nil, err
	}
	t.leave() // it was let in at the same moment
	return nil, err
}

// forget takes a waiter out, unless it has been let in.
func (t *turns) forget(flow string, w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.flows[flow], w)
	if i < 0 {
		return false
	}
	t.waiting--
	t.flows[flow] = slices.Delete(t.flows[flow], i, i+1)
	if len(t.flows[flow]) == 0 { // else it would be in turn twice when it comes again
		delete(t.flows, flow)
		t.next = slices.DeleteFunc(t.next, func(other string) bool { return other == flow })
	}
	return true
}

// leave makes room, and lets in who is next.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free += perList
	for t.free >= perList && len(t.next) > 0 {
		flow := t.next[0]
		t.next = t.next[1:]
		queue := t.flows[flow]
		if t.flows[flow] = queue[1:]; len(queue) > 1 {
			t.next = append(t.next, flow)
		} else {
			delete(t.flows, flow)
		}
		t.waiting--
		t.free -= perList
		close(queue[0].in)
	}
}
