package reflector

import (
	"maps"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector/internal/machine"
)

// progressRecorder records a Progress while Run runs. It is safe for concurrent use.
type progressRecorder struct {
	mu       sync.Mutex
	progress Progress
	// watchOpened is when the open watch was opened, zero if none is open.
	watchOpened time.Time
}

func newProgressRecorder(now time.Time) *progressRecorder {
	return &progressRecorder{progress: Progress{
		State: Stopped, Since: now,
		Relists:    map[keepwatch.FailureKind]uint64{},
		Reconnects: map[keepwatch.FailureKind]uint64{},
	}}
}

func (r *progressRecorder) snapshot(now time.Time) Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enterLiveIfSteady(now)
	p := r.progress
	p.Relists, p.Reconnects = maps.Clone(p.Relists), maps.Clone(p.Reconnects)
	return p
}

// advance records an input that is no failure.
func (r *progressRecorder) advance(now time.Time, m machine.Machine, in machine.Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enter(now, stateOf(m))
	r.progress.Revision = m.Revision
	switch in := in.(type) {
	case machine.Opened:
		if !m.Silent { // otherwise an open watch proves nothing
			r.watchOpened = now
		}
	case machine.Streamed:
		r.watchOpened, r.progress.LastConfirmed = now, now
	case machine.Confirmed:
		r.progress.LastConfirmed = now
	case machine.Delivered:
		if m.Newest == 0 { // otherwise the source is known to have a newer revision
			r.progress.LastConfirmed = now
		}
	case machine.PageStored:
		if _, done := m.State.(machine.Watching); done {
			r.progress.LastConfirmed = now
		}
	case machine.Started:
		r.progress.Revision = in.Revision
	}
}

// fail records a failure and the decision on it.
func (r *progressRecorder) fail(now time.Time, m machine.Machine, failure *keepwatch.Failure, decision Decision,
	watchOpen bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enterLiveIfSteady(now)
	if !watchOpen {
		r.watchOpened = time.Time{}
	}
	r.enter(now, stateOf(m))
	r.progress.LastFailure = failure
	switch decision {
	case Resume, Verify:
		r.progress.Reconnects[failure.Kind]++
	case Relist:
		r.progress.Relists[failure.Kind]++
	}
}

// received records a batch that the target has received.
func (r *progressRecorder) received(now time.Time, changes, dropped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if changes > dropped {
		r.progress.LastEvent = now
	}
	r.progress.Dropped += uint64(dropped)
}

// listed records the end of a list that skipped objects.
func (r *progressRecorder) listed(skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.Skipped = skipped
}

func (r *progressRecorder) stop(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchOpened = time.Time{}
	r.enter(now, Stopped)
}

// enterLiveIfSteady enters Live if a watch has been open for SteadyWatch. Since is the end
// of that time, not now, because no event marks it. r.mu is held.
func (r *progressRecorder) enterLiveIfSteady(now time.Time) {
	if since := r.watchOpened.Add(machine.SteadyWatch); !r.watchOpened.IsZero() && !now.Before(since) {
		r.enter(since, Live)
	}
}

// enter changes the state. r.mu is held.
func (r *progressRecorder) enter(now time.Time, s State) {
	if r.progress.State == s {
		return
	}
	switch {
	case s == Live || s == Stopped:
		r.progress.NotLiveSince = time.Time{}
	case r.progress.NotLiveSince.IsZero():
		r.progress.NotLiveSince = now
	}
	r.progress.State, r.progress.Since = s, now
}

// stateOf returns the reflector's state for the machine's.
func stateOf(m machine.Machine) State {
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
	if _, stopped := m.State.(machine.Stopped); m.Silent && !stopped {
		return Stale
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

// pending returns the action that the machine performs or waits for, nil before the start
// and after the end.
func pending(m machine.Machine) machine.Action {
	switch s := m.State.(type) {
	case machine.Listing:
		return s.List
	case machine.Watching, machine.Comparing, machine.Confirming:
		return machine.Watch{From: m.Revision}
	case machine.Probing:
		return machine.Probe{}
	case machine.Waiting:
		return s.Then
	}
	return nil
}
