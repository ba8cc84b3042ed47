package cycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch/internal/backoff"
)

// Spec is an operator's declaration for objects of one kind. It does not change.
type Spec struct {
	Keys      Keys
	Finalizer string
	// Status is the field that stores progress; nil stores it in annotations.
	Status   Path
	Handlers []Handler

	extra []Path // fields that are part of the desired state because a handler declares them
}

// Handler is a declared handler without its function.
type Handler struct {
	// ID names the handler in its progress. Of handlers with one id, one is called for a cause.
	ID     string
	Causes Cause
	// Field limits updates to those that change the field; nil for any.
	Field  Path
	Filter Filter

	OnError OnError
	// Retries bounds the number of calls; 0 for no limit.
	Retries int
	// Timeout bounds the time since the first call; 0 for no limit.
	Timeout time.Duration
	// Backoff is the wait after an error that names none. Its attempts are the calls.
	Backoff backoff.Exponential
	// Optional: a delete handler that needs no finalizer. It is called while any finalizer keeps the object.
	Optional bool
	// Deleting: a resume handler that is also called with a deletion.
	Deleting bool
}

// New completes a spec.
func New(s Spec) Spec {
	s.Handlers = slices.Clone(s.Handlers)
	for _, h := range s.Handlers {
		s.extra = append(s.extra, h.Filter.paths()...)
		if h.Field != nil {
			s.extra = append(s.extra, h.Field)
		}
	}
	// A field inside another one comes after it, and is already part of the state then.
	slices.SortStableFunc(s.extra, func(a, b Path) int { return cmp.Compare(len(a), len(b)) })
	return s
}

// hasChangeHandlers reports whether any handler applies to changes of the object.
func (s Spec) hasChangeHandlers(v view) bool {
	return slices.ContainsFunc(s.Handlers, func(h Handler) bool {
		return h.Causes.has(Create|Update|Resume) && h.Filter.matches(v)
	})
}

// needsFinalizer reports whether a delete handler needs our finalizer on the object.
func (s Spec) needsFinalizer(v view) bool {
	return slices.ContainsFunc(s.Handlers, func(h Handler) bool {
		return h.Causes.has(Delete) && !h.Optional && h.Filter.matches(v)
	})
}

// needsNoFinalizer reports whether handlers of deletions are declared that need no finalizer of ours: they are called
// while another finalizer keeps the object.
func (s Spec) needsNoFinalizer() bool {
	return slices.ContainsFunc(s.Handlers, Handler.needsNoFinalizer)
}

func (h Handler) needsNoFinalizer() bool {
	return h.Causes.has(Delete) && h.Optional || h.Causes.has(Resume) && h.Deleting
}

// assignment is a handler of a cycle, with its purpose and progress.
type assignment struct {
	index    int // in Spec.Handlers
	slot     string
	purpose  Cause
	record   Record
	known    bool // record was read from the object
	deferred bool // record is newer than the object's: it is from Seen.Deferred
}

// assignments returns the handlers of a cause, one for each id, with their progress.
func (s Spec) assignments(cause Cause, seen Seen, v view, records map[string]Record) []assignment {
	var assigned []assignment
	used := map[string]bool{}
	for i, h := range s.Handlers {
		purpose := s.purpose(h, cause, seen)
		if purpose == 0 || used[h.ID] || !h.applies(purpose, v) {
			continue
		}
		used[h.ID] = true
		d := assignment{index: i, slot: s.slot(h.ID, seen.Object), purpose: purpose}
		if r, ok := records[d.slot]; ok && r.Purpose == purpose.String() && (purpose != Resume || seen.Begun) {
			d.record, d.known = r, true
			if recent := seen.Deferred[d.slot]; recent.continues(r) {
				d.record, d.deferred = recent, true
			}
		}
		assigned = append(assigned, d)
	}
	return assigned
}

// purpose returns what a handler is called for in a cycle of the cause; 0 if it is not called.
func (s Spec) purpose(h Handler, cause Cause, seen Seen) Cause {
	switch {
	case cause == Delete && !s.HasFinalizer(seen.Object) && !h.needsNoFinalizer():
		return 0 // it is done, or a user has removed the finalizer
	case h.Causes.has(cause):
		return cause
	case !h.Causes.has(Resume) || !seen.Listed:
		return 0
	case cause == Update, cause == Delete && h.Deleting:
		return Resume
	}
	return 0
}

func (h Handler) applies(purpose Cause, v view) bool {
	if purpose != Update {
		v.old = nil
		return h.Filter.matches(v)
	}
	return h.matchesUpdate(v, v.diff) && (!v.begun || h.matchesUpdate(v, v.first))
}

// matchesUpdate reports whether the handler is called for a diff.
func (h Handler) matchesUpdate(v view, diff []Difference) bool {
	v.diff = diff
	return (h.Field == nil || len(within(diff, h.Field)) > 0) && h.Filter.matchesUpdate(v)
}
