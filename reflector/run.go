package reflector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/internal/paging"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// run performs the machine's actions during one call of Run. Only Run's goroutine uses it.
type run struct {
	*Reflector
	machine machine.Machine
	random  *rand.Rand
	started time.Time

	page        keepwatch.Page        // read, and not stored yet
	requested   keepwatch.ListRequest // the request of page
	ahead       *ahead                // nil when no page is being read ahead
	replacement keepwatch.Replacement // nil when no list is being stored
	listed      int64                 // the replacement's objects
	skipped     int                   // the objects that the list skipped
	watch       keepwatch.Watch       // nil when none is open
	watchFrom   keepwatch.Revision    // the revision that watch began at
	watchOpened time.Time             // when watch was opened
}

func newRun(r *Reflector) *run {
	seed := r.options.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	return &run{
		Reflector: r,
		machine: machine.Machine{State: machine.Fresh{}, Config: machine.Config{
			Paged: r.options.Paged, ProbeAfterOutage: r.options.ProbeAfterOutage, StartupDeadline: r.options.StartupDeadline,
		}},
		random:  rand.New(rand.NewPCG(seed, 0)),
		started: time.Now(),
	}
}

// step applies an input that is no failure.
func (r *run) step(in machine.Input) machine.Action {
	var action machine.Action
	r.machine, action = r.machine.Step(in)
	r.recorder.advance(time.Now(), r.machine, in)
	return action
}

// fail applies a failure, and reports it with the decision.
func (r *run) fail(failure *keepwatch.Failure) machine.Action {
	in := machine.Failed{Kind: failure.Kind, RetryAfter: failure.RetryAfter, Accepted: failure.Accepted || r.watch != nil,
		Elapsed: time.Since(r.started)}
	if r.watch != nil {
		in.OpenFor = time.Since(r.watchOpened)
	}
	before := r.machine
	after, action := before.Step(in)
	if _, reads := action.(machine.Read); !reads { // else a probe beside the watch has failed
		r.closeWatch()
	}
	action, wait := r.drawJitter(action)
	r.machine = after
	decision := decisionOf(before, after)
	now := time.Now()
	r.recorder.fail(now, after, failure, decision, r.watch != nil)
	r.observe(Notice{Time: now, State: stateOf(after), Failure: failure, Decision: decision, Wait: wait,
		Revision: after.Revision})
	return action
}

// drawJitter replaces a wait's jitter by a random part of it. It returns the whole wait, 0
// if the action is none.
func (r *run) drawJitter(action machine.Action) (machine.Action, time.Duration) {
	switch a := action.(type) {
	case machine.Wait:
		wait := a.For + backoff.FullJitter(a.Jitter, r.random.Int64N)
		return machine.Wait{For: wait}, wait
	case machine.Invalidate:
		then, wait := r.drawJitter(a.Then)
		return machine.Invalidate{Reason: a.Reason, Then: then}, wait
	}
	return action, 0
}

// decisionOf returns what a failure has led to.
func decisionOf(before, after machine.Machine) Decision {
	_, wasListing := before.State.(machine.Listing)
	probing, _ := before.State.(machine.Probing)
	switch pending(after).(type) {
	case machine.Watch:
		if probing.Start {
			return Proceed
		}
		return Resume
	case machine.Probe:
		return Verify
	case machine.List:
		if wasListing {
			return ListAgain
		}
		return Relist
	}
	return Stop
}

// perform performs an action and returns its outcome. An error that is no
// *keepwatch.Failure ends Run.
func (r *run) perform(ctx context.Context, action machine.Action) (machine.Input, error) {
	switch a := action.(type) {
	case machine.List:
		if a.Stream {
			return r.stream(ctx, a)
		}
		return r.list(ctx, a)
	case machine.StorePage:
		return r.storePage(ctx, a)
	case machine.Watch:
		return r.openWatch(ctx, a)
	case machine.Read:
		return r.read(ctx)
	case machine.Probe:
		return r.probe(ctx, a)
	case machine.Compare:
		return machine.Unchanged{}, r.source.Unchanged(ctx, r.machine.Revision, a.To)
	case machine.ConfirmCurrent:
		return r.confirmCurrent(ctx, a)
	case machine.Wait:
		return r.wait(ctx, a)
	case machine.Invalidate:
		if err := r.target.Invalidate(ctx, a.Reason); err != nil {
			return nil, err
		}
		return r.perform(ctx, a.Then)
	}
	panic(fmt.Sprintf("reflector: unknown action %T", action))
}

// list reads one page.
func (r *run) list(ctx context.Context, a machine.List) (machine.Input, error) {
	if a.Continue == "" {
		r.discardList()
	}
	req := keepwatch.ListRequest{NotOlderThan: a.NotOlderThan, Continue: a.Continue, Whole: a.Whole}
	page, err := r.readPage(ctx, req)
	if err != nil {
		return nil, err
	}
	in := machine.Page{Revision: page.Revision, Page: paging.PageOf(page.Continue, page.Objects)}
	if failure := r.machine.Validate(in); failure != nil {
		return nil, failure
	}
	r.page, r.requested = page, req
	return in, nil
}

// ahead is a page that is being read while the target stores the one before it.
type ahead struct {
	request  keepwatch.ListRequest
	cancel   context.CancelFunc
	done     chan struct{} // closed when the fields below are set
	page     keepwatch.Page
	err      error
	panicked any // the value of the source's panic
}

// readAhead begins to read a page. A panic of the source is one of Run's goroutine, whose caller may recover.
func (r *run) readAhead(ctx context.Context, req keepwatch.ListRequest) {
	ctx, cancel := context.WithCancel(ctx)
	next := &ahead{request: req, cancel: cancel, done: make(chan struct{})}
	r.ahead = next
	go func() {
		defer close(next.done)
		defer func() { next.panicked = recover() }()
		next.page, next.err = r.source.List(ctx, req)
	}()
}

// readPage returns the page that is being read ahead, or reads another one.
func (r *run) readPage(ctx context.Context, req keepwatch.ListRequest) (keepwatch.Page, error) {
	next := r.ahead
	if next == nil || next.request != req {
		r.dropAhead()
		return r.source.List(ctx, req)
	}
	<-next.done
	r.dropAhead()
	return next.page, next.err
}

// dropAhead ends the reading ahead. The source is not in use then.
func (r *run) dropAhead() {
	dropped := r.ahead
	if dropped == nil {
		return
	}
	r.ahead = nil
	dropped.cancel()
	<-dropped.done
	if dropped.panicked != nil {
		panic(dropped.panicked)
	}
}

// storePage puts the page that was read into the target, while the next one is being read.
func (r *run) storePage(ctx context.Context, a machine.StorePage) (machine.Input, error) {
	page := r.page
	r.page = keepwatch.Page{}
	if a.First {
		replacement, err := r.target.Replace(ctx, keepwatch.Relist{Reason: a.Reason, To: a.Revision})
		if err != nil {
			return nil, err
		}
		r.replacement = replacement
	}
	r.reportSkipped(page.Skipped)
	if !a.Last {
		next := r.requested
		next.Continue = page.Continue
		r.readAhead(ctx, next)
	}
	if err := r.putObjects(ctx, page.Objects, page.Remaining); err != nil {
		r.dropAhead()
		return nil, err
	}
	if a.Last {
		return machine.PageStored{}, r.commit(ctx, a.Revision)
	}
	return machine.PageStored{}, nil
}

