package operators

import "time"

// SwitchOff switches the oracle of a verdict off.
func (o *Options) SwitchOff(v Verdict) { o.without = v }

// Hurry is the patience of runs with a plan.
func (o *Options) Hurry(patience time.Duration) { o.hurry = patience }

// Outage is the length of an outage.
func (o *Options) Outage(length time.Duration) { o.outage = length }
