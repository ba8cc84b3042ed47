package machine

import (
	"cmp"
	"time"

	"github.com/keepwatch/keepwatch"
)

// fail applies the failure table to the state.
func (m Machine) fail(f Failed) (Machine, Action) {
	if l, listing := m.State.(Listing); listing && l.NotOlderThan == 0 && f.Kind == keepwatch.StaleReplica {
		f.Kind = keepwatch.Rewound // the target has a later state than the source's newest one
	}
	rule := Table[f.Kind]
	if rule.Delay == LateSlowBackoff && (!m.Synced || m.Failure != f.Kind) {
		rule.Delay = Backoff
	}
	known := f.Kind == keepwatch.Rewound || f.Kind == keepwatch.Redefined // a watch would show it later, or not at all
	if p, ok := m.State.(Probing); ok && p.Start && !known && rule.Do != End {
		m.RepeatProbe = true
		return m.probeDone() // a watch fails too if the source is unavailable
	}
	if _, comparing := m.State.(Comparing); comparing && rule.Do == Relist {
		m.Failure, m.Retries.Attempts = 0, 0 // no watch is opened: see probed
	}
	switch {
	case rule.Visible:
		m.Failure = f.Kind
	case f.OpenFor >= SteadyWatch:
		m.Failure = 0
	}
	m.RepeatProbe = m.RepeatProbe || m.ProbeAfterOutage && !f.Accepted && unanswered(f.Kind)
	m.Silent = m.Silent || f.Kind == keepwatch.Silent
	m.Breaches = m.breaches(f)
	m.Quiet = m.quiet(f)
	switch {
	case f.Kind == keepwatch.Ended:
		rule, m.Retries = m.ended(rule, f)
	case (f.Kind == keepwatch.Unreachable || f.Kind == keepwatch.Throttled) && !m.endedEarly(f):
		rule.MaxRetries, rule.Then = 0, ""
	}
	if m.currentList().Stream && (f.Accepted || !concernsAllRequests(f.Kind)) {
		m.FailedStreams++
		m.NoStreaming = m.NoStreaming || m.FailedStreams == maxFailedStreams
	}
	wait := m.delay(rule, f)
	verdict := m.verdict(rule, f, wait)
	if m.unadvanced() && f.Accepted {
		m.Quiet = min(m.Quiet+wait.For+wait.Jitter/2, quietLimit)
	}
	var then Action
	var invalidate keepwatch.GapReason
	switch verdict {
	case End:
		m.State = Stopped{Cause: f.Kind}
		return m, Stop{}
	case FallBack:
		m.NoStreaming = true
		then = m.retryAction()
	case Retry:
		then = m.retryAction()
	case Verify:
		then = Probe{}
		if _, listing := m.State.(Listing); listing {
			then = m.retryAction() // an idle list is retried like any failed one
		}
	case Relist:
		list := m.relist(rule, f.Kind)
		if rule.Invalidate && list.Reason != m.currentList().Reason {
			invalidate = list.Reason
		}
		then = list
	}
	m.Retries = m.Retries.after(f, rule, verdict, wait)
	if verdict == Relist && m.currentList().Continue != "" {
		m.Retries.Restarts = min(m.Retries.Restarts+1, m.Retries.Attempts)
	}
	m.State = Waiting{Then: then}
	var next Action = wait
	if wait == (Wait{}) {
		m, next = m.elapsed()
	}
	if invalidate != "" {
		next = Invalidate{Reason: invalidate, Then: next}
	}
	return m, next
}

// unanswered reports whether a request that failed with the kind, before it was accepted, may mean that the source was
// down. A watch that is cut and opened again at once means nothing.
func unanswered(kind keepwatch.FailureKind) bool {
	switch kind {
	case keepwatch.Unreachable, keepwatch.Untrusted, keepwatch.Unauthorized, keepwatch.Throttled,
		keepwatch.ServerError, keepwatch.UnknownStatus:
		return true
	}
	return false
}

// maxFailedStreams is the number of streaming lists after which pages are read. A streaming
// list starts over each time, while a paged list resumes, and a server may end every watch that
// would answer a list.
const maxFailedStreams = 2

