package reflector

import (
	"maps"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// account is the progress as it is written by Run and read by anybody.
type account struct {
	mu sync.Mutex
	p  Progress
	// opened is when the watch was opened that is open, zero if none is.
	opened time.Time
}

func newAccount(now time.Time) *account {
	return &account{p: Progress{
		State: Stopped, Since: now,
		Relists:    map[keepwatch.FailureKind]uint64{},
		Reconnects: map[keepwatch.FailureKind]uint64{},
	}}
}

func (a *account) snapshot(now time.Time) Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.steady(now)
	p := a.p
	p.Relists, p.Reconnects = maps.Clone(p.Relists), maps.Clone(p.Reconnects)
	return p
}

// advance records an input that was no failure.
func (a *account) advance(now time.Time, m machine.Machine, in machine.Input) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(now, visible(m))
	a.p.Revision = m.Revision
	switch in := in.(type) {
	case machine.Opened:
		a.opened = now
	case machine.Streamed:
		a.opened, a.p.LastConfirmed = now, now
	case machine.Confirmed:
		a.p.LastConfirmed = now
	case machine.Delivered:
		if m.Newest == 0 { // else it is known that more has to come
			a.p.LastConfirmed = now
		}
	case machine.PageStored:
		if _, done := m.State.(machine.Watching); done {
			a.p.LastConfirmed = now
		}
	case machine.Started:
		a.p.Revision = in.Revision
	}
}

// fail records a failure and what was decided.
func (a *account) fail(now time.Time, m machine.Machine, failure *keepwatch.Failure, verdict Verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.steady(now)
	a.opened = time.Time{}
	a.enter(now, visible(m))
	a.p.LastFailure = failure
	switch verdict {
	case Resume, Verify:
		a.p.Reconnects[failure.Kind]++
	case RelistNow:
		a.p.Relists[failure.Kind]++
	}
}

// received records the arrival of a batch.
func (a *account) received(now time.Time, changes, dropped int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if changes > dropped {
		a.p.LastEvent = now
	}
	a.p.Dropped += uint64(dropped)
}

// listed records the end of a list, and how many objects were left out of it.
func (a *account) listed(withheld int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.p.Skipped = withheld
}

func (a *account) stop(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opened = time.Time{}
	a.enter(now, Stopped)
}

// steady ends trouble once a watch has stayed open: as of when it had for long enough,
// since nothing happens at that moment. a.mu is held.
func (a *account) steady(now time.Time) {
	if since := a.opened.Add(machine.SteadyWatch); !a.opened.IsZero() && !now.Before(since) {
		a.enter(since, Live)
	}
}

// enter changes the visible state; a.mu is held.
func (a *account) enter(now time.Time, s State) {
	if a.p.State == s {
		return
	}
	switch {
	case s == Live || s == Stopped:
		a.p.Lost = time.Time{}
	case a.p.Lost.IsZero():
		a.p.Lost = now
	}
	a.p.State, a.p.Since = s, now
}

// visible is the machine's state in the words of people and health checks.
func visible(m machine.Machine) State {
	switch m.Failure {
	case 0:
	case keepwatch.Unauthorized:
		return Unauthorized
	case keepwatch.Forbidden:
		return Forbidden
	case keepwatch.Absent:
		return Absent
	default:
		return Stalled
	}
	switch pending(m).(type) {
	case machine.List:
		if m.Revision == 0 {
			return Syncing
		}
		return Relisting
	case machine.Watch, machine.Probe:
		return Live
	}
	return Stopped
}

// pending is the action that the machine is busy with or waits for; nil before
// the start and after the end.
func pending(m machine.Machine) machine.Action {
	switch s := m.State.(type) {
	case machine.Listing:
		return s.List
	case machine.Watching, machine.Confirming:
		return machine.Watch{From: m.Revision}
	case machine.Probing:
		return machine.Probe{}
	case machine.Waiting:
		return s.Then
	}
	return nil
}
