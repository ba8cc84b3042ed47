package keepwatch

import (
	"fmt"
	"time"
)

// FailureKind classifies every error between a source and its target by its meaning,
// not by where it occurred. The set is closed; the reflector's table has a verdict for
// each kind.
type FailureKind uint8

const (
	// Ended: the stream ended cleanly: a server's timeout, its shutdown, GOAWAY.
	Ended FailureKind = iota + 1
	// Idle: nothing arrived within the idle deadline, not even a bookmark; the
	// connection may be half-open.
	Idle
	// Unreachable: refused, reset, unresolvable, timed out, or broken in the middle of a
	// response.
	Unreachable
	// Untrusted: the source's certificate can't be verified: an unknown authority,
	// another host's name, or not valid now.
	Untrusted
	// Throttled: the source is overloaded. Failure.RetryAfter is the wait that it asked
	// for, if any.
	Throttled
	// ServerError: an internal error, unavailable or timed out, without a Retry-After.
	ServerError
	// StorageRead: the source could not read an object it has; a delete of a corrupt
	// object may be hidden in it (kubernetes #111387, KEP-3926).
	StorageRead
	// Expired: the revision or the continue token is too old (410; Gone and Expired
	// are one case).
	Expired
	// RevisionTooLarge: the source has not reached the revision yet, or never will,
	// because it was restored from a backup.
	RevisionTooLarge
	// Unauthorized: credentials are missing, wrong or outdated (401).
	Unauthorized
	// Forbidden: no permission (403).
	Forbidden
	// Absent: the resource is not served, or no longer (404).
	Absent
	// StreamingListUnsupported: the source refused a streaming list or ended one early;
	// paged lists replace it.
	StreamingListUnsupported
	// Undecodable: a torn, garbled or oversized frame or page.
	Undecodable
	// ProtocolViolation: the source broke its contract: an unknown event type, a
	// revision that is missing, not a number or going back, an event at or below a
	// bookmark's revision or the one that the watch began at (porch #1101).
	ProtocolViolation
	// UnknownStatus: an error in the stream that no other kind describes.
	UnknownStatus
	// Rejected: the request itself is wrong (400, 405, 406, 415, 422): a selector the
	// server does not know, for example.
	Rejected
	// Silent: the resource has changed, and watches from before the change stayed open without
	// delivering it (kubernetes #97294, #117008; a load balancer that buffers).
	Silent
	// Redefined: the definition of the resource, or the version of the server, has changed: objects can
	// have another content at equal revisions, and only a list shows it (kubernetes #74105, #123074).
	Redefined
	// StaleReplica: a list answered with a revision below the one asked for.
	StaleReplica
	// Rewound: the source's newest revision is below the target's: the source went back
	// in time.
	Rewound
	// Unversioned: the source has no revisions, so that its changes have no order: its lists
	// or its objects have no resourceVersion.
	Unversioned
	// InvariantViolation: one of Keepwatch's own invariants does not hold, so that no
	// result can be trusted any more.
	InvariantViolation

	endOfKinds // stays the last
)

// LastFailureKind is the greatest kind, the bound of arrays indexed by kind.
const LastFailureKind = endOfKinds - 1

var kindNames = [endOfKinds]string{
	Ended: "ended", Idle: "idle", Unreachable: "unreachable", Untrusted: "untrusted", Throttled: "throttled",
	ServerError: "server error", StorageRead: "storage read error", Expired: "expired",
	RevisionTooLarge: "revision too large", Unauthorized: "unauthorized", Forbidden: "forbidden",
	Absent: "absent", StreamingListUnsupported: "streaming list unsupported",
	Undecodable: "undecodable", ProtocolViolation: "protocol violation",
	UnknownStatus: "unknown status", Rejected: "rejected", Silent: "silent", Redefined: "redefined",
	StaleReplica: "stale replica",
	Rewound:      "rewound", Unversioned: "unversioned", InvariantViolation: "invariant violation",
}

// FailureKinds returns every kind, in order.
func FailureKinds() []FailureKind {
	kinds := make([]FailureKind, 0, len(kindNames)-1)
	for k := range kindNames[1:] {
		kinds = append(kinds, FailureKind(k+1))
	}
	return kinds
}

// String returns a short name in lower case, fit for a log line or a metric label.
func (k FailureKind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("FailureKind(%d)", uint8(k))
}

// Failure is the error type of sources and targets.
type Failure struct {
	Kind FailureKind
	// RetryAfter is the wait that the source asked for, 0 if none.
	RetryAfter time.Duration
	// Accepted: the source had accepted the streaming list that failed, so that a list in pages may
	// succeed.
	Accepted bool
	// Err is the cause, never nil. Its text says what a user can do.
	Err error
}

// Failed returns a failure of kind whose cause is fmt.Errorf(format, args...).
func Failed(kind FailureKind, format string, args ...any) *Failure {
	return &Failure{Kind: kind, Err: fmt.Errorf(format, args...)}
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }
