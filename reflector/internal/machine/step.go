package machine

import (
	"fmt"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/paging"
)

// Step applies one input and returns the next machine and action. It panics on an input
// that the state does not allow, like a page while watching: that is a bug of the runner.
func (m Machine) Step(in Input) (Machine, Action) {
	switch in := in.(type) {
	case Started:
		return m.start(in.Revision)
	case Page:
		return m.page(in)
	case PageStored:
		return m.pageStored()
	case Chunk:
		m.Failure = 0
		return m, Read{}
	case Streamed:
		m.Revision = in.Revision
		m.Synced, m.Received, m.RepeatProbe, m.Silent, m.Quiet = true, true, false, false, 0
		m.State = Watching{Advanced: true}
		return m.progressed(), Read{}
	case Opened:
		return m.opened()
	case Delivered:
		return m.delivered(in)
	case Probed:
		return m.probed(in.Revision)
	case ProbeTimedOut:
		m.RepeatProbe = m.ProbeAfterOutage // otherwise another one would delay the watch again
		return m.probeDone()
	case Unchanged:
		m.State = Confirming{To: m.Newest}
		return m, ConfirmCurrent{To: m.Newest}
	case Confirmed:
		return m.confirmed()
	case Elapsed:
		return m.elapsed()
	case Failed:
		return m.fail(in)
	}
	panic(fmt.Sprintf("machine: unknown input %T", in))
}

func (m Machine) start(revision keepwatch.Revision) (Machine, Action) {
	m.Revision = revision
	if revision > 0 {
		m.State = Probing{Start: true}
		return m, Probe{Timeout: startProbeTimeout}
	}
	return m.list(List{Stream: !m.Paged})
}

// list begins or continues a list.
func (m Machine) list(l List) (Machine, Action) {
	l.Stream = l.Stream && !m.NoStreaming
	m.State = Listing{List: l}
	return m, l
}

// watch opens a watch at the target's revision.
func (m Machine) watch() (Machine, Action) {
	m.State = Watching{}
	return m, Watch{From: m.Revision}
}

// opened reads the watch, after a probe if the one at the start failed. The source sends its
// events meanwhile, and the probe has a timeout.
func (m Machine) opened() (Machine, Action) {
	m.Synced = true
	if m.RepeatProbe {
		m.State = Probing{Start: true, WatchOpen: true}
		return m, Probe{Timeout: startProbeTimeout}
	}
	return m, Read{}
}

// probeDone reads the open watch, or opens one.
func (m Machine) probeDone() (Machine, Action) {
	if m.State.(Probing).WatchOpen {
		m.State = Watching{}
		return m, Read{}
	}
	return m.watch()
}

func (m Machine) delivered(in Delivered) (Machine, Action) {
	advanced := in.Revision > m.Revision
	if advanced {
		m.Silent, m.Quiet = false, 0
	}
	m.State = Watching{Advanced: advanced || m.State.(Watching).Advanced}
	m.Revision, m.Received = in.Revision, true
	m = m.progressed()
	if in.Bookmark {
		m.RepeatProbe = false
	}
	if m.Newest == 0 || m.Revision < m.Newest {
		return m, Read{}
	}
	m.Newest = 0
	if in.Bookmark {
		return m, Read{}
	}
	m.State = Confirming{WatchOpen: true, To: m.Revision}
	return m, ConfirmCurrent{To: m.Revision}
}

// probed compares the source's newest revision with the target's. It is not below:
// Validate refuses that.
func (m Machine) probed(newest keepwatch.Revision) (Machine, Action) {
	p := m.State.(Probing)
	failure, retries := m.Failure, m.Retries
	m = m.progressed()
	switch repeated := p.WatchOpen || !p.Start; {
	case p.WatchOpen && newest > m.Revision:
		m.Failure, m.Retries = failure, retries // the watch has to show what is newer: it may be silent, or be reset by it
	case repeated && failure != 0:
		// No watch has worked since. Otherwise a source that answers, and resets each watch, would seem to work, and its
		// watches would be opened again after the shortest waits.
		m.Failure, m.Retries.Attempts = failure, retries.Attempts
	}
	m.RepeatProbe = false
	switch {
	case newest == m.Revision:
		m.State = Confirming{WatchOpen: p.WatchOpen, To: newest}
		return m, ConfirmCurrent{To: newest}
	case p.Start:
		m.Newest = newest
		return m.probeDone()
	}
	m.Newest = newest
	m.State = Comparing{}
	return m, Compare{To: newest}
}