// maxRestarts is the number of times that a list in pages starts over before it is read in one
// page, as client-go reads it: a server may expire tokens faster than pages can be read, or
// ignore them.
const maxRestarts = 3

// concernsAllRequests reports whether a streaming list that was not accepted failed because of the
// connection, the credentials or the resource, which a paged list meets, too.
func concernsAllRequests(kind keepwatch.FailureKind) bool {
	switch kind {
	case keepwatch.Unreachable, keepwatch.Untrusted, keepwatch.Unauthorized, keepwatch.Forbidden, keepwatch.Absent:
		return true
	}
	return false
}

// currentList returns the list that is being read, the zero List if none is.
func (m Machine) currentList() List {
	l, _ := m.State.(Listing)
	return l.List
}

// ended returns the rule for the end of a watch or list, and the retries before it. A short
// watch may mean that its revision is too old, so it is opened again after a backoff; so is
// a list, because it costs the server more. A watch that was open for longer shows that its
// first revision is valid, and clears the counts.
func (m Machine) ended(rule Rule, f Failed) (Rule, Retries) {
	w, watching := m.State.(Watching)
	working := watching && (w.Advanced || f.OpenFor >= shortWatch)
	if !working {
		rule.Delay = Backoff
	}
	if working || !watching {
		rule.MaxRetries, rule.Then = 0, ""
	}
	if working {
		return rule, Retries{Attempts: m.Retries.Attempts}
	}
	return rule, m.Retries
}

// endedEarly reports whether the source has accepted a watch and ended it at once. Longer watches that advance nothing
// are in Quiet only: a load balancer may cut each one of a quiet resource, and is asked no more often than one that
// lets them end.
func (m Machine) endedEarly(f Failed) bool {
	_, watching := m.State.(Watching)
	return watching && f.Accepted && f.OpenFor < shortWatch
}

// breaches returns Machine.Breaches after a failure. A server that breaks the contract in each
// watch is listed with growing waits, although each list succeeds.
func (m Machine) breaches(f Failed) uint8 {
	_, watching := m.State.(Watching)
	switch {
	case f.OpenFor >= SteadyWatch:
		return 0
	case watching && f.Kind == keepwatch.ProtocolViolation:
		return min(m.Breaches+1, maxAttempts)
	}
	return m.Breaches
}

// quiet returns Machine.Quiet after a failure, without the wait that follows.
func (m Machine) quiet(f Failed) time.Duration {
	if m.unadvanced() {
		return min(m.Quiet+f.OpenFor, quietLimit)
	}
	return m.Quiet
}

// unadvanced reports whether the state is a watch that has not advanced the target's revision.
func (m Machine) unadvanced() bool {
	w, watching := m.State.(Watching)
	return watching && !w.Advanced
}

// verdict returns the rule's verdict, changed by the startup deadline, by the number of
// retries and by the state.
func (m Machine) verdict(rule Rule, f Failed, wait Wait) Verdict {
	l, listing := m.State.(Listing)
	switch {
	case rule.EndsStartup && !m.Synced && m.StartupDeadline >= 0 && f.Elapsed >= m.StartupDeadline:
		return End
	case f.Kind == keepwatch.Idle && m.Silent:
		return Verify // the watches before it were silent
	case rule.MaxRetries > 0 && m.Retries.ByKind[f.Kind]+1 >= rule.MaxRetries:
		return rule.Then
	case waitsForRevision(rule) && wait.For+wait.Jitter >= m.revisionWaitLeft(f):
		return rule.Then // no time is left for a request after the wait
	case m.Quiet == quietLimit && endsQuietly(f.Kind) && !listing:
		return Verify
	case f.Kind == keepwatch.Rejected && listing && l.Continue != "":
		return Relist // the token was rejected
	}
	return rule.Do
}

// endsQuietly reports whether a watch that fails with the kind may have missed what the source had.
func endsQuietly(kind keepwatch.FailureKind) bool {
	switch kind {
	case keepwatch.Ended, keepwatch.Idle, keepwatch.Unreachable, keepwatch.Throttled:
		return true
	}
	return false
}

// waitsForRevision reports whether the rule waits for a source that is older than the target.
// Its limit is a time, not a number of retries.
func waitsForRevision(rule Rule) bool { return rule.MaxRetries == 0 && rule.Then != "" }

