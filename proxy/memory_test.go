package proxy

import (
	"slices"
	"testing"
	"time"
)

// A resource is idle a minute after its last read, and never while it is watched.
func TestIdle(t *testing.T) {
	var a activity
	now := time.Now()
	if !a.idle(now) {
		t.Error("a resource that was never read is busy")
	}
	end := a.read(true)
	if a.idle(now.Add(time.Hour)) {
		t.Error("a watched resource is idle")
	}
	end()
	if a.idle(now) || !a.idle(now.Add(time.Hour)) {
		t.Error("the end of a watch is no use of it, or lasts for ever")
	}
	a.read(false)()
	if a.idle(time.Now().Add(idleAfter / 2)) {
		t.Error("a read is forgotten at once")
	}
}

// The largest idle resource is given up first, then the largest.
func TestOrderOfGivingUp(t *testing.T) {
	want := []usage{{true, 5}, {true, 1}, {false, 100}, {false, 10}}
	got := []usage{want[2], want[1], want[3], want[0]}
	slices.SortFunc(got, func(a, b usage) int { return b.compare(a) })
	if !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}
