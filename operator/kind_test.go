package operator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A resource that is absent has until the deadline, all of it.
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
