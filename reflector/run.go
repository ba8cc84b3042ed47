package reflector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// run is what lives as long as one call of Run: it performs the machine's
// actions. Its fields belong to Run's goroutine.
type run struct {
	*Reflector
	machine machine.Machine
	random  *rand.Rand
	started time.Time

	page        keepwatch.Page        // in hand until it is kept
	replacement keepwatch.Replacement // nil when no list is on its way
	listed      int64                 // objects of the list on its way
	withheld    int                   // and those that were left out
	watch       keepwatch.Watch       // nil when none is open
	opened      time.Time             // when watch was
}

func newRun(r *Reflector) *run {
	seed := r.options.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	return &run{
		Reflector: r,
		machine: machine.Machine{State: machine.Fresh{}, Config: machine.Config{
			Paged: r.options.Paged, StartupDeadline: r.options.StartupDeadline,
		}},
		random:  rand.New(rand.NewPCG(seed, 0)),
		started: time.Now(),
	}
}

// step moves the machine by what went well.
func (r *run) step(in machine.Input) machine.Action {
	var action machine.Action
	r.machine, action = r.machine.Step(in)
	r.account.advance(time.Now(), r.machine, in)
	return action
}

// fail moves the machine by what went wrong, and says so.
func (r *run) fail(failure *keepwatch.Failure) machine.Action {
	in := machine.Failed{Kind: failure.Kind, RetryAfter: failure.RetryAfter, Elapsed: time.Since(r.started)}
	if r.watch != nil {
		in.Lived = time.Since(r.opened)
		r.closeWatch()
	}
	before := r.machine
	after, action := before.Step(in)
	action, wait := r.roll(action)
	r.machine = after
	verdict := decision(before, after)
	now := time.Now()
	r.account.fail(now, after, failure, verdict)
	r.observe(Notice{Time: now, State: visible(after), Failure: failure, Verdict: verdict, Wait: wait, Revision: after.Revision})
	return action
}

// roll settles how long a wait is, if the action is one; else it is 0.
func (r *run) roll(action machine.Action) (machine.Action, time.Duration) {
	switch a := action.(type) {
	case machine.Wait:
		wait := a.For + backoff.FullJitter(a.Jitter, r.random.Int64N)
		return machine.Wait{For: wait}, wait
	case machine.Invalidate:
		then, wait := r.roll(a.Then)
		return machine.Invalidate{Reason: a.Reason, Then: then}, wait
	}
	return action, 0
}

// decision names what a failure led to.
func decision(before, after machine.Machine) Verdict {
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
		return RelistNow
	}
	return Stop
}

// perform does what the machine asks for and returns what came of it. An error
// is a *keepwatch.Failure, or final.
func (r *run) perform(ctx context.Context, action machine.Action) (machine.Input, error) {
	switch a := action.(type) {
	case machine.List:
		if a.Stream {
			return r.stream(ctx, a)
		}
		return r.list(ctx, a)
	case machine.StorePage:
		return r.keep(ctx, a)
	case machine.Watch:
		return r.open(ctx, a)
	case machine.Read:
		return r.read(ctx)
	case machine.Probe:
		return r.probe(ctx, a)
	case machine.ConfirmCurrent:
		return r.prove(ctx)
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
		r.discard()
	}
	page, err := r.source.List(ctx, keepwatch.ListRequest{NotOlderThan: a.Floor, Continue: a.Continue})
	if err != nil {
		return nil, err
	}
	in := machine.Page{Revision: page.Revision, Continue: page.Continue}
	if failure := r.machine.Judge(in); failure != nil {
		return nil, failure
	}
	r.page = page
	return in, nil
}

// keep puts the page in hand into the target.
func (r *run) keep(ctx context.Context, a machine.StorePage) (machine.Input, error) {
	page := r.page
	r.page = keepwatch.Page{}
	if a.First {
		replacement, err := r.target.Replace(ctx, keepwatch.Relist{Reason: a.Reason, To: a.Revision})
		if err != nil {
			return nil, err
		}
		r.replacement = replacement
	}
	if err := r.put(ctx, page.Objects, page.Remaining); err != nil {
		return nil, err
	}
	r.leaveOut(page.Skipped)
	if a.Last {
		return machine.PageStored{}, r.commit(ctx, a.Revision)
	}
	return machine.PageStored{}, nil
}

