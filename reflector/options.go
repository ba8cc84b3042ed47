package reflector

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// Options configure a reflector. The zero value is ready for use.
type Options struct {
	// StartupDeadline bounds, from the start of Run, how long Run retries a failure for which
	// [EndsStartup] is true while no list was committed and no watch opened in this Run:
	// Forbidden, Absent, Rejected, Unversioned, Untrusted. Then Run returns the failure. Zero: Run returns
	// the first such failure. Negative: no limit.
	StartupDeadline time.Duration

	// Paged makes the first list a paged one even if the source supports streaming lists.
	Paged bool

	// ProbeAfterOutage asks for the newest revision, by one cheap request, when a watch opens
	// after the source had not accepted one: it may have been restored from a backup. A Kubernetes API
	// accepts a watch from a revision above its newest one, and sends nothing (kubernetes
	// #107457): without the request the restore is noticed when two watches were idle, and never
	// if the source has passed the target's revision by then. It is for a target that keeps what
	// it has received. A thousand informers of a cluster would ask all at once.
	ProbeAfterOutage bool

	// Observe, if set, is called with each notice, one at a time, before Run returns. It must not
	// block for long. While a source streams a list, it calls it from a goroutine of its own.
	Observe func(Notice)

	// Seed makes the jitter of waits repeatable. Zero draws a random seed.
	Seed uint64
}

// EndsStartup reports whether a failure of the kind ends Run after
// [Options.StartupDeadline]. It is also true for InvariantViolation, which ends Run at any
// time.
func EndsStartup(kind keepwatch.FailureKind) bool {
	rule := machine.Table[kind]
	return rule.EndsStartup || rule.Do == machine.End
}
