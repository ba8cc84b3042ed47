package keepwatch

import (
	"fmt"
	"time"
)

// FailureKind classes everything that can go wrong between a source and us by
// what it means, not by where it was noticed. The set is closed; the reflector's
// table has a verdict for each.
type FailureKind uint8

const (
	// Ended: the stream ended cleanly: a server's timeout, its shutdown, GOAWAY.
	Ended FailureKind = iota + 1
	// Idle: nothing arrived within the idle deadline, not even a bookmark; the
	// connection may be half-open.
	Idle
	// Unreachable: refused, reset, unresolvable, timed out, cut in mid-air.
	Unreachable
	// Untrusted: the source's certificate can't be verified: an unknown authority,
	// another host's name, or not valid now.
	Untrusted
	// Throttled: the source is overloaded. It may have said how long to wait
	// (RetryAfter).
	Throttled
	// ServerError: an internal error, unavailable or timed out, without advice.
	ServerError
	// StorageRead: the source could not read an object it has; a delete of a corrupt
	// object may be hidden in it (kubernetes #111387, KEP-3926).
	StorageRead
	// Expired: the revision or the continue token is too old (410; Gone and Expired
	// are one case).
	Expired
	// RevisionTooLarge: the source has not reached the revision yet, or never will
	// because it was restored from a backup.
	RevisionTooLarge
	// Unauthorized: credentials are missing, wrong or outdated (401).
	Unauthorized
	// Forbidden: no permission (403).
	Forbidden
	// Absent: the resource is not served, or not any more (404).
	Absent
	// StreamingListUnsupported: the source refused a streaming list, or did not bring
	// it to its end; paged lists will do.
	StreamingListUnsupported
	// Undecodable: a torn, garbled or oversized frame or page.
	Undecodable
	// ProtocolViolation: the source broke its contract: an unknown event type, a
	// revision that is missing, not a number or going back, news behind a bookmark.
	ProtocolViolation
	// UnknownStatus: an error in the stream that no other kind describes.
	UnknownStatus
	// Rejected: the request itself is wrong (400, 405, 406, 415, 422): a selector the
	// server does not know, for example.
	Rejected
	// StaleReplica: a list answered with a revision below the one asked for.
	StaleReplica
	// Rewound: the source says that a revision below ours is its newest: it went back
	// in time.
	Rewound
	// Broken: an invariant of our own does not hold; nothing can be trusted any more.
	Broken

	endOfKinds // stays the last
)

// LastFailureKind is the greatest kind, for arrays that are indexed by kinds.
const LastFailureKind = endOfKinds - 1

var kindNames = [endOfKinds]string{
	Ended: "ended", Idle: "idle", Unreachable: "unreachable", Untrusted: "untrusted", Throttled: "throttled",
	ServerError: "server error", StorageRead: "storage read error", Expired: "expired",
	RevisionTooLarge: "revision too large", Unauthorized: "unauthorized", Forbidden: "forbidden",
	Absent: "absent", StreamingListUnsupported: "streaming list unsupported",
	Undecodable: "undecodable", ProtocolViolation: "protocol violation",
	UnknownStatus: "unknown status", Rejected: "rejected", StaleReplica: "stale replica",
	Rewound: "rewound", Broken: "broken invariant",
}

// FailureKinds returns every kind, in order.
func FailureKinds() []FailureKind {
	kinds := make([]FailureKind, 0, len(kindNames)-1)
	for k := range kindNames[1:] {
		kinds = append(kinds, FailureKind(k+1))
	}
	return kinds
}

// String is a short name in lower case, fit for a log line or a metric label.
func (k FailureKind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("FailureKind(%d)", uint8(k))
}

// Failure is the one error type of sources and targets.
type Failure struct {
	Kind FailureKind
	// RetryAfter is how long the source asked to wait; 0 when it did not say.
	RetryAfter time.Duration
	// Err is the cause, in words a person can use. Never nil.
	Err error
}

// Failed makes a failure of kind with a message in the manner of fmt.Errorf.
func Failed(kind FailureKind, format string, args ...any) *Failure {
	return &Failure{Kind: kind, Err: fmt.Errorf(format, args...)}
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }
