package conform

import (
	"testing"
	"time"
)

// Only returns options with which only some rules are judged; "storm" is all rules of the storm.
func Only(o Options, ids ...string) Options {
	o.only = func(rule string) bool {
		for _, id := range ids {
			if id == rule {
				return true
			}
		}
		return false
	}
	return o
}

// RuleIDs returns the rules that single requests and the watchers of a storm judge.
func RuleIDs() (ids []string) {
	for _, r := range rules {
		ids = append(ids, r.ID)
	}
	for _, r := range stormRules {
		ids = append(ids, r.ID)
	}
	return ids
}

// BuiltinOnly returns options with which no custom resource is judged.
func BuiltinOnly(o Options) Options {
	o.builtinOnly = true
	return o
}

// ShortWaits shortens the waits for events that a broken server does not send, until the end of the test.
func ShortWaits(t *testing.T) {
	before := [...]time.Duration{eventTimeout, convergence, lag}
	eventTimeout, convergence, lag = 5*time.Second, 2*time.Second, 2*time.Second
	t.Cleanup(func() { eventTimeout, convergence, lag = before[0], before[1], before[2] })
}

// ShortRecovery shortens the time in which a server has to answer again, until the end of the test.
func ShortRecovery(t *testing.T) {
	before := recovery
	recovery = time.Second
	t.Cleanup(func() { recovery = before })
}
