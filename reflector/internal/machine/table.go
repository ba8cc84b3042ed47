package machine

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
)

// Verdict is the table's answer to a failure. The values are closed. The reflector reports
// what follows from it as a reflector.Decision.
type Verdict string

const (
	// Retry repeats the action that failed: a watch resumes at the target's revision, a
	// list reads the same page again.
	Retry Verdict = "retry"
	// Relist lists and delivers the difference. A list that failed starts over.
	Relist Verdict = "relist"
	// Verify asks for the source's newest revision before it watches again.
	Verify Verdict = "verify"
	// FallBack lists in pages from now on.
	FallBack Verdict = "fall back"
	// End ends the run with the failure as its cause.
	End Verdict = "end"
)

// Delay is how long to wait before the next action. If the source asks for a wait
// (Retry-After), that wait is added, within minRetryAfter and maxRetryAfter: no client
// returns earlier than asked, and not all return at the same moment.
type Delay uint8

const (
	Immediate   Delay = iota // no wait, except after the end of a list or of a short watch (see ended)
	Backoff                  // a random wait below one of backoffWaits
	SlowBackoff              // a random wait below one of slowWaits
	// LateSlowBackoff is SlowBackoff once the failure is repeated after the first list or watch of the run, and Backoff
	// before: then what is missing is often being created, and a server that starts denies what it will allow.
	LateSlowBackoff
)

const (
	minRetryAfter = 1 * time.Second
	maxRetryAfter = 5 * time.Minute
	// startProbeTimeout bounds the probe before the first watch: a server waits for 3 s at
	// most until its cache is fresh.
	startProbeTimeout = 5 * time.Second
	// revisionWait bounds the wait for a revision that the source has not reached, including
	// the requests. After it, a consistent read asks for the newest state instead.
	revisionWait = 30 * time.Second
	// shortWatch: some servers end a watch from a revision that is too old sooner than this,
	// without an event, instead of reporting that it has expired.
	shortWatch = 1 * time.Second
	// SteadyWatch is how long a watch must stay open to clear the visible failure without
	// having delivered anything. A server that delays or ends a watch does so sooner; and a
	// quiet resource may never have an event, nor its server bookmarks.
	SteadyWatch = 10 * time.Second
	// quietLimit is how long watches may be open, and waits between them last, and advance nothing, until the
	// source is asked for its newest revision. API servers send a bookmark with a newer revision each minute, if
	// anything is written to their storage.
	quietLimit = 5 * time.Minute
)

const firstWait = 800 * time.Millisecond

// maxAttempts bounds the counts that determine a backoff: no schedule grows after it.
const maxAttempts = 10

var (
	backoffWaits = backoff.Exponential{First: firstWait, Max: 30 * time.Second}
	slowWaits    = backoff.Exponential{First: firstWait, Max: 5 * time.Minute}
	// revisionWaits keeps the requests for a revision that the source has not reached so
	// close together that the last one is near the end of revisionWait.
	revisionWaits = backoff.Exponential{First: firstWait, Max: revisionWait / 4}
)

// Rule is one row of the failure table.
type Rule struct {
	Do    Verdict
	Delay Delay
	// MaxRetries is the number of failures of the kind without progress after which Then
	// replaces Do, whatever else fails in between. Zero means no limit, or with a Then the
	// time revisionWait.
	MaxRetries uint8
	Then       Verdict
	// Consistent: a relist asks for the newest state, not for one at least as new as the
	// target's, because the target's revision may be the one that is wrong.
	Consistent bool
	// Invalidate: no watch can continue from the target's state, and the source may not
	// report that again. The target is invalidated before the list, because the list may not
	// succeed in this run.
	Invalidate bool
	// EndsStartup: it ends the run after the startup deadline if nothing has succeeded yet.
	EndsStartup bool
	// Visible: it is the reflector's state as long as Machine.Failure.
	Visible bool
}

