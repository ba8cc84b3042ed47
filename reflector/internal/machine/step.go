package machine

import (
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// Step takes one input and says what to do next. An input that the state can't
// have, like a page while watching, is a mistake of the runner and panics.
func (m Machine) Step(in Input) (Machine, Action) {
	switch in := in.(type) {
	case Started:
		return m.start(in.Revision)
	case Page:
		return m.page(in)
	case PageStored:
		return m.kept()
	case Chunk:
		m.Failure = 0
		return m, Read{}
	case Streamed:
		m.Revision = in.Revision
		m.Synced, m.Followed = true, true
		m.State = Watching{News: true}
		return m.progress(), Read{}
	case Opened:
		m.Synced = true
		return m, Read{}
	case Delivered:
		return m.delivered(in)
	case Probed:
		return m.probed(in.Revision)
	case Unanswered:
		return m.watch()
	case Confirmed:
		return m.proven()
	case Elapsed:
		return m.elapsed()
	case Failed:
		return m.fail(in)
	}
	panic(fmt.Sprintf("machine: unknown input %T", in))
}

func (m Machine) start(held keepwatch.Revision) (Machine, Action) {
	m.Revision = held
	if held > 0 {
		m.State = Probing{Start: true}
		return m, Probe{Within: startProbe}
	}
	return m.list(List{Stream: !m.Paged})
}

// list begins a list.
func (m Machine) list(l List) (Machine, Action) {
	l.Stream = l.Stream && !m.NoStreaming
	m.State = Listing{List: l}
	return m, l
}

// watch opens a watch at the held revision.
func (m Machine) watch() (Machine, Action) {
	m.State = Watching{}
	return m, Watch{From: m.Revision}
}

func (m Machine) delivered(in Delivered) (Machine, Action) {
	news := m.State.(Watching).News || in.Revision > m.Revision
	m.State = Watching{News: news}
	m.Revision, m.Followed = in.Revision, true
	m = m.progress()
	if m.Newest == 0 || m.Revision < m.Newest {
		return m, Read{}
	}
	m.Newest = 0
	if in.Bookmark {
		return m, Read{}
	}
	m.State = Confirming{Open: true}
	return m, ConfirmCurrent{}
}

// probed compares: a revision below the held one is no input, see Judge.
func (m Machine) probed(newest keepwatch.Revision) (Machine, Action) {
	m = m.progress()
	if newest > m.Revision {
		m.Newest = newest
		return m.watch()
	}
	m.State = Confirming{}
	return m, ConfirmCurrent{}
}

func (m Machine) proven() (Machine, Action) {
	if m.State.(Confirming).Open {
		m.State = Watching{News: true}
		return m, Read{}
	}
	return m.watch()
}

// Judge says what is wrong with a page or a newest revision, nil if nothing is.
// What is refused is a failure and must not be stepped with.
func (m Machine) Judge(in Input) *keepwatch.Failure {
	switch in := in.(type) {
	case Page:
		return m.State.(Listing).judge(in)
	case Probed:
		if in.Revision < m.Revision {
			return keepwatch.Failed(keepwatch.Rewound,
				"the source is at revision %d, but it was at %d already", in.Revision, m.Revision)
		}
	}
	return nil
}

func (l Listing) judge(p Page) *keepwatch.Failure {
	switch {
	case l.At > 0 && p.Revision != l.At:
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"a page shows revision %d, the pages before it %d", p.Revision, l.At)
	case l.At == 0 && p.Revision < l.Floor:
		return keepwatch.Failed(keepwatch.StaleReplica,
			"the list shows revision %d, older than %d as asked for", p.Revision, l.Floor)
	}
	return nil
}

func (m Machine) page(p Page) (Machine, Action) {
	l := m.State.(Listing)
	first := l.At == 0
	// A consistent read below what we hold: the source went back in time.
	back := first && p.Revision < m.Revision && l.Reason != keepwatch.GapRewind
	if back {
		l.Reason = keepwatch.GapRewind
	}
	l.At, l.Next = p.Revision, p.Continue
	m.State = l
	keep := StorePage{First: first, Last: p.Continue == "", Reason: l.Reason, Revision: l.At}
	if back {
		return m, Invalidate{Reason: l.Reason, Then: keep}
	}
	return m, keep
}

// kept goes on to the next page, or from the last page to the watch. A page is
// progress when the target has taken it: one that it refuses leads back to the
// list, and would be asked for again and again without a pause.
func (m Machine) kept() (Machine, Action) {
	m = m.progress()
	l := m.State.(Listing)
	if l.Next != "" {
		l.Continue = l.Next
		m.State = l
		return m, l.List
	}
	m.Revision, m.Newest, m.Synced, m.Followed = l.At, 0, true, true
	m, watch := m.watch()
	m.State = Watching{Listed: true}
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
	panic(fmt.Sprintf("machine: nothing waits for %T", then))
}

// progress ends every streak of failures.
func (m Machine) progress() Machine {
	m.Streak, m.Failure = Streak{}, 0
	return m
}