// stream reads the whole list through a watch, which stays open.
func (r *run) stream(ctx context.Context, a machine.List) (machine.Input, error) {
	r.discardList()
	replacement, err := r.target.Replace(ctx, keepwatch.Relist{})
	if err != nil {
		return nil, err
	}
	r.replacement = replacement
	revision, watch, err := r.source.StreamList(ctx, a.NotOlderThan, func(objects []keepwatch.Object) error {
		if err := r.putObjects(ctx, objects, 0); err != nil {
			return err
		}
		r.step(machine.Chunk{})
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.watch, r.watchFrom, r.watchOpened = watch, revision, time.Now()
	return machine.Streamed{Revision: revision}, r.commit(ctx, revision)
}

func (r *run) putObjects(ctx context.Context, objects []keepwatch.Object, remaining int64) error {
	if err := r.replacement.Put(ctx, objects); err != nil {
		return err
	}
	r.listed += int64(len(objects))
	r.observe(Notice{Time: time.Now(), State: stateOf(r.machine), Listed: r.listed, Remaining: remaining,
		Revision: r.machine.Revision})
	return nil
}

// reportSkipped reports each object that could not be read.
func (r *run) reportSkipped(skipped []*keepwatch.Failure) {
	r.skipped += len(skipped)
	for _, failure := range skipped {
		r.observe(Notice{Time: time.Now(), State: stateOf(r.machine), Failure: failure, Decision: Skip,
			Revision: r.machine.Revision})
	}
}

func (r *run) commit(ctx context.Context, revision keepwatch.Revision) error {
	if err := r.replacement.Commit(ctx, revision); err != nil {
		return err
	}
	r.recorder.listed(r.skipped)
	r.replacement, r.listed, r.skipped = nil, 0, 0
	return nil
}

// openWatch opens the watch.
func (r *run) openWatch(ctx context.Context, a machine.Watch) (machine.Input, error) {
	r.discardList()
	watch, err := r.source.Watch(ctx, a.From)
	if err != nil {
		return nil, err
	}
	r.watch, r.watchFrom, r.watchOpened = watch, a.From, time.Now()
	return machine.Opened{}, nil
}

// probe asks for the source's newest revision.
func (r *run) probe(ctx context.Context, a machine.Probe) (machine.Input, error) {
	bounded := ctx
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, a.Timeout)
		defer cancel()
	}
	newest, err := r.source.Newest(bounded)
	if err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			return machine.ProbeTimedOut{}, nil
		}
		return nil, err
	}
	in := machine.Probed{Revision: newest}
	if failure := r.machine.Validate(in); failure != nil {
		return nil, failure
	}
	return in, nil
}

// confirmCurrent reports to the target that it is current.
func (r *run) confirmCurrent(ctx context.Context, a machine.ConfirmCurrent) (machine.Input, error) {
	_, err := r.target.Apply(ctx, keepwatch.Batch{From: r.machine.Revision, To: a.To})
	return machine.Confirmed{}, err
}

// read delivers one batch to the target.
func (r *run) read(ctx context.Context) (machine.Input, error) {
	batch, err := r.watch.Next()
	if err != nil {
		return nil, err
	}
	if failure := machine.Replayed(batch, r.watchFrom); failure != nil {
		return nil, failure
	}
	dropped, err := r.target.Apply(ctx, batch)
	r.recorder.received(time.Now(), len(batch.Changes), dropped)
	if err != nil {
		return nil, err
	}
	return machine.Delivered{Revision: r.target.Revision(), Bookmark: batch.Progress()}, nil
}

// wait waits for a.For, or until ctx is done.
func (r *run) wait(ctx context.Context, a machine.Wait) (machine.Input, error) {
	timer := time.NewTimer(a.For)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return machine.Elapsed{}, nil
}

func (r *run) observe(n Notice) {
	if r.options.Observe != nil {
		r.options.Observe(n)
	}
}

func (r *run) closeWatch() {
	if r.watch != nil {
		r.watch.Close()
		r.watch = nil
	}
}

// discardList discards the list that is not committed, if there is one.
func (r *run) discardList() {
	r.dropAhead()
	if r.replacement != nil {
		r.replacement.Discard()
	}
	r.replacement, r.listed, r.skipped, r.page = nil, 0, 0, keepwatch.Page{}
}

// end closes the watch and discards an unfinished list.
func (r *run) end() {
	r.closeWatch()
	r.discardList()
	r.recorder.stop(time.Now())
}
