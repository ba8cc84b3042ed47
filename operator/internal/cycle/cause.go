package cycle

import (
	"slices"
	"strings"
	"time"
)

// Cause is why handlers are called, or why none is. The set is closed. Causes are bits,
// since a handler can be declared for several.
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

// String returns the cause as stored in records. Several causes are separated by commas.
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

// Seen is one state of an object, and what this process knows about the object.
type Seen struct {
	// Object is the state, in the types of encoding/json with int64 for whole numbers. It
	// is not changed.
	Object map[string]any
	// Gone: the object was deleted in this state.
	Gone bool
	// Listed: the object was in the first list of this process, and no cycle has completed
	// since.
	Listed bool
	// Begun: this process has written a record of a resume handler. Earlier records of
	// resume handlers are from another process, whose results in memory are lost.
	Begun bool
	// Deferred are the records of [Defer] steps by their slots, and Written is when this
	// process last wrote to the object.
	Deferred map[string]Record
	Written  time.Time
	// WantsDaemon: the object should have a daemon in this state.
	WantsDaemon bool
	// RunsDaemon: a daemon of the object has not ended. RunsTimer: a timer of the object has not.
	RunsDaemon, RunsTimer bool
}

// detect returns the cause of a state.
func (s Spec) detect(seen Seen, old map[string]any, changed bool) Cause {
	deleting := deleting(seen.Object)
	switch {
	case seen.Gone:
		return Gone
	case deleting && !s.HasFinalizer(seen.Object) && !(s.needsNoFinalizer() && len(finalizers(seen.Object)) > 0):
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

// HasFinalizer reports whether an object has our finalizer.
func (s Spec) HasFinalizer(object map[string]any) bool {
	return slices.Contains(finalizers(object), any(s.Finalizer))
}

// heldByOthers reports whether an object has a finalizer that is not ours.
func (s Spec) heldByOthers(object map[string]any) bool {
	return slices.ContainsFunc(finalizers(object), func(f any) bool { return f != s.Finalizer })
}

func finalizers(object map[string]any) []any {
	value, _ := lookup(object, Path{"metadata", "finalizers"})
	list, _ := value.([]any)
	return list
}
