package reflector

import (
	"context"
	"errors"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// Reflector keeps one target equal to one source while [Reflector.Run] runs.
type Reflector struct {
	source  keepwatch.Source
	target  keepwatch.Target
	options Options
	account *account
}

// New makes a reflector. It starts nothing.
func New(source keepwatch.Source, target keepwatch.Target, options Options) *Reflector {
	return &Reflector{source: source, target: target, options: options, account: newAccount(time.Now())}
}

// Progress is safe to call from any goroutine at any time.
func (r *Reflector) Progress() Progress { return r.account.snapshot(time.Now()) }

// Run follows the source until ctx is done or nothing else is true. It returns
// the cause of ctx's end, a *keepwatch.Failure whose verdict is to stop, or the
// target's own error; never nil. It must not be called while it runs; called
// again later it goes on from what the target holds.
func (r *Reflector) Run(ctx context.Context) error {
	run := newRun(r)
	defer run.end()
	action := run.step(machine.Started{Revision: r.target.Revision()})
	for {
		input, err := run.perform(ctx, action)
		failure, failed := errors.AsType[*keepwatch.Failure](err)
		switch {
		case err != nil && !failed && !errors.Is(err, ctx.Err()):
			return err // the target's own, whatever ends at the same time
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case failed:
			action = run.fail(failure)
		default:
			action = run.step(input)
		}
		if _, stop := action.(machine.Stop); stop {
			return err
		}
	}
}
