package await

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leaked bounds the wait for goroutines: what servers and connections leave behind ends by itself in seconds, after a
// pause or a last answer, and a package with a leak fails within a minute.
const leaked = time.Minute

// Tests runs the tests of a package, and returns the exit code of the process: it is not 0 if a test fails, or if a
// goroutine is left.
func Tests(m *testing.M) int { return Goroutines(m.Run()) }

// Goroutines returns the exit code of tests that ended with code: it is not 0 either if a goroutine is left. It waits
// for all but those that options ignore. goleak itself waits for about a second.
func Goroutines(code int, options ...goleak.Option) int {
	if code != 0 {
		return code
	}
	err := goleak.Find(options...)
	for begun := time.Now(); err != nil && time.Since(begun) < leaked; {
		err = goleak.Find(options...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left:", err)
		return 1
	}
	return 0
}