// Table has the verdict for every kind of failure.
var Table = [...]Rule{
	// Servers end watches regularly, by timeout and shutdown; that is no reason to list.
	// But some servers end a watch from a revision that they no longer have.
	keepwatch.Ended: {Do: Retry, Delay: Immediate, MaxRetries: 5, Then: Relist},
	// An idle watch is a broken connection, a watch of a source that was restored from a
	// backup and waits for a revision far ahead of it (kubernetes #107457), or one that is
	// silent although the resource changes (kubernetes #97294).
	keepwatch.Idle: {Do: Retry, Delay: Immediate, MaxRetries: 2, Then: Verify},

	// A server may reset each watch that it accepts from one revision, because it cannot send an event, or end
	// it with an error that says when to come back. Only those watches count (see endedEarly): while the source
	// does not answer, or refuses watches, there is nothing to ask.
	keepwatch.Unreachable: {Do: Retry, Delay: Backoff, MaxRetries: 10, Then: Verify, Visible: true},
	keepwatch.Throttled:   {Do: Retry, Delay: Backoff, MaxRetries: 10, Then: Verify, Visible: true},

	// A certificate that can't be verified is an error in the configuration, unless it was
	// valid before: certificates are renewed, not always in time.
	keepwatch.Untrusted: {Do: Retry, Delay: Backoff, EndsStartup: true, Visible: true},

	// client-go relists on each of these; the relists of twenty informers keep an API server
	// from recovering.
	keepwatch.ServerError:   {Do: Retry, Delay: Backoff, MaxRetries: 10, Then: Relist, Visible: true},
	keepwatch.UnknownStatus: {Do: Retry, Delay: Backoff, MaxRetries: 10, Then: Relist, Visible: true},

	// An object that can't be read can still be deleted, and its delete event fails in the
	// same way (kubernetes #123072): only a list shows the deletion.
	keepwatch.StorageRead: {Do: Relist, Delay: Backoff, Invalidate: true, Visible: true},

	keepwatch.Expired: {Do: Relist, Delay: Backoff},

	// Each further watch may be silent, too. A list that may be as old as the target's state would
	// come from the same cache as the watch.
	keepwatch.Silent: {Do: Relist, Delay: Backoff, Consistent: true},

	// The source reports it at a random time after the change.
	keepwatch.Redefined: {Do: Relist, Delay: Backoff},

	// Both mean that the source is older than the target. It catches up, or it was restored from
	// a backup and does not (kubernetes #107457).
	keepwatch.RevisionTooLarge: {Do: Retry, Delay: Backoff, Then: Relist, Consistent: true, Visible: true},
	keepwatch.StaleReplica:     {Do: Retry, Delay: Backoff, Then: Relist, Consistent: true, Visible: true},
	keepwatch.Rewound:          {Do: Relist, Delay: Backoff, Consistent: true, Invalidate: true, Visible: true},

	keepwatch.Unauthorized: {Do: Retry, Delay: Backoff, Visible: true},
	keepwatch.Forbidden:    {Do: Retry, Delay: LateSlowBackoff, EndsStartup: true, Visible: true},
	keepwatch.Absent:       {Do: Retry, Delay: LateSlowBackoff, EndsStartup: true, Visible: true},
	keepwatch.Rejected: {Do: Retry, Delay: SlowBackoff, MaxRetries: 10, Then: Relist, EndsStartup: true,
		Visible: true},

	// Some aggregated APIs have no revisions. A server that had them before has broken its
	// contract instead.
	keepwatch.Unversioned: {Do: Retry, Delay: SlowBackoff, EndsStartup: true, Visible: true},

	keepwatch.StreamingListUnsupported: {Do: FallBack, Delay: Immediate},

	// Two failures may be the connection's; a third one at the same revision is the data's.
	keepwatch.Undecodable:       {Do: Retry, Delay: Backoff, MaxRetries: 3, Then: Relist, Visible: true},
	keepwatch.ProtocolViolation: {Do: Relist, Delay: Backoff, Consistent: true, Invalidate: true, Visible: true},

	keepwatch.InvariantViolation: {Do: End},
}

// A kind above the last one that has a rule does not compile.
var _ [len(Table) - int(keepwatch.LastFailureKind) - 1]struct{}