// stream reads the whole list through a watch, and keeps the watch.
func (r *run) stream(ctx context.Context, a machine.List) (machine.Input, error) {
	r.discard()
	replacement, err := r.target.Replace(ctx, keepwatch.Relist{})
	if err != nil {
		return nil, err
	}
	r.replacement = replacement
	revision, watch, err := r.source.StreamList(ctx, a.Floor, func(objects []keepwatch.Object) error {
		if err := r.put(ctx, objects, 0); err != nil {
			return err
		}
		r.step(machine.Chunk{})
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.watch, r.opened = watch, time.Now()
	return machine.Streamed{Revision: revision}, r.commit(ctx, revision)
}

func (r *run) put(ctx context.Context, objects []keepwatch.Object, remaining int64) error {
	if err := r.replacement.Put(ctx, objects); err != nil {
		return err
	}
	r.listed += int64(len(objects))
	r.observe(Notice{Time: time.Now(), State: visible(r.machine), Listed: r.listed, Remaining: remaining, Revision: r.machine.Revision})
	return nil
}

// leaveOut says of each object that could not be taken that it is missing.
func (r *run) leaveOut(withheld []*keepwatch.Failure) {
	r.withheld += len(withheld)
	for _, failure := range withheld {
		r.observe(Notice{Time: time.Now(), State: visible(r.machine), Failure: failure, Verdict: Skip, Revision: r.machine.Revision})
	}
}

func (r *run) commit(ctx context.Context, revision keepwatch.Revision) error {
	if err := r.replacement.Commit(ctx, revision); err != nil {
		return err
	}
	r.account.listed(r.withheld)
	r.replacement, r.listed, r.withheld = nil, 0, 0
	return nil
}

// open opens the watch.
func (r *run) open(ctx context.Context, a machine.Watch) (machine.Input, error) {
	r.discard()
	watch, err := r.source.Watch(ctx, a.From)
	if err != nil {
		return nil, err
	}
	r.watch, r.opened = watch, time.Now()
	return machine.Opened{}, nil
}

// probe asks for the source's newest revision.
func (r *run) probe(ctx context.Context, a machine.Probe) (machine.Input, error) {
	patience := ctx
	if a.Within > 0 {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, a.Within)
		defer cancel()
	}
	newest, err := r.source.Newest(patience)
	if err != nil {
		if patience.Err() != nil && ctx.Err() == nil {
			return machine.Unanswered{}, nil
		}
		return nil, err
	}
	in := machine.Probed{Revision: newest}
	if failure := r.machine.Judge(in); failure != nil {
		return nil, failure
	}
	return in, nil
}

// prove tells the target that the source has nothing newer.
func (r *run) prove(ctx context.Context) (machine.Input, error) {
	held := r.machine.Revision
	_, err := r.target.Apply(ctx, keepwatch.Batch{From: held, To: held})
	return machine.Confirmed{}, err
}

// read hands one batch to the target.
func (r *run) read(ctx context.Context) (machine.Input, error) {
	batch, err := r.watch.Next()
	if err != nil {
		return nil, err
	}
	dropped, err := r.target.Apply(ctx, batch)
	r.account.received(time.Now(), len(batch.Changes), dropped)
	if err != nil {
		return nil, err
	}
	return machine.Delivered{Revision: r.target.Revision(), Bookmark: batch.Bookmark()}, nil
}

// wait blocks for as long as asked, or until ctx is done.
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

// discard makes the list on its way void, if there is one.
func (r *run) discard() {
	if r.replacement != nil {
		r.replacement.Discard()
	}
	r.replacement, r.listed, r.withheld, r.page = nil, 0, 0, keepwatch.Page{}
}

// end leaves nothing open behind.
func (r *run) end() {
	r.closeWatch()
	r.discard()
	r.account.stop(time.Now())
}
