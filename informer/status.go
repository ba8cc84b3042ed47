package informer

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
)

// State is what an informer is doing, for people and health checks. The values are
// closed.
type State string

const (
	Syncing      State = "SYNCING"      // listing for the first time
	Live         State = "LIVE"         // following, and something happened within the last minute
	Quiet        State = "QUIET"        // following, and nothing happens
	Stalled      State = "STALLED"      // the server can't be reached or answers with errors
	Relisting    State = "RELISTING"    // listing again, to tell the difference
	Forbidden    State = "FORBIDDEN"    // the credentials do not allow it
	Absent       State = "ABSENT"       // the resource is not served
	Unauthorized State = "UNAUTHORIZED" // the credentials are refused
	Stopped      State = "STOPPED"      // Run has ended, or was never called
)

// states are all of them, in the order above.
var states = []State{Syncing, Live, Quiet, Stalled, Relisting, Forbidden, Absent, Unauthorized, Stopped}

// quietAfter is how long nothing has to happen until it is quiet: a server's
// bookmark is due once in that time.
const quietAfter = time.Minute

// Status is an informer's account of itself at one moment.
type Status struct {
	State State
	Since time.Time // when State began
	// Lost is since when it has not been following, whatever its states were meanwhile;
	// zero while it follows, and while it does not run.
	Lost time.Time
	// Resource is what is read, once it is known; empty where only a ListerWatcher
	// knows it.
	Resource schema.GroupVersionResource
	// ResourceVersion is what the cache is equal to on the server, "" before the
	// first list.
	ResourceVersion string
	// Objects are those in the cache, without the rejected ones.
	Objects int
	// Rejected are the objects that exist on the server and are not shown, and why:
	// the transform failed or panicked, or they are of another type.
	Rejected map[keepwatch.Key]error
	// LastEvent is when the last change arrived.
	LastEvent time.Time
	// LastProof is when the server last proved that the cache is current.
	LastConfirmed time.Time
	// Relists and Reconnects count by the kind of failure that led to them.
	Relists, Reconnects map[keepwatch.FailureKind]uint64
	// Dropped counts events that were not news.
	Dropped uint64
	// Panics counts those of handlers.
	Panics uint64
	// Handlers counts those registered, and Behind those that have yet to be told
	// something that is in the cache.
	Handlers, Behind int
	// LastFailure is the newest, nil if there was none.
	LastFailure error
}

// Healthy fails when the informer has made no progress for longer than patience:
// it could not list, or could not follow. That nothing happens on the server is no
// lack of progress, and neither is it to have been stopped. That the server takes
// requests is no progress, as long as it does not answer them to their end.
func (s Status) Healthy(patience time.Duration) error {
	if s.Lost.IsZero() {
		return nil
	}
	lost := time.Since(s.Lost)
	if lost <= patience {
		return nil
	}
	if s.LastFailure != nil {
		return fmt.Errorf("%s, and not following for %v: %w", s.State, lost.Round(time.Second), s.LastFailure)
	}
	return fmt.Errorf("%s, and not following for %v", s.State, lost.Round(time.Second))
}

// status is what a follower says of itself.
func (f *follower) status() Status {
	p := f.reflector.Progress()
	held := f.store.Snapshot()
	s := Status{
		State: State(p.State), Since: p.Since, Lost: p.NotLiveSince,
		Resource: f.resource(), ResourceVersion: f.resourceVersion(),
		LastEvent: p.LastEvent, LastConfirmed: p.LastConfirmed,
		Relists: p.Relists, Reconnects: p.Reconnects,
		Dropped: p.Dropped, Panics: f.panics.count.Load(),
	}
	s.Objects, s.Rejected = f.applier.lookup.count()
	if p.LastFailure != nil {
		s.LastFailure = p.LastFailure
	}
	if p.State == reflector.Live {
		last := p.Since
		if p.LastEvent.After(last) {
			last = p.LastEvent
		}
		if quiet := last.Add(quietAfter); time.Now().After(quiet) {
			s.State, s.Since = Quiet, quiet
		}
	}
	s.Handlers, s.Behind = f.handlerCounts(held.Revision())
	return s
}

// crowd counts the handlers, and those that were told less than the state at a
// revision and will be told more.
func (f *follower) handlerCounts(newest keepwatch.Revision) (all, behind int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handlers {
		if !h.ended() && !h.progress.reached(newest) {
			behind++
		}
	}
	return len(f.handlers), behind
}

// queued is how many changes the handler that is furthest behind has yet to be told.
func (f *follower) queued() (most int) {
	f.mu.Lock()
	handlers := slices.Collect(maps.Keys(f.handlers))
	f.mu.Unlock()
	for _, h := range handlers {
		most = max(most, h.progress.behind(f.store))
	}
	return most
}

// State is what the informer is doing.
func (s *Shared) State() State { return s.Status().State }

// Status is the informer's account of itself. It may be asked for at any time.
func (s *Shared) Status() Status { return s.follower.status() }
