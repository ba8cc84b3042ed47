package watchcache

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
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
	for end := time.Now().Add(await.Deadline); size() != 1; runtime.GC() {
		if time.Now().After(end) {
			t.Fatalf("the set has %d objects, want 1", size())
		}
	}
	runtime.KeepAlive(current)
}

// An object that is unreadable and readable in turn, while a key server comes and goes, keeps no memory each time.
func TestUnreadableInTurnKeepsNothing(t *testing.T) {
	u, o := newUnreadable(), &Object{}
	const turns = 1_000_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range turns {
		u.add(o, func() bool { return true })
		u.remove(weak.Make(o))
	}
	if after := heap(); after > before+10*turns {
		t.Errorf("after %d turns the heap has %d bytes more", turns, after-before)
	}
	runtime.KeepAlive(o)
}
