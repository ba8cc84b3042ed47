package conform

import "time"

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

// ShortWaits returns options with which a run waits shortly for what a broken server does not send.
func ShortWaits(o Options) Options {
	o.waits = defaultWaits
	o.waits.event, o.waits.convergence, o.waits.lag = 5*time.Second, 2*time.Second, 2*time.Second
	return o
}

// ShortRecovery returns options with which a server has to answer again soon.
func ShortRecovery(o Options) Options {
	o.waits = defaultWaits
	o.waits.recovery = time.Second
	return o
}
