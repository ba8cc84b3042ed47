package testserver

import (
	"slices"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// An advance that cannot be done fails the test.
func TestRefusedAdvance(t *testing.T) {
	for _, c := range []struct {
		cluster *controlplane.Simulation
		by      time.Duration
		want    string
	}{
		{nil, time.Hour, "testserver: Advance needs the option Simulate"},
		{controlplane.NewSimulation(), -time.Hour,
			"testserver: advance by -1h0m0s: a simulation's time cannot be moved back"},
	} {
		test := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			(&Server{t: test, cluster: c.cluster}).Advance(c.by)
		}()
		if !slices.Equal(test.failures, []string{c.want}) {
			t.Errorf("failures: %q, want %q", test.failures, c.want)
		}
	}
}
