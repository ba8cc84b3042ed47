package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Source = (*Source)(nil)

// Source is the world as one client sees it, through an API server that can do
// all that API servers have been seen doing. It behaves as source/kube does: what
// it reports, and how it cuts what it receives into batches.
type Source struct {
	world    *World
	director *Director
	name     string
	settings Settings
	gate     gate
	drain    drain
	lies     lies
	late     func(to keepwatch.Revision) // is told that what was undone is handed on
	replica  atomic.Int32                // of settings.Lags
	listed   bool                        // since the last watch
	// withheld counts what could not be taken of the list on its way, leftOut of the
	// last complete one. They belong to the client's goroutine.
	withheld, leftOut int
}

// How long things take. The odd parts keep actors from ever acting in the same
// instant, so that a schedule always runs the same way.
const (
	latency       = 2*time.Millisecond + 211*time.Nanosecond
	serverTimeout = 300*time.Second + 503*time.Nanosecond
	freshTimeout  = 3*time.Second + 601*time.Nanosecond
	settle        = 17*time.Microsecond + 809*time.Nanosecond // for all to have seen one batch before the next
	endTimeout    = 10*time.Second + 701*time.Nanosecond
)

// ask decides about a request and takes its time. Failures that need no more
// than to be reported are.
func (s *Source) ask(ctx context.Context, p Point, handled ...string) (Decision, error) {
	s.lies.answer()
	x := s.director.Decide(s.name, p)
	d := latency
	if x.Choice == "slow" {
		d += time.Duration(x.Arg%30) * time.Second
	}
	ok := sleep(ctx, d)
	s.gate.pass(ctx)
	switch {
	case !ok || ctx.Err() != nil:
		return x, keepwatch.Failed(keepwatch.Unreachable, "%s: %w", p, context.Canceled)
	case s.drain.refuses(time.Now()):
		return x, keepwatch.Failed(keepwatch.Unreachable, "%s: connection refused", p)
	}
	for _, name := range handled {
		if x.Choice == name {
			return x, nil
		}
	}
	return x, failure(p, x)
}

// failure is what a decision shows as, nil if as nothing.
func failure(p Point, x Decision) error {
	f := fault(p, x.Choice)
	if f.Kind == 0 {
		return nil
	}
	failed := keepwatch.Failed(f.Kind, "%s: %s", p, x.Choice)
	switch f.Kind {
	case keepwatch.Throttled:
		failed.RetryAfter = time.Duration(1+x.Arg%20) * time.Second
	case keepwatch.RevisionTooLarge:
		failed.RetryAfter = time.Second
	}
	return failed
}

func (s *Source) lag() time.Duration {
	return s.settings.Lags[int(s.replica.Load())%len(s.settings.Lags)]
}

// Newest is a consistent read.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if _, err := s.ask(ctx, AtNewest); err != nil {
		return 0, err
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.world.notice(s.name)
	return s.world.head, nil
}

// List reads a page.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	if req.Continue != "" {
		return s.page(ctx, req.Continue)
	}
	x, err := s.ask(ctx, AtList, "stale")
	if err != nil {
		return keepwatch.Page{}, err
	}
	s.director.Mark(x, "relist")
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	r, err := s.fresh(ctx, req.NotOlderThan)
	if err != nil {
		return keepwatch.Page{}, err
	}
	switch back := keepwatch.Revision(1 + x.Arg%6); {
	case x.Choice == "stale" && req.NotOlderThan > back:
		r = min(r, req.NotOlderThan-back)
	case x.Choice == "stale-consistent" && r > back:
		s.lies.tell(Lie{Fault: x.Choice, At: time.Now(), From: r - back, To: r, Told: true})
		r -= back
	}
	s.world.notice(s.name)
	s.listed, s.withheld = true, 0
	return s.withhold(x, s.cut(r, 0)), nil
}

// withhold adds what was never seen, since it can't be taken, to a page. It is no
// part of the state.
func (s *Source) withhold(x Decision, p keepwatch.Page) keepwatch.Page {
	if x.Choice == "withheld" {
		for i := range 1 + int(x.Arg%3) {
			p.Skipped = append(p.Skipped, keepwatch.Failed(keepwatch.ProtocolViolation, "object %d has no revision", i))
		}
		s.withheld += len(p.Skipped)
	}
	return p
}

// begin is called with each new client.
func (s *Source) begin() {
	s.listed, s.leftOut = false, 0
	s.lies.interrupt()
}

