package watchcache

import (
	"runtime"
	"testing"
	"time"
)

// The set of unreadable objects keeps none of them, once it is garbage.
func TestUnreadableObjectsAreForgotten(t *testing.T) {
	u := newUnreadable()
	current := &Object{}
	u.add(current, func() bool { return true })
	u.add(&Object{}, func() bool { return true })
	u.add(&Object{}, func() bool { return false })
	size := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.all)
	}
	for end := time.Now().Add(time.Minute); size() != 1; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("the set has %d objects, want 1", size())
		}
	}
	runtime.KeepAlive(current)
}
