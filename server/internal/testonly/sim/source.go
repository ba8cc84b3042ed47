package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Source = (*Source)(nil)

// Source is the world as one client sees it, through an API server with the faults that API
// servers have shown. It reports failures and divides events into batches as source/kube
// does.
type Source struct {
	world        *World
	director     *Director
	name         string
	settings     Settings
	gate         gate
	drain        drain
	breaches     breaches
	lateRevision func(to keepwatch.Revision) // called when an undone revision is delivered
	replica      atomic.Int32                // of settings.Lags
	silence      atomic.Int32                // of watches, 0 if they deliver
	listed       bool                        // since the last watch
	// repeats: the pages of the running list repeat. Only the client's list uses it.
	repeats bool
	// listing is the definition that the running list shows, defined the one of the last complete list.
	listing, defined int
	// asks: it reports a changed definition, as source/kube does. A Kubernetes API does not.
	asks bool
	// skipping counts the skipped objects of the running list, skipped those of the last
	// complete one. Only one goroutine at a time uses them: the client's, or the one that reads ahead for it.
	skipping, skipped int
}

// The durations of requests. Their odd parts keep actors from acting in the same instant, so
// that a schedule always runs in the same way.
const (
	latency       = 2*time.Millisecond + 211*time.Nanosecond
	serverTimeout = 300*time.Second + 503*time.Nanosecond
	freshTimeout  = 3*time.Second + 601*time.Nanosecond
	// between two batches, so that all actors see the first before the second
	batchGap   = 17*time.Microsecond + 809*time.Nanosecond
	endTimeout = 10*time.Second + 701*time.Nanosecond
)

// request decides about a request and sleeps for its duration. It returns the decision's
// failure, unless the caller handles the decision.
func (s *Source) request(ctx context.Context, p Point, handled ...string) (Decision, error) {
	s.breaches.settle()
	x := s.director.Decide(s.name, p)
	d := latency
	if x.Choice == "slow" {
		d += time.Duration(x.Arg%30) * time.Second
	}
	ok := sleep(ctx, d)
	s.gate.wait(ctx)
	switch {
	case !ok || ctx.Err() != nil:
		return x, keepwatch.Failed(keepwatch.Unreachable, "%s: %w", p, context.Canceled)
	case s.drain.unavailable(time.Now()):
		return x, keepwatch.Failed(keepwatch.Unreachable, "%s: connection refused", p)
	}
	for _, name := range handled {
		if x.Choice == name {
			return x, nil
		}
	}
	return x, failure(p, x)
}

// failure returns the failure that a decision causes, nil if none.
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

// Newest returns the newest revision by a consistent read.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	if _, err := s.request(ctx, AtNewest); err != nil {
		return 0, err
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	s.world.noticed(s.name)
	return s.world.head, nil
}

// Unchanged compares the states of two revisions.
func (s *Source) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	if _, err := s.request(ctx, AtNewest); err != nil {
		return err
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	switch {
	case to > s.world.head: // restored since
		return keepwatch.Failed(keepwatch.RevisionTooLarge, "revision %d is too large, the newest is %d", to, s.world.head)
	case from < s.world.compacted:
		return keepwatch.Failed(keepwatch.Expired, "the state at %d is compacted", from)
	case len(s.world.events(from, to)) > 0:
		return keepwatch.Failed(keepwatch.Silent, "the resource has changed between %d and %d", from, to)
	}
	return nil
}

// List reads a page.
func (s *Source) List(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	if req.Continue != "" {
		return s.page(ctx, req.Continue)
	}
	x, err := s.request(ctx, AtList, "stale")
	if err != nil {
		return keepwatch.Page{}, err
	}
	s.director.Mark(x, "relist")
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	r, err := s.listRevision(ctx, req.NotOlderThan)
	if err != nil {
		return keepwatch.Page{}, err
	}
	switch back := keepwatch.Revision(1 + x.Arg%6); {
	case x.Choice == "stale" && req.NotOlderThan > back:
		r = min(r, req.NotOlderThan-back)
	case x.Choice == "stale-consistent" && r > back:
		s.breaches.add(Breach{Fault: x.Choice, At: time.Now(), From: r - back, To: r, Delivered: true})
		r -= back
	}
	s.world.noticed(s.name)
	s.listed, s.repeats, s.skipping, s.listing = true, false, 0, s.world.definitionAt(r)
	if req.Whole {
		return s.addSkipped(x, keepwatch.Page{Revision: r, Objects: s.world.shown(r)}), nil
	}
	return s.addSkipped(x, s.pageOf(r, 0)), nil
}

