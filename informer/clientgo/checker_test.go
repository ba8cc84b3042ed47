//go:build !k8s_v0.35

package clientgo_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// syncedOf returns a channel that is closed once an informer has synced.
func syncedOf(_ *testing.T, inf cache.SharedIndexInformer) <-chan struct{} {
	return inf.HasSyncedChecker().Done()
}

// Checkers say what they wait for, since cache.WaitFor logs it.
func TestCheckersHaveNames(t *testing.T) {
	inf := shared(newSource(t, podtest.Pod("a")), 0)
	registration := handle(t, inf, &recorder{})
	podtest.Run(t, inf)
	for _, c := range []cache.DoneChecker{inf.HasSyncedChecker(), registration.HasSyncedChecker()} {
		<-c.Done()
		if !strings.Contains(c.Name(), "*v1.Pod") {
			t.Errorf("a checker's name is %q", c.Name())
		}
	}
	if name := registration.HasSyncedChecker().Name(); !strings.Contains(name, "recorder") {
		t.Errorf("the checker's name is %q", name)
	}
}