func (m Machine) confirmed() (Machine, Action) {
	c := m.State.(Confirming)
	m.Quiet = 0
	if m.Revision = c.To; m.Newest <= m.Revision {
		m.Newest = 0
	}
	if c.WatchOpen {
		m.State = Watching{Advanced: true}
		return m, Read{}
	}
	return m.watch()
}

// Validate returns a failure if a page or a newest revision is invalid in this state. The
// runner must report that failure instead of the input.
func (m Machine) Validate(in Input) *keepwatch.Failure {
	switch in := in.(type) {
	case Page:
		return m.State.(Listing).validate(in)
	case Probed:
		if in.Revision < m.Revision {
			return keepwatch.Failed(keepwatch.Rewound,
				"the source is at revision %d, but it was at %d before", in.Revision, m.Revision)
		}
	}
	return nil
}

// Replayed returns a failure if a batch of a watch has a change at or below the revision that the
// watch began at. The runner must report it instead of applying the batch: a server that begins
// each watch from scratch sends what exists, and not what was deleted meanwhile (porch #1101).
func Replayed(batch keepwatch.Batch, from keepwatch.Revision) *keepwatch.Failure {
	for _, c := range batch.Changes {
		switch {
		case c.Revision > from:
		case c.Type == keepwatch.Deleted:
			return keepwatch.Failed(keepwatch.ProtocolViolation, "a watch from revision %d delivered the deletion of %v at %d: "+
				"the server deletes objects at the revision of their last state", from, c.Object.Key(), c.Revision)
		default:
			return keepwatch.Failed(keepwatch.ProtocolViolation,
				"the server does not resume watches: one from revision %d delivered %s of %v at %d", from, c.Type, c.Object.Key(),
				c.Revision)
		}
	}
	return nil
}

func (l Listing) validate(p Page) *keepwatch.Failure {
	switch {
	case l.Revision > 0 && p.Revision != l.Revision:
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"a page shows revision %d, the pages before it %d", p.Revision, l.Revision)
	case l.Revision == 0 && p.Revision < l.NotOlderThan:
		return keepwatch.Failed(keepwatch.StaleReplica,
			"the list shows revision %d, but %d or newer was requested", p.Revision, l.NotOlderThan)
	}
	if _, err := l.Progress.After(p.Page); err != nil {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "%w", err)
	}
	return nil
}

func (m Machine) page(p Page) (Machine, Action) {
	l := m.State.(Listing)
	first := l.Revision == 0
	// A consistent read below the target's revision: the source went back in time.
	rewound := first && p.Revision < m.Revision && l.Reason != keepwatch.GapRewind
	if rewound {
		l.Reason = keepwatch.GapRewind
	}
	l.Revision, l.Read = p.Revision, p.Page
	m.State = l
	store := StorePage{First: first, Last: p.Continue == "", Reason: l.Reason, Revision: l.Revision}
	if rewound {
		return m, Invalidate{Reason: l.Reason, Then: store}
	}
	return m, store
}

// pageStored asks for the next page, or for the watch after the last page. A page is
// progress only after the target has accepted it. If reading it were progress, a page that
// the target rejects would be requested again and again without a backoff.
func (m Machine) pageStored() (Machine, Action) {
	restarts := m.Retries.Restarts
	m = m.progressed()
	l := m.State.(Listing)
	if l.Read.Continue != "" {
		m.Retries.Attempts, m.Retries.Restarts = restarts, restarts
		l.Progress, _ = l.Progress.After(l.Read) // valid: see Validate
		l.Continue, l.Read = l.Read.Continue, paging.Page{}
		m.State = l
		return m, l.List
	}
	m.Revision, m.Newest, m.Quiet, m.Synced, m.Received, m.RepeatProbe = l.Revision, 0, 0, true, true, false
	m, watch := m.watch()
	m.State = Watching{AfterList: true}
	return m, watch
}

func (m Machine) elapsed() (Machine, Action) {
	then := m.State.(Waiting).Then
	switch a := then.(type) {
	case Watch:
		return m.watch()
	case List:
		return m.list(a)
	case Probe:
		m.State = Probing{}
		return m, a
	}
	panic(fmt.Sprintf("machine: cannot wait for %T", then))
}

// progressed clears the retries and the visible failure.
func (m Machine) progressed() Machine {
	m.Retries, m.FailedStreams, m.Failure = Retries{}, 0, 0
	return m
}
