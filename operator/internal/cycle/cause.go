package cycle

import (
	"strings"
	"time"
)

// Cause is why handlers are called, or why none are. The set is closed. Causes are
// bits, so that a handler can be declared for several.
type Cause uint8

const (
	Create Cause = 1 << iota
	Update
	Delete
	Resume
	Noop
	Free
	Gone
)

var causeNames = map[Cause]string{
	Create: "create", Update: "update", Delete: "delete", Resume: "resume",
	Noop: "noop", Free: "free", Gone: "gone",
}

// String is the cause's name, as it is kept in progress records; of several, their
// names with commas between them.
func (c Cause) String() string {
	var names []string
	for bit := Create; bit <= Gone; bit <<= 1 {
		if c.has(bit) {
			names = append(names, causeNames[bit])
		}
	}
	return strings.Join(names, ",")
}

func (c Cause) has(other Cause) bool { return c&other != 0 }

// Seen is one state of an object, and what this process knows about it besides.
type Seen struct {
	// Object is the state as the API shows it, in the types of encoding/json with
	// int64 for whole numbers. It is not changed.
	Object map[string]any
	// Gone: the object was deleted, and this was its last state.
	Gone bool
	// Listed: the first list of this process has shown the object, and no cycle was
	// completed for it since.
	Listed bool
	// Begun: this process has written what a resume handler has done for it. What is
	// recorded of resume handlers before that is of another process, which started
	// things that have ended with it.
	Begun bool
	// Recent are the records of [Remember] steps by their slots, and Recorded is when this
	// process last wrote on the object.
	Deferred map[string]Record
	Written  time.Time
	// Attended: daemons are declared for the object in this state.
	WantsDaemon bool
	// Occupied: daemons of the object are running, or have not ended yet.
	RunsDaemon bool
}

// detect is the cause of a state.
func (s Spec) detect(seen Seen, old map[string]any, changed bool) Cause {
	deleting := deleting(seen.Object)
	switch {
	case seen.Gone:
		return Gone
	case deleting && !s.HasFinalizer(seen.Object):
		return Free
	case deleting:
		return Delete
	case old == nil:
		return Create
	case !changed && seen.Listed:
		return Resume
	case !changed:
		return Noop
	default:
		return Update
	}
}

func deleting(object map[string]any) bool {
	at, _ := lookup(object, Path{"metadata", "deletionTimestamp"})
	return at != nil
}

// Finalized reports whether the object waits for us before it is gone.
func (s Spec) HasFinalizer(object map[string]any) bool {
	finalizers, _ := lookup(object, Path{"metadata", "finalizers"})
	list, _ := finalizers.([]any)
	for _, f := range list {
		if f == s.Finalizer {
			return true
		}
	}
	return false
}
