package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// maxAhead is how far the newest transaction may be ahead of this clock: clocks differ a little.
const maxAhead = time.Minute

// CheckClock returns an [Unknown] for a time of a stream if the clock of the transactions was ahead, and the time is
// after the last one before that: since then they have had the time to which the clock was set, so that what was stored
// until a time in between is not known. Revisions are.
func (v *View) CheckClock(ctx context.Context, at time.Time, of sink.Status) error {
	if at.IsZero() {
		return nil
	}
	last, ahead, err := v.beforeJump(ctx, of)
	if err != nil || !ahead || !at.After(last.Time) {
		return err
	}
	u := &Unknown{Resource: of.ID.Resource, Reason: "the clock was ahead: no time of what is stored is known"}
	if !last.Time.IsZero() {
		u.Reason = fmt.Sprintf("the clock was ahead: times after %s are not known", last.Time.UTC().Format(timeFormat))
		u.Earlier = last
	}
	return u
}

// beforeJump returns the last known moment before now of a stream, and whether later transactions have a time after it.
// The times of a database never go back: a transaction of any stream was before the clock was set forward.
func (v *View) beforeJump(ctx context.Context, of sink.Status) (last *Known, ahead bool, err error) {
	now := v.now()
	line := v.line(of)
	if !slices.ContainsFunc(line, func(s sink.Status) bool { return s.Time.After(now.Add(maxAhead)) }) {
		return nil, false, nil
	}
	var before time.Time
	see := func(at time.Time) {
		if !at.After(now) && at.After(before) {
			before = at
		}
	}
	for _, s := range v.streams {
		see(s.FirstSeen)
		see(s.Time)
	}
	for _, name := range names(v.streams) {
		at, err := v.tables.PointAt(ctx, []string{name}, now)
		if err != nil {
			return nil, false, err
		}
		seen, err := v.tables.SeenAt(ctx, []string{name}, at)
		if err != nil {
			return nil, false, err
		}
		see(seen) // in the future if a list has stored an old revision since
	}
	at, err := v.pointAt(ctx, now, line)
	return knownAt(at, before, line), true, err
}
