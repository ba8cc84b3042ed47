package machine

import (
	"cmp"
	"time"

	"github.com/keepwatch/keepwatch"
)

// fail applies the failure table to the state.
func (m Machine) fail(f Failed) (Machine, Action) {
	rule := Table[f.Kind]
	if p, ok := m.State.(Probing); ok && p.Start && f.Kind != keepwatch.Rewound && rule.Do != End {
		return m.watch() // which has failures of its own, if it is more than the question
	}
	switch {
	case rule.Visible:
		m.Failure = f.Kind
	case f.Lived >= SteadyWatch:
		m.Failure = 0
	}
	if f.Kind == keepwatch.Ended {
		rule, m.Streak = m.ended(rule, f)
	}
	wait := m.wait(rule, f)
	verdict := m.verdict(rule, f, wait)
	var then Action
	var void keepwatch.GapReason
	switch verdict {
	case End:
		m.State = Stopped{Cause: f.Kind}
		return m, Stop{}
	case FallBack:
		m.NoStreaming = true
		then = m.again()
	case Retry:
		then = m.again()
	case Verify:
		then = Probe{}
		if _, listing := m.State.(Listing); listing {
			then = m.again() // a silent list is read again, like any other
		}
	case Relist:
		list := m.relist(rule, f.Kind)
		if rule.Invalidate && list.Reason != m.listing().Reason {
			void = list.Reason
		}
		then = list
	}
	m.Streak = m.Streak.after(f, rule, verdict, wait)
	m.State = Waiting{Then: then}
	var next Action = wait
	if wait == (Wait{}) {
		m, next = m.elapsed()
	}
	if void != "" {
		next = Invalidate{Reason: void, Then: next}
	}
	return m, next
}

// listing is the list that is being read, none if none is.
func (m Machine) listing() List {
	l, _ := m.State.(Listing)
	return l.List
}

// ended is the rule for an end, and the streak that it belongs to: a watch that was
// over in no time may be the way a server says "too old", and is not opened again
// at once; neither is a list, which costs the server more. One that was open for
// long shows that there is nothing wrong with where it began.
func (m Machine) ended(rule Rule, f Failed) (Rule, Streak) {
	w, watching := m.State.(Watching)
	lived := watching && (w.News || f.Lived >= shortWatch)
	if !lived {
		rule.Pace = Backoff
	}
	if lived || !watching {
		rule.MaxRetries, rule.Then = 0, ""
	}
	if lived {
		return rule, Streak{Attempts: m.Streak.Attempts}
	}
	return rule, m.Streak
}

// verdict is the rule's, bent by the deadline, by patience and by the state.
func (m Machine) verdict(rule Rule, f Failed, wait Wait) Verdict {
	l, listing := m.State.(Listing)
	switch {
	case rule.AtStartup && !m.Synced && m.StartupDeadline >= 0 && f.Elapsed >= m.StartupDeadline:
		return End
	case rule.MaxRetries > 0 && m.Streak.Failed[f.Kind]+1 >= rule.MaxRetries:
		return rule.Then
	case behind(rule) && wait.For+wait.Jitter >= m.ahead(f):
		return rule.Then // by when it is over, there is no time for another try
	case f.Kind == keepwatch.Rejected && listing && l.Continue != "":
		return Relist // the token is what is refused
	}
	return rule.Do
}

// behind reports whether the rule is to wait for a source that is behind us: its
// patience is a time.
func behind(rule Rule) bool { return rule.MaxRetries == 0 && rule.Then != "" }

// ahead is how much longer a revision is waited for that the source has not reached.
func (m Machine) ahead(f Failed) time.Duration {
	if m.Streak.Until == 0 {
		return maxAhead
	}
	return max(0, m.Streak.Until-f.Elapsed)
}

// again is the action that the state stands for.
func (m Machine) again() Action {
	switch s := m.State.(type) {
	case Listing:
		if s.Continue == "" {
			s.At = 0
		}
		return s.List
	case Probing:
		return Probe{}
	}
	return Watch{From: m.Revision}
}

// relist is a new list: because of kind, or in place of the list that failed.
func (m Machine) relist(rule Rule, kind keepwatch.FailureKind) List {
	next := List{Why: kind, Reason: m.gapReason(), Floor: m.Revision, Stream: m.Revision == 0 && !m.Paged}
	if l, listing := m.State.(Listing); listing {
		next.Why, next.Reason, next.Floor = l.Why, l.Reason, l.Floor
		if kind == keepwatch.Expired && l.At == 0 {
			next.Floor = 0 // the floor itself is too old
		}
	}
	if w, watching := m.State.(Watching); watching && w.Listed && kind == keepwatch.Expired {
		next.Floor = 0 // who lists is behind who watches
	}
	if rule.Consistent {
		next.Floor = 0
	}
	if kind == keepwatch.Rewound {
		// By the time of the list the source may have overtaken us again: the numbers
		// will not show any more what is known now.
		next.Reason = keepwatch.GapRewind
	}
	return next
}

func (m Machine) gapReason() keepwatch.GapReason {
	if m.Followed {
		return keepwatch.GapExpired
	}
	return keepwatch.GapDowntime
}

// wait is the rule's pace in figures. What the source asks for is the least.
func (m Machine) wait(rule Rule, f Failed) Wait {
	var w Wait
	told := f.RetryAfter > 0
	if told {
		w.For = max(minTold, min(f.RetryAfter, maxTold))
	}
	switch {
	case rule.Pace == Slowly:
		w.Jitter = slowWaits.Wait(int(m.Streak.Attempts))
	case rule.Pace == Backoff || told:
		w.Jitter = backoffWaits.Wait(int(m.Streak.Attempts))
	}
	if behind(rule) {
		w.For = min(w.For, m.ahead(f))
		w.Jitter = min(aheadWaits.Wait(int(m.Streak.Failed[f.Kind])), m.ahead(f)-w.For)
	}
	if left := m.StartupDeadline - f.Elapsed; rule.AtStartup && !m.Synced && left > 0 {
		w.For = min(w.For, left) // so that the deadline is met, not overslept
		w.Jitter = min(w.Jitter, left-w.For)
	}
	return w
}

// after is the streak one failure later. What is counted for a rule is counted until
// its patience ends, or something else is tried. Attempts and Failed are bounded, so that
// an endless streak repeats states: no schedule grows after ten attempts.
func (s Streak) after(f Failed, rule Rule, verdict Verdict, wait Wait) Streak {
	if wait.Jitter > 0 && s.Attempts < 10 {
		s.Attempts++
	}
	switch {
	case verdict != rule.Do, verdict != Retry:
		return Streak{Attempts: s.Attempts}
	case behind(rule):
		s.Until = cmp.Or(s.Until, f.Elapsed+maxAhead)
	}
	if rule.Then != "" {
		s.Failed[f.Kind] = min(s.Failed[f.Kind]+1, 100)
	}
	return s
}
