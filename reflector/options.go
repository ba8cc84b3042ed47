package reflector

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// Options configure a reflector. The zero value is ready for use.
type Options struct {
	// StartupDeadline is how long Run retries the failures that [EndsStartup] reports,
	// before a list or a watch has succeeded; then Run returns the failure. With zero, such a
	// failure ends Run at once. With a negative value Run retries without a limit, until the
	// permission is granted or the resource is served.
	StartupDeadline time.Duration

	// Paged makes the first list a paged one even if the source supports streaming lists.
	Paged bool

	// Observe, if set, is called with each notice, from Run's goroutine. It must not block for
	// long.
	Observe func(Notice)

	// Seed makes the jitter of waits repeatable. Zero draws a random seed.
	Seed uint64
}

// EndsStartup reports whether a failure of the kind ends Run after the startup deadline if
// nothing has succeeded before.
func EndsStartup(kind keepwatch.FailureKind) bool {
	rule := machine.Table[kind]
	return rule.EndsStartup || rule.Do == machine.End
}
