package machine

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/paging"
)

// Action is what the runner performs next. Its outcome is the next input. The set is
// closed.
type Action interface{ action() }

// List asks for a page. An empty Continue begins a new list, and an unfinished list is
// discarded.
type List struct {
	// Cause is the failure that led to the list, 0 for the first list.
	Cause keepwatch.FailureKind
	// Reason is the reason of the gap that this list causes.
	Reason keepwatch.GapReason
	// NotOlderThan is the lowest revision that the list may show. Zero asks for a consistent
	// read.
	NotOlderThan keepwatch.Revision
	// Stream asks for a streaming list (KEP-3157).
	Stream bool
	// Continue is the token of the page. Revision is the one that the pages before it
	// showed and that this page must show. Invariant: Continue != "" implies Revision > 0.
	Continue string
	Revision keepwatch.Revision
	// Whole asks for one page, because lists in pages have started over too often.
	Whole bool
	// Progress is that of the pages before it.
	Progress paging.Progress
}

// StorePage asks to put the page that was read into the target. The first page begins a
// replacement; the last one commits it.
type StorePage struct {
	First, Last bool
	Reason      keepwatch.GapReason
	Revision    keepwatch.Revision
}

// Watch asks to open a watch of the history after From.
type Watch struct{ From keepwatch.Revision }

// Read asks for the open watch's next batch. After a Chunk it asks for the rest of the
// streaming list.
type Read struct{}

// Probe asks for the source's newest revision. Timeout bounds the request unless it is 0.
type Probe struct{ Timeout time.Duration }

// Compare asks whether the resource has changed after the target's revision up to To. The
// outcome is Unchanged, or a failure of the kind Silent.
type Compare struct{ To keepwatch.Revision }

// ConfirmCurrent asks to report to the target that it is current at To, by an empty batch from
// the target's revision to To.
type ConfirmCurrent struct{ To keepwatch.Revision }

// Wait asks to wait for For and a random part of Jitter.
type Wait struct{ For, Jitter time.Duration }

// Invalidate asks to invalidate the target with Reason and then to perform Then, whose
// outcome is the next input. The runner sends no request in between, so that the target has
// recorded the reason before anything else can fail.
type Invalidate struct {
	Reason keepwatch.GapReason
	Then   Action
}

// Stop asks Run to return the failure that it reported last.
type Stop struct{}

func (List) action()           {}
func (StorePage) action()      {}
func (Watch) action()          {}
func (Read) action()           {}
func (Probe) action()          {}
func (Compare) action()        {}
func (ConfirmCurrent) action() {}
func (Wait) action()           {}
func (Invalidate) action()     {}
func (Stop) action()           {}
