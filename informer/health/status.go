package health

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// State is what an informer does at present. The values are closed.
type State string

const (
	Syncing State = "SYNCING" // the first list is being read
	Live    State = "LIVE"    // a watch is open; it opened or delivered a change within the last minute
	Quiet   State = "QUIET"   // a watch has been open and delivered no change for a minute
	Stalled State = "STALLED" // the server cannot be reached or answers with errors
	// watches stay open and deliver nothing although the resource changes; lists replace them
	Stale        State = "STALE"
	Relisting    State = "RELISTING"    // a later list is being read, to compute the difference
	Forbidden    State = "FORBIDDEN"    // the credentials do not permit the request
	Absent       State = "ABSENT"       // the server does not serve the resource
	Unauthorized State = "UNAUTHORIZED" // the server does not accept the credentials
	Stopped      State = "STOPPED"      // Run has returned, or was never called
)

// states has all states, in the order above.
var states = []State{Syncing, Live, Quiet, Stalled, Stale, Relisting, Forbidden, Absent, Unauthorized, Stopped}

// QuietAfter is how long after the last change, or after the watch opened, the state stays
// Live. Then it is Quiet.
const QuietAfter = time.Minute

// Status describes an informer at one moment.
type Status struct {
	State State
	Since time.Time // when State began
	// NotLiveSince is the time since which the informer has not followed its resource, through all
	// states since then. It is zero while the informer follows, and while it does not run.
	NotLiveSince time.Time
	// Resource is the resource that is read. It is empty before discovery, and where only a
	// ListerWatcher knows it.
	Resource schema.GroupVersionResource
	// ResourceVersion is the server's resource version of the cache, "" before the first
	// list.
	ResourceVersion string
	// Objects counts the objects in the cache, without the rejected ones.
	Objects int
	// Rejected has the objects that exist on the server and are not shown, with the reason:
	// the transform failed or panicked, the object has another type, or it could not be
	// decoded.
	Rejected map[keepwatch.Key]error
	// LastEvent is when the last change arrived.
	LastEvent time.Time
	// LastConfirmed is when the server last confirmed that the cache is current.
	LastConfirmed time.Time
	// Relists and Reconnects count later lists and new watches by the kind of failure that
	// caused them.
	Relists, Reconnects map[keepwatch.FailureKind]uint64
	// Dropped counts events that changed nothing.
	Dropped uint64
	// Panics counts the panics of handlers.
	Panics uint64
	// Handlers counts the registered handlers, and Behind those that have not received
	// every change of the cache.
	Handlers, Behind int
	// LastFailure is the newest failure, nil if there was none.
	LastFailure error
}

// Healthy returns an error with the state, the duration and the last failure if the informer
// has not followed its resource for longer than grace. For Stale it has the cache's age. It returns nil otherwise, also
// if nothing changes on the server, and if the informer was stopped. A server that accepts requests and does not
// complete them causes an error. [Group.Check] and operator.Operator.Healthy use a grace of two minutes.
func (s Status) Healthy(grace time.Duration) error {
	if s.NotLiveSince.IsZero() {
		return nil
	}
	duration := time.Since(s.NotLiveSince)
	if duration <= grace {
		return nil
	}
	state := string(s.State)
	if s.State == Stale {
		state += fmt.Sprintf(" (current %v ago)", time.Since(s.LastConfirmed).Round(time.Second))
	}
	if s.LastFailure != nil {
		return fmt.Errorf("%s, and not following for %v: %w", state, duration.Round(time.Second), s.LastFailure)
	}
	return fmt.Errorf("%s, and not following for %v", state, duration.Round(time.Second))
}