// ListAt reads the first page of the state at exactly one revision.
func (s *Source) ListAt(ctx context.Context, r keepwatch.Revision) (keepwatch.Page, error) {
	if _, err := s.request(ctx, AtNewest); err != nil {
		return keepwatch.Page{}, err
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	switch {
	case r > s.world.head:
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.RevisionTooLarge, "revision %d is too large, the newest is %d", r,
			s.world.head)
	case r < s.world.compacted:
		return keepwatch.Page{}, keepwatch.Failed(keepwatch.Expired, "the state at %d is compacted", r)
	}
	return s.pageOf(r, 0), nil
}

// addSkipped adds objects that can't be read to a page. They are no part of the state.
func (s *Source) addSkipped(x Decision, p keepwatch.Page) keepwatch.Page {
	if x.Choice == "skipped" {
		for i := range 1 + int(x.Arg%3) {
			p.Skipped = append(p.Skipped, keepwatch.Failed(keepwatch.ProtocolViolation, "object %d has no revision", i))
		}
		s.skipping += len(p.Skipped)
	}
	return p
}

// begin is called with each new client.
func (s *Source) begin() {
	s.listed, s.skipped = false, 0
	s.breaches.interrupt()
}

// listRevision returns the revision of a list: the newest for a consistent read, otherwise
// the replica's when it has reached floor. world.mu is held, and released while waiting.
func (s *Source) listRevision(ctx context.Context, floor keepwatch.Revision) (keepwatch.Revision, error) {
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
		panic(fmt.Sprintf("sim: unknown token %q", token))
	}
	x, err := s.request(ctx, AtPage, "other-revision", "same-page")
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
	if s.repeats = s.repeats || x.Choice == "same-page"; s.repeats {
		return s.pageOf(r, skip-s.settings.PageSize), nil
	}
	p := s.pageOf(r, skip)
	switch x.Choice {
	case "other-revision":
		p.Revision++
	case "duplicate":
		all := s.world.shown(r)
		p.Objects = append(p.Objects, all[:min(skip, len(all))]...) // as in pageOf
	}
	return s.addSkipped(x, p), nil
}

// pageOf returns the page of a list after the first skip objects.
func (s *Source) pageOf(r keepwatch.Revision, skip int) keepwatch.Page {
	objects := s.world.shown(r)
	objects = objects[min(skip, len(objects)):] // a token of an undone epoch may have any offset
	p := keepwatch.Page{Revision: r}
	if n := s.settings.PageSize; len(objects) > n {
		p.Continue, p.Remaining = fmt.Sprintf("%d+%d", r, skip+n), int64(len(objects)-n)
		objects = objects[:n]
	}
	p.Objects = append(p.Objects, objects...)
	return p
}

// StreamList lists through a watch.
func (s *Source) StreamList(ctx context.Context, floor keepwatch.Revision,
	emit func([]keepwatch.Object) error) (keepwatch.Revision, keepwatch.Watch, error) {
	x, err := s.request(ctx, AtStream, "no-end", "cut")
	if err != nil {
		return 0, nil, err
	}
	s.world.mu.Lock()
	r, err := s.listRevision(ctx, floor)
	objects, definition := s.world.shown(r), s.world.definitionAt(r)
	s.world.noticed(s.name)
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
		cut := failure(AtStream, x).(*keepwatch.Failure)
		cut.Accepted = true
		return 0, nil, cut
	}
	s.delivering(epoch, r)
	s.skipped, s.defined = 0, definition
	return r, s.watch(ctx, r, epoch, definition), nil
}

// delivering is called before each delivery. The revision may be of an epoch that has ended
// meanwhile.
func (s *Source) delivering(epoch int, r keepwatch.Revision) {
	if base, undone := s.world.undone(epoch, r); undone {
		s.lateRevision(base)
	}
}

// Watch opens a watch of the history after from. A watch from a future revision waits without
// an event, as an API server's does.
func (s *Source) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	x, err := s.request(ctx, AtOpen, "expired-inside", "from-scratch")
	if err != nil {
		return nil, err
	}
	s.director.Mark(x, "resume")
	if s.listed {
		s.listed, s.skipped, s.defined = false, s.skipping, s.listing
		s.breaches.repair()
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	reached, _ := s.world.visible(time.Now(), s.lag())
	definition := s.world.definitionAt(reached)
	if s.asks && definition > s.defined {
		return nil, keepwatch.Failed(keepwatch.Redefined, "the definition has changed")
	}
	expired := keepwatch.Failed(keepwatch.Expired, "too old resource version: %d (%d)", from, s.world.compacted)
	w := s.watch(ctx, from, len(s.world.epochs), definition)
	switch {
	case x.Choice == "expired-inside":
		w.failure = expired
	case from < s.world.compacted:
		return nil, expired
	case from <= s.world.head:
		s.world.noticed(s.name)
		if x.Choice == "from-scratch" {
			w.beginFromScratch(s.world.shown(s.world.head))
		}
	}
	return w, nil
}
