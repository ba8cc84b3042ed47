package reflector

import (
	"context"
	"errors"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// Reflector keeps a target equal to a source while [Reflector.Run] runs.
type Reflector struct {
	source   keepwatch.Source
	target   keepwatch.Target
	options  Options
	recorder *progressRecorder
}

// New returns a reflector. It starts nothing.
func New(source keepwatch.Source, target keepwatch.Target, options Options) *Reflector {
	return &Reflector{source: source, target: target, options: options, recorder: newProgressRecorder(time.Now())}
}

// Progress returns the reflector's current state and counts. It is safe for concurrent use.
func (r *Reflector) Progress() Progress { return r.recorder.snapshot(time.Now()) }

// Run follows the source until ctx is done or an error that cannot be retried occurs. It
// returns the cause of ctx, a *keepwatch.Failure whose Decision is Stop, or the target's
// error; never nil. It must not be called concurrently. A later call continues at the
// target's revision.
func (r *Reflector) Run(ctx context.Context) error {
	run := newRun(r)
	defer run.end()
	action := run.step(machine.Started{Revision: r.target.Revision()})
	for {
		input, err := run.perform(ctx, action)
		failure, failed := errors.AsType[*keepwatch.Failure](err)
		switch {
		case err != nil && !failed && !errors.Is(err, ctx.Err()):
			return err // the target's own, even if ctx ends at the same time
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
