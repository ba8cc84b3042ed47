// Package await waits in tests for a state. Tests have no other deadline than [Deadline]: only a hang reaches it, so
// that no test depends on how fast a machine is. A wait that reaches it fails the test and says what was seen last.
package await

import (
	"testing"
	"time"
)

// Deadline bounds each wait of a test.
const Deadline = 5 * time.Minute

// True waits until is returns true. seen, if given, describes the state of then, for the message of a test that fails.
func True(t testing.TB, what string, is func() bool, seen ...func() string) {
	t.Helper()
	last := func() (all string) {
		for _, describe := range seen {
			all += describe()
		}
		return all
	}
	poll(t, what, is, last)
}

// State waits until look returns true, beside what it saw.
func State(t testing.TB, what string, look func() (reached bool, seen string)) {
	t.Helper()
	last := ""
	poll(t, what, func() (reached bool) { reached, last = look(); return reached }, func() string { return last })
}

// NoError waits until try returns no error.
func NoError(t testing.TB, what string, try func() error) {
	t.Helper()
	var last error
	poll(t, what, func() bool { last = try(); return last == nil }, func() string { return last.Error() })
}

// Receive returns the next value of c, or the zero value once c is closed.
func Receive[T any](t testing.TB, what string, c <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(Deadline):
		t.Fatalf("not within %v: %s", Deadline, what)
	}
	return value
}

// poll asks the less often the longer it waits: what it asks may be a server that is busy.
func poll(t testing.TB, what string, is func() bool, seen func() string) {
	t.Helper()
	for begun := time.Now(); !is(); {
		waited := time.Since(begun)
		if waited > Deadline {
			t.Fatalf("not within %v: %s\n%s", Deadline, what, seen())
		}
		<-time.After(min(max(time.Millisecond, waited/20), time.Second))
	}
}
