package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Run ends at the deadline if the resource is absent, neither earlier nor later.
func TestStartupDeadlineIsExact(t *testing.T) {
	for _, deadline := range []time.Duration{0, time.Second, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			op := New("widgets.example.com", StartupDeadline(deadline))
			server := discovery.ToDiscoveryInterfaceWithContext(&fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}})
			began := time.Now()
			_, err := op.find(t.Context(), server)
			if err == nil || !strings.Contains(err.Error(), "no resource widgets.example.com") {
				t.Errorf("%v: it ends with %v", deadline, err)
			}
			if took := time.Since(began); took != deadline {
				t.Errorf("%v: it gives up after %v", deadline, took)
			}
		})
	}
}

// A negative deadline waits without limit, as the reflector's does.
func TestNegativeStartupDeadlineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op := New("widgets.example.com", StartupDeadline(-1))
		server := discovery.ToDiscoveryInterfaceWithContext(&fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}})
		ctx, cancel := context.WithTimeoutCause(t.Context(), 24*time.Hour, errors.New("a day is over"))
		defer cancel()
		if _, err := op.find(ctx, server); err == nil || err.Error() != "a day is over" {
			t.Errorf("find returns %v", err)
		}
	})
}
