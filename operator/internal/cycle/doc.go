// Package cycle decides what an operator does about one state of one object. It is a pure
// function of the state and the time. Its result is a [Step]: a call, a write, or a wait.
// Progress between two steps is stored on the object, so that a restart changes nothing;
// only the newest failures of the last second can be in memory ([Defer]).
//
// # The causes
//
// The first that applies counts:
//
//	gone     the object does not exist
//	free     it is being deleted, without our finalizer
//	delete   it is being deleted, with our finalizer; or with another one, and a handler needs none of ours
//	create   it was never handled
//	resume   it was handled before, and is in the first list of this process
//	noop     its desired state is the one handled last
//	update   its desired state differs from the one handled last
//
// The desired state is the object without identity, status, system metadata and the
// annotations of kubectl and of operators. kopf calls it the essence. Resume handlers are
// also called with an update that the first list shows.
//
// # No state is skipped
//
// The handlers of a cause run one at a time, and their retries may take hours. Meanwhile
// the object can change, and a handler that succeeded is not called again for this cause.
// So the cycle records as handled the state that its first call saw. The difference to the
// final state is then an update of its own, which every handler sees.
//
// # Files
//
//	cause.go, spec.go       why handlers are called; the declared handlers, and which apply
//	plan.go, step.go        the decision, and its results
//	outcome.go              what an error of a handler means
//	progress.go, edits.go   the stored progress of handlers; what is written
//	handling.go             the states that handlers of an unfinished cycle saw
//	encoding.go, space.go   how progress is stored, and whether there is space for it
//	desired.go, diff.go     the desired state, and differences
//	filter.go, path.go      filters of handlers; paths of fields
//	keys.go                 names of annotations
package cycle
