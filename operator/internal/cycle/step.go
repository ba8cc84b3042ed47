package cycle

import "time"

// Step is the next action for an object. The set is closed.
type Step interface{ step() }

// Idle: nothing is to do until the object changes.
type Idle struct {
	// Completed: the cycle that the first list began is complete.
	Completed bool
}

// Sleep: nothing is to do before Until unless the object changes.
type Sleep struct{ Until time.Time }

// AwaitTasks: nothing is to do until a timer or daemon of the object has ended.
type AwaitTasks struct{}

// Refuse: a handler is due and cannot be called. The error says why.
type Refuse struct{ Err error }

// Write requests a write to the object.
type Write struct {
	Edits Edits
	// Completed: every handler of the cause has succeeded or failed permanently.
	Completed bool
}

// Defer requests that the record is stored in [Seen.Deferred] and not written yet: the object
// has a record of the same cycle and state, with fewer retries. If the process ends, the
// next one continues with the record on the object.
type Defer struct {
	Slot   string
	Record Record
}

// Call requests a call of a handler. [Plan.Called] returns the step after the call.
type Call struct {
	Handler Handler
	Index   int // of Handler in Spec.Handlers
	// Purpose is the cause, or Resume.
	Purpose Cause
	Retry   int       // the number of earlier calls
	Started time.Time // when the first call was due
}

func (Idle) step()       {}
func (Sleep) step()      {}
func (AwaitTasks) step() {}
func (Refuse) step()     {}
func (Write) step()      {}
func (Call) step()       {}
func (Defer) step()      {}

// Plan is the decision about one state of an object.
type Plan struct {
	Cause Cause
	// Old is the desired state that was handled last, nil if there is none; New is the
	// present one. Where a handler saw another value in between, Old has that value.
	Old, New map[string]any
	Diff     []Difference
	Step     Step

	spec        Spec
	object      map[string]any
	records     map[string]Record
	handled     map[string]any // the desired state that is stored as handled, nil if none is
	handling    handling
	assignments []assignment
	lastWritten time.Time
}

// DiffOf returns the part of the diff that a handler receives.
func (p Plan) DiffOf(h Handler) []Difference {
	if h.Field == nil {
		return p.Diff
	}
	return within(p.Diff, h.Field)
}
