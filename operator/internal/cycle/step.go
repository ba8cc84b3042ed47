package cycle

import "time"

// Step is what a cycle asks for next. The set is closed.
type Step interface{ step() }

// Idle: there is nothing to do until the object changes.
type Idle struct {
	// Completed: whatever the object's appearance in the first list asked for is done.
	Completed bool
}

// Sleep: there is nothing to do until then, unless the object changes.
type Sleep struct{ Until time.Time }

// AwaitDaemons: there is nothing to do until the object's daemons have ended.
type AwaitDaemons struct{}

// Write asks to write on the object.
type Write struct {
	Edits Edits
	// Completed: with this, every handler of the cause has succeeded or failed for good.
	Completed bool
}

// Remember asks to keep a record in [Seen.Recent] in place of a write: the object records
// the same call and state already, only with fewer retries. If the process ends, the next
// one continues with the record on the object.
type Defer struct {
	Slot   string
	Record Record
}

// Call asks to call a handler. [Plan.Called] returns the step after the call.
type Call struct {
	Handler Handler
	Index   int // of Handler in Spec.Handlers
	// Purpose is what the handler is called for: the cause, or Resume.
	Purpose Cause
	Retry   int       // how often it was called before
	Started time.Time // when it was, or is to be, called first
}

func (Idle) step()         {}
func (Sleep) step()        {}
func (AwaitDaemons) step() {}
func (Write) step()        {}
func (Call) step()         {}
func (Defer) step()        {}

// Plan is what to do about one state of an object.
type Plan struct {
	Cause Cause
	// Old is the essence that was handled last, nil if none was; New the one of now.
	// Where a handler has seen something else in between, Old has what it saw.
	Old, New map[string]any
	Diff     []Difference
	Step     Step

	spec        Spec
	object      map[string]any
	records     map[string]Record
	handled     map[string]any // the essence that was recorded last, nil if none was
	handling    handling
	assignments []assignment
	lastWritten time.Time
}

// DiffOf is the part of the diff that concerns a handler.
func (p Plan) DiffOf(h Handler) []Difference {
	if h.Field == nil {
		return p.Diff
	}
	return within(p.Diff, h.Field)
}
