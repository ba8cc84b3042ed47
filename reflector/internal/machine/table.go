package machine

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
)

// Verdict is what to do about a failure. The values are closed.
type Verdict string

const (
	// Retry repeats the step that failed: a watch resumes at the held revision, a
	// list reads the same page again.
	Retry Verdict = "resume"
	// Relist lists again and emits the difference. A failing list starts over.
	Relist Verdict = "relist"
	// Verify asks for the source's newest revision before it watches again.
	Verify Verdict = "verify"
	// FallBack lists in pages from now on.
	FallBack Verdict = "list in pages"
	// End gives up with the failure as the cause.
	End Verdict = "stop"
)

// Pace is how long to wait before. Where the source asks for a wait of its own,
// that comes first, within minTold and maxTold: nobody comes earlier than told,
// nor all at the same moment.
type Pace uint8

const (
	AtOnce  Pace = iota // no wait, but for ends of lists and of watches that were over in no time (see ended)
	Backoff             // a random wait below one of backoffWaits
	Slowly              // a random wait below one of slowWaits
)

const (
	minTold = 1 * time.Second
	maxTold = 5 * time.Minute
	// startProbe bounds how long a watch waits for the question before it: a server
	// waits for 3 s at most until its cache is fresh.
	startProbe = 5 * time.Second
	// maxAhead bounds how long a revision is waited for that the source has not
	// reached, requests and all; by then the source is asked for whatever it has.
	maxAhead = 30 * time.Second
	// shortWatch: a watch that ends sooner, without an event, may be the way a
	// server says "too old".
	shortWatch = 1 * time.Second
	// SteadyWatch: a watch that has been open for so long is no trouble any more, though
	// nothing may have come of it. What a server holds back for a watch, or ends it for,
	// shows sooner; and a quiet resource may never have an event, nor its server bookmarks.
	SteadyWatch = 10 * time.Second
)

const firstWait = 800 * time.Millisecond

var (
	backoffWaits = backoff.Exponential{First: firstWait, Max: 30 * time.Second}
	slowWaits    = backoff.Exponential{First: firstWait, Max: 5 * time.Minute}
	// aheadWaits keeps the tries for a revision that the source has not reached so close
	// together that the last is near the end of maxAhead.
	aheadWaits = backoff.Exponential{First: firstWait, Max: maxAhead / 4}
)

// Rule is one row of the failure table.
type Rule struct {
	Do   Verdict
	Pace Pace
	// Patience is how often Do is tried without progress before Then, whatever else
	// fails in between; 0 is for ever, or with a Then for as long as maxAhead.
	MaxRetries uint8
	Then       Verdict
	// Consistent: a relist asks for the newest state, not for one as new as ours,
	// since ours may be what is wrong.
	Consistent bool
	// Void: what is held can't be gone on from, and the source may not say so again. The
	// target is told at once, in case that the list does not succeed in this run.
	Invalidate bool
	// AtStartup: before anything has succeeded it ends the run after the startup
	// deadline.
	AtStartup bool
	// Visible: it shows as the reflector's state, for as long as Machine.Trouble says.
	Visible bool
}

// Table has the verdict for every kind of failure.
var Table = [...]Rule{
	// Watches end all the time, by timeout and shutdown; that is no reason to list.
	// But some servers end a watch from a revision they no longer have.
	keepwatch.Ended: {Do: Retry, Pace: AtOnce, MaxRetries: 5, Then: Relist},
	// Silence is a broken connection, or a source that was restored from a backup and
	// lets us wait for a revision that is far ahead of it (kubernetes #107457).
	keepwatch.Idle: {Do: Retry, Pace: AtOnce, MaxRetries: 2, Then: Verify},

	keepwatch.Unreachable: {Do: Retry, Pace: Backoff, Visible: true},
	keepwatch.Throttled:   {Do: Retry, Pace: Backoff, Visible: true},

	// A certificate that can't be verified is a mistake in the configuration, unless
	// it was right before: certificates are renewed, not always in time.
	keepwatch.Untrusted: {Do: Retry, Pace: Backoff, AtStartup: true, Visible: true},

	// client-go relists on each of these; twenty informers doing so are what keeps an
	// API server from coming back.
	keepwatch.ServerError:   {Do: Retry, Pace: Backoff, MaxRetries: 10, Then: Relist, Visible: true},
	keepwatch.UnknownStatus: {Do: Retry, Pace: Backoff, MaxRetries: 10, Then: Relist, Visible: true},

	// An object that can't be read can be deleted all the same, and its delete event
	// fails just so (kubernetes #123072): only a list shows it.
	keepwatch.StorageRead: {Do: Relist, Pace: Backoff, Invalidate: true, Visible: true},

	keepwatch.Expired: {Do: Relist, Pace: Backoff},

	// Both mean that the source is behind us. It catches up, or it was restored from
	// a backup and never will (kubernetes #107457).
	keepwatch.RevisionTooLarge: {Do: Retry, Pace: Backoff, Then: Relist, Consistent: true, Visible: true},
	keepwatch.StaleReplica:     {Do: Retry, Pace: Backoff, Then: Relist, Consistent: true, Visible: true},
	keepwatch.Rewound:          {Do: Relist, Pace: Backoff, Consistent: true, Invalidate: true, Visible: true},

	keepwatch.Unauthorized: {Do: Retry, Pace: Backoff, Visible: true},
	keepwatch.Forbidden:    {Do: Retry, Pace: Slowly, AtStartup: true, Visible: true},
	keepwatch.Absent:       {Do: Retry, Pace: Slowly, AtStartup: true, Visible: true},
	keepwatch.Rejected:     {Do: Retry, Pace: Slowly, MaxRetries: 10, Then: Relist, AtStartup: true, Visible: true},

	keepwatch.StreamingListUnsupported: {Do: FallBack, Pace: AtOnce},

	// Twice may be a bad line; the third time at one place it is the place.
	keepwatch.Undecodable:       {Do: Retry, Pace: Backoff, MaxRetries: 3, Then: Relist, Visible: true},
	keepwatch.ProtocolViolation: {Do: Relist, Pace: Backoff, Consistent: true, Invalidate: true, Visible: true},

	keepwatch.InvariantViolation: {Do: End},
}

// A kind behind the last one with a rule does not compile.
var _ [len(Table) - int(keepwatch.LastFailureKind) - 1]struct{}
