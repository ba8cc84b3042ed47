package reflector

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// Options shape a reflector. The zero value is ready for use.
type Options struct {
	// StartupDeadline bounds how long failures that [EndsStartup] names may last before
	// the first list has succeeded; then Run ends with that failure. Zero means not
	// at all: such a failure ends Run at once. Negative means for ever: wait until
	// the permission is given or the resource is served.
	StartupDeadline time.Duration

	// Paged makes the first list a paged one even where the source can stream it.
	Paged bool

	// Observe, if set, is called with each notice, from Run's goroutine; it must not
	// block for long.
	Observe func(Notice)

	// Seed makes the jitter of waits repeat; zero takes a random one.
	Seed uint64
}

// EndsStartup reports whether failures of a kind end a Run in which nothing has succeeded
// yet, once the startup deadline is over.
func EndsStartup(kind keepwatch.FailureKind) bool {
	rule := machine.Table[kind]
	return rule.AtStartup || rule.Do == machine.End
}