// revisionWaitLeft returns how much longer to wait for a revision that the source has not
// reached.
func (m Machine) revisionWaitLeft(f Failed) time.Duration {
	if m.Retries.RevisionDeadline == 0 {
		return revisionWait
	}
	return max(0, m.Retries.RevisionDeadline-f.Elapsed)
}

// retryAction returns the action that repeats the state's own.
func (m Machine) retryAction() Action {
	switch s := m.State.(type) {
	case Listing:
		if s.Continue == "" {
			s.Revision = 0
		}
		return s.List
	case Probing:
		return Probe{}
	}
	return Watch{From: m.Revision}
}

// relist returns a new list because of kind. If a list failed, the new one replaces it.
func (m Machine) relist(rule Rule, kind keepwatch.FailureKind) List {
	next := List{Cause: kind, Reason: m.gapReason(), NotOlderThan: m.Revision, Stream: m.Revision == 0 && !m.Paged}
	if l, listing := m.State.(Listing); listing {
		next.Cause, next.Reason, next.NotOlderThan = l.Cause, l.Reason, l.NotOlderThan
		next.Whole = l.Whole || l.Continue != "" && m.Retries.Restarts+1 >= maxRestarts
		if kind == keepwatch.Expired && l.Revision == 0 {
			next.NotOlderThan = 0 // the requested revision itself is too old
		}
	}
	if w, watching := m.State.(Watching); watching && w.AfterList && kind == keepwatch.Expired {
		next.NotOlderThan = 0 // the server's lists are older than its watches
	}
	if rule.Consistent {
		next.NotOlderThan = 0
	}
	if kind == keepwatch.Rewound {
		// The source may have passed the target's revision again before the list is read, so
		// the revisions would no longer show the rewind.
		next.Reason = keepwatch.GapRewind
	}
	return next
}

func (m Machine) gapReason() keepwatch.GapReason {
	if m.Received {
		return keepwatch.GapExpired
	}
	return keepwatch.GapDowntime
}

// delay returns the wait of the rule. It is not shorter than what the source asks for.
func (m Machine) delay(rule Rule, f Failed) Wait {
	var w Wait
	asked := f.RetryAfter > 0
	if asked {
		w.For = max(minRetryAfter, min(f.RetryAfter, maxRetryAfter))
	}
	switch {
	case rule.Delay == SlowBackoff, rule.Delay == LateSlowBackoff:
		w.Jitter = slowWaits.Wait(int(m.Retries.Attempts))
	case f.Kind == keepwatch.ProtocolViolation:
		w.Jitter = backoffWaits.Wait(int(max(m.Retries.Attempts, m.Breaches-min(m.Breaches, 1))))
	case rule.Delay != Immediate || asked:
		w.Jitter = backoffWaits.Wait(int(m.Retries.Attempts))
	}
	if waitsForRevision(rule) {
		w.For = min(w.For, m.revisionWaitLeft(f))
		w.Jitter = min(revisionWaits.Wait(int(m.Retries.ByKind[f.Kind])), m.revisionWaitLeft(f)-w.For)
	}
	if left := m.StartupDeadline - f.Elapsed; rule.EndsStartup && !m.Synced && left > 0 {
		w.For = min(w.For, left) // ends at the deadline, not after it
		w.Jitter = min(w.Jitter, left-w.For)
	}
	return w
}

// after returns the retries after one more failure. The counts are cleared when another
// verdict than Retry is applied. Attempts and ByKind are bounded, so that an endless series of
// failures repeats states: no schedule grows after maxAttempts.
func (s Retries) after(f Failed, rule Rule, verdict Verdict, wait Wait) Retries {
	if wait.Jitter > 0 && s.Attempts < maxAttempts {
		s.Attempts++
	}
	switch {
	case verdict != rule.Do, verdict != Retry:
		return Retries{Attempts: s.Attempts, Restarts: s.Restarts}
	case waitsForRevision(rule):
		s.RevisionDeadline = cmp.Or(s.RevisionDeadline, f.Elapsed+revisionWait)
	}
	if rule.Then != "" {
		s.ByKind[f.Kind] = min(s.ByKind[f.Kind]+1, 100)
	}
	return s
}
