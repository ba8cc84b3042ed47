package machine

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// Action is what the runner has to do next; its outcome is the next input. The
// set is closed.
type Action interface{ action() }

// List asks for a page: of a new list when Continue is empty, which makes an
// unfinished one void.
type List struct {
	// Why is the failure that led here; 0 for the first list.
	Why keepwatch.FailureKind
	// Reason is what a gap is called that comes of this list.
	Reason keepwatch.GapReason
	// Floor is the least revision the list may show; 0 asks for a consistent read.
	Floor keepwatch.Revision
	// Stream: through a watch, if the source can.
	Stream bool
	// Continue is the token of the page to read, and At the revision that the pages
	// before it showed and this one must show. Invariant: Continue != "" implies At > 0.
	Continue string
	At       keepwatch.Revision
}

// Keep asks to put the page in hand into the target: as the first of a
// replacement, and with a commit if it is the last.
type StorePage struct {
	First, Last bool
	Reason      keepwatch.GapReason
	Revision    keepwatch.Revision
}

// Watch asks to open the history after From.
type Watch struct{ From keepwatch.Revision }

// Read asks for the open watch's next batch. It also follows Chunk, where it
// means: go on with the list.
type Read struct{}

// Probe asks for the source's newest revision: where Within is not 0, only for so
// long.
type Probe struct{ Within time.Duration }

// Prove asks to tell the target that the source has nothing newer than what it
// holds: an empty batch from the held revision to itself.
type ConfirmCurrent struct{}

// Wait asks to do nothing for a while: For, and a random part of Jitter.
type Wait struct{ For, Jitter time.Duration }

// Void asks to tell the target that what it holds is void, and why, and then to do
// Then, whose outcome is the next input. Nothing is asked of the source in between:
// whatever happens later, the target knows.
type Invalidate struct {
	Reason keepwatch.GapReason
	Then   Action
}

// Stop asks Run to return the failure it has just reported.
type Stop struct{}

func (List) action()           {}
func (StorePage) action()      {}
func (Watch) action()          {}
func (Read) action()           {}
func (Probe) action()          {}
func (ConfirmCurrent) action() {}
func (Wait) action()           {}
func (Invalidate) action()     {}
func (Stop) action()           {}
