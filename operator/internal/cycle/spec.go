package cycle

import (
	"cmp"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch/internal/backoff"
)

// Spec is what an operator does with objects of one kind. It does not change.
type Spec struct {
	Keys      Keys
	Finalizer string
	// Status is the field that stores progress; nil stores it in annotations.
	Status   Path
	Handlers []Handler

	extra []Path // fields that count as essence because a handler asks for them
}

// Handler is a function that is called for causes, as far as the decisions go.
type Handler struct {
	// ID names the handler in its progress. Handlers of one id run once for a cause.
	ID     string
	Causes Cause
	// Field limits an update to one that changes it; nil for any.
	Field  Path
	Filter Filter

	OnError OnError
	// Retries is how often it is called at most, 0 for any number.
	Retries int
	// Timeout is how long after the first call it may be called again, 0 for ever.
	Timeout time.Duration
	// Backoff is the wait after an error that names none. Its attempts are the calls.
	Backoff backoff.Exponential
	// Optional: a delete handler that no finalizer is kept for.
	Optional bool
	// Deleting: a resume handler that also joins a deletion.
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
	// A field that is inside of another comes after it, and is there already then.
	slices.SortStableFunc(s.extra, func(a, b Path) int { return cmp.Compare(len(a), len(b)) })
	return s
}

// tracks reports whether any handler wants to know what has changed.
func (s Spec) hasChangeHandlers(v view) bool {
	return slices.ContainsFunc(s.Handlers, func(h Handler) bool {
		return h.Causes.has(Create|Update|Resume) && h.Filter.matches(v)
	})
}

// finalizes reports whether an object has to wait for us.
func (s Spec) needsFinalizer(v view) bool {
	return slices.ContainsFunc(s.Handlers, func(h Handler) bool {
		return h.Causes.has(Delete) && !h.Optional && h.Filter.matches(v)
	})
}

// duty is a handler of a cycle, and what it is called for in it.
type assignment struct {
	index    int // in Spec.Handlers
	slot     string
	purpose  Cause
	record   Record
	known    bool // record was read from the object
	deferred bool // record is newer than the object's: it is from Seen.Recent
}

// duties are the handlers of a cause, one for each id, with their progress.
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

// purpose is what a handler is called for when the cause is given; 0 if it is not.
func (s Spec) purpose(h Handler, cause Cause, seen Seen) Cause {
	switch {
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

// touched reports whether a diff is an update to the handler.
func (h Handler) matchesUpdate(v view, diff []Difference) bool {
	v.diff = diff
	return (h.Field == nil || len(within(diff, h.Field)) > 0) && h.Filter.matchesUpdate(v)
}
