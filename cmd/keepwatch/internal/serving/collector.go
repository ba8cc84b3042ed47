package serving

import (
	"os"
	"runtime/debug"
)

// gcPercent is the default of GOGC. Most of the live heap is encoded objects, or in sync the encoded index of them,
// which have no pointers and are cheap to mark: the collector may run twice as often as by default, and the process is
// a quarter smaller.
const gcPercent = 50

// SetGCPercent sets the garbage collector to gcPercent, unless the user has set GOGC.
func SetGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