// fresh is a revision to list at: the newest for a consistent read, else what
// the replica has, once that is new enough. world.mu is held, and given up while
// waiting.
func (s *Source) fresh(ctx context.Context, floor keepwatch.Revision) (keepwatch.Revision, error) {
	if floor == 0 {
		return s.world.head, nil
	}
	r, _ := s.world.visible(time.Now(), s.lag())
	if r < floor {
		s.world.mu.Unlock()
		sleep(ctx, freshTimeout)
		s.world.mu.Lock()
		r, _ = s.world.visible(time.Now(), s.lag())
	}
	if r < floor {
		failed := keepwatch.Failed(keepwatch.RevisionTooLarge, "Too large resource version: %d, current: %d", floor, r)
		failed.RetryAfter = time.Second
		return 0, failed
	}
	return r, nil
}

// page reads a later page of a list.
func (s *Source) page(ctx context.Context, token string) (keepwatch.Page, error) {
	var r keepwatch.Revision
	var skip int
	if _, err := fmt.Sscanf(token, "%d+%d", &r, &skip); err != nil {
		panic(fmt.Sprintf("sim: a token that was never given: %q", token))
	}
	x, err := s.ask(ctx, AtPage, "other-revision")
	if err != nil {
		return keepwatch.Page{}, err
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	switch {
	case r < s.world.compacted:
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.Expired, "the continue token of %d is too old", r)
	case r > s.world.head:
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.ServerError, "required revision %d is a future revision", r)
	}
	p := s.cut(r, skip)
	switch x.Choice {
	case "other-revision":
		p.Revision++
	case "duplicate":
		all := s.world.at(r)
		p.Objects = append(p.Objects, all[:min(skip, len(all))]...) // as in cut
	}
	return s.withhold(x, p), nil
}

// cut is the page of a list that follows the first skip objects.
func (s *Source) cut(r keepwatch.Revision, skip int) keepwatch.Page {
	objects := s.world.at(r)
	objects = objects[min(skip, len(objects)):] // a token of an epoch that is undone may point anywhere
	p := keepwatch.Page{Revision: r}
	if n := s.settings.PageSize; len(objects) > n {
		p.Continue, p.Remaining = fmt.Sprintf("%d+%d", r, skip+n), int64(len(objects)-n)
		objects = objects[:n]
	}
	p.Objects = append(p.Objects, objects...)
	return p
}

// StreamList lists through a watch.
func (s *Source) StreamList(ctx context.Context, floor keepwatch.Revision, emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	x, err := s.ask(ctx, AtStream, "no-end", "cut")
	if err != nil {
		return 0, nil, err
	}
	s.world.mu.Lock()
	r, err := s.fresh(ctx, floor)
	objects := s.world.at(r)
	s.world.notice(s.name)
	epoch := len(s.world.epochs)
	s.world.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	for sent := 0; sent < len(objects); sent += s.settings.PageSize {
		if !sleep(ctx, latency) {
			return 0, nil, keepwatch.Failed(keepwatch.Unreachable, "streaming list: %w", context.Canceled)
		}
		if err := emit(objects[sent:min(len(objects), sent+s.settings.PageSize)]); err != nil {
			return 0, nil, err
		}
		if x.Choice == "cut" {
			break
		}
	}
	switch x.Choice {
	case "no-end":
		sleep(ctx, endTimeout)
		fallthrough
	case "cut":
		return 0, nil, failure(AtStream, x)
	}
	s.handOn(epoch, r)
	s.leftOut = 0
	return r, s.watch(ctx, r, epoch), nil
}

// handOn is called with whatever reaches the client: it may come from an epoch
// that has ended on the way.
func (s *Source) handOn(epoch int, r keepwatch.Revision) {
	if base, undone := s.world.undone(epoch, r); undone {
		s.late(base)
	}
}

// Watch opens the history after from. What lies in the future is waited for in
// silence, as an API server does.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	x, err := s.ask(ctx, AtOpen, "expired-inside")
	if err != nil {
		return nil, err
	}
	s.director.Mark(x, "resume")
	if s.listed {
		s.listed, s.leftOut = false, s.withheld
		s.lies.heal()
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	expired := keepwatch.Failed(keepwatch.Expired, "too old resource version: %d (%d)", from, s.world.compacted)
	w := s.watch(ctx, from, len(s.world.epochs))
	switch {
	case x.Choice == "expired-inside":
		w.failure = expired
	case from < s.world.compacted:
		return nil, expired
	case from <= s.world.head:
		s.world.notice(s.name)
	}
	return w, nil
}
