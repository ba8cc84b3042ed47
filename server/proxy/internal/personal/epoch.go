package personal

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// Settled is how long after a change of roles or bindings an API server, or another replica, may still decide by what
// was before it.
const Settled = 5 * time.Second

// quiet is how long the bindings of a user must not have changed before the revisions of a view that begins are known
// at once. Within that time after a change has settled the server has written something, if only the lease of its own
// identity, which it renews every ten seconds: so its newest revision is higher than any that was sent with the set
// before.
const quiet = 20 * time.Second

// epoch is the time since the last change of a view's set, or of the bindings of its user. Its floor is the first
// revision that was sent, by any replica, with no other set than the present one.
type epoch struct {
	settles time.Time // when all replicas decide by the last change
	floor   keepwatch.Revision
	known   bool // floor is
	marked  bool // floor was the newest revision before the view began
}

// changed returns the epoch that begins with a change at a time, which settles after some time.
func changed(at time.Time, settled time.Duration) epoch {
	return epoch{settles: at.Add(settled)}
}

// due reports whether the floor can be asked for.
func (e epoch) due(now time.Time) bool { return !e.known && !now.Before(e.settles) }

// with returns the epoch with its floor, of the newest revision of the server, which was asked for at a time after
// settles. It may itself have been sent with the set before, but if the server has written something since.
func (e epoch) with(newest keepwatch.Revision, asked time.Time) epoch {
	e.floor, e.known = newest, true
	if asked.Before(e.settles.Add(quiet - Settled)) {
		e.floor++
	}
	return e
}
