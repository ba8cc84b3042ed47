package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/paging"
)

// page70 is the first page of a list at revision 70.
var page70 = Page{70, paging.Page{Continue: "p2"}}

// at returns a machine in a position of the protocol.
func at(position string) Machine {
	m := Machine{State: Fresh{}}
	resume := []Input{Started{Revision: 50}, Probed{50}, Confirmed{}}
	watch := append(resume, Opened{}, Delivered{Revision: 60})
	relist := slices.Concat(watch, []Input{Failed{Kind: keepwatch.Expired}, Elapsed{}})
	idle := slices.Concat(watch, []Input{Failed{Kind: keepwatch.Idle}, Opened{}})
	steps := map[string][]Input{
		"first list":   {Started{}},
		"start":        {Started{Revision: 50}},
		"opening":      resume,
		"watch":        watch,
		"idle watch":   idle,
		"probe":        append(idle, Failed{Kind: keepwatch.Idle}),
		"compare":      append(slices.Clip(idle), Failed{Kind: keepwatch.Idle}, Probed{70}),
		"relist":       relist,
		"relist page2": append(relist, page70, PageStored{}),
		"consistent":   append(slices.Clip(relist), Failed{Kind: keepwatch.Expired}, Elapsed{}),
		"relisted":     append(relist, Page{Revision: 70}, PageStored{}, Opened{}),
		"no progress":  append(resume, Opened{}, Delivered{Revision: 50, Bookmark: true}),
		"rewound":      append(idle, Failed{Kind: keepwatch.Idle}, Failed{Kind: keepwatch.Rewound}, Elapsed{}),
	}
	for _, in := range steps[position] {
		m, _ = m.Step(in)
	}
	return m
}

// decide shows what a failure leads to: the wait, if any, and the action after it.
func decide(m Machine, f Failed) string {
	m, a := m.Step(f)
	before := ""
	if i, ok := a.(Invalidate); ok {
		a, before = i.Then, fmt.Sprintf("invalidate (%s), ", i.Reason)
	}
	wait, ok := a.(Wait)
	if !ok {
		return before + show(a)
	}
	_, a = m.Step(Elapsed{})
	return before + showWait(wait) + ", " + show(a)
}

// showWait shows a wait: 1s+≤800ms, or only one of the two.
func showWait(w Wait) string {
	var parts []string
	if w.For > 0 {
		parts = append(parts, w.For.String())
	}
	if w.Jitter > 0 {
		parts = append(parts, "≤"+w.Jitter.String())
	}
	return strings.Join(parts, "+")
}

func show(a Action) string {
	switch a := a.(type) {
	case Watch:
		return fmt.Sprintf("watch %d", a.From)
	case List:
		s := "list"
		if a.Stream {
			s = "stream"
		}
		if a.NotOlderThan > 0 {
			s += fmt.Sprintf(" ≥%d", a.NotOlderThan)
		}
		if a.Continue != "" {
			s += " " + a.Continue
		}
		if a.Cause != 0 {
			s += fmt.Sprintf(" (%s: %s)", a.Reason, a.Cause)
		}
		return s
	case Probe:
		return "probe"
	case Compare:
		return fmt.Sprintf("compare %d", a.To)
	case StorePage:
		return "store page"
	case ConfirmCurrent:
		return "confirm current"
	case Stop:
		return "stop"
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", a), "machine."))
}

// TestFailureTable has a line for each row of the table and each position where its verdict
// differs.
func TestFailureTable(t *testing.T) {
	const (
		x = keepwatch.Expired
		u = keepwatch.Unreachable
	)
	asked := 7 * time.Second
	for _, row := range []struct {
		place string
		f     Failed
		want  string
	}{
		{"watch", Failed{Kind: keepwatch.Ended, OpenFor: time.Minute}, "watch 60"},
		{"opening", Failed{Kind: keepwatch.Ended}, "≤800ms, watch 50"},
		{"probe", Failed{Kind: keepwatch.Ended}, "≤800ms, probe"},
		{"first list", Failed{Kind: keepwatch.Ended}, "≤800ms, stream"},
		{"relist page2", Failed{Kind: keepwatch.Ended}, "≤800ms, list ≥60 p2 (expired: expired)"},
		{"no progress", Failed{Kind: keepwatch.Ended}, "≤800ms, watch 50"},
		{"relisted", Failed{Kind: keepwatch.Ended, OpenFor: time.Minute}, "watch 70"},
		{"watch", Failed{Kind: keepwatch.Idle}, "watch 60"},
		{"idle watch", Failed{Kind: keepwatch.Idle}, "probe"},
		{"probe", Failed{Kind: u}, "≤800ms, probe"},
		{"probe", Failed{Kind: keepwatch.Rewound}, "invalidate (rewind), ≤800ms, list (rewind: rewound)"},
		{"watch", Failed{Kind: u}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: u}, "≤800ms, stream"},
		{"relist page2", Failed{Kind: u}, "≤800ms, list ≥60 p2 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.Throttled}, "≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.Throttled, RetryAfter: asked}, "7s+≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.Throttled, RetryAfter: time.Hour}, "5m0s+≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.Throttled, RetryAfter: time.Millisecond}, "1s+≤800ms, watch 60"},
		{"relist page2", Failed{Kind: keepwatch.Throttled, RetryAfter: asked}, "7s+≤800ms, list ≥60 p2 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.StorageRead, RetryAfter: asked},
			"invalidate (expired), 7s+≤800ms, list ≥60 (expired: storage read error)"},
		{"first list", Failed{Kind: keepwatch.StreamingListUnsupported, RetryAfter: asked}, "7s+≤800ms, list"},
		{"watch", Failed{Kind: keepwatch.Untrusted}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Untrusted}, "stop"},
		{"opening", Failed{Kind: keepwatch.Untrusted}, "stop"},
		{"start", Failed{Kind: keepwatch.Untrusted}, "watch 50"},
		{"start", Failed{Kind: u}, "watch 50"},
		{"start", Failed{Kind: keepwatch.Idle}, "watch 50"},
		{"start", Failed{Kind: keepwatch.Throttled, RetryAfter: asked}, "watch 50"},
		{"start", Failed{Kind: keepwatch.Forbidden}, "watch 50"},
		{"start", Failed{Kind: keepwatch.ProtocolViolation}, "watch 50"},
		{"start", Failed{Kind: keepwatch.Rewound}, "invalidate (rewind), ≤800ms, list (rewind: rewound)"},
		{"start", Failed{Kind: keepwatch.Redefined}, "≤800ms, list ≥50 (downtime: redefined)"},
		{"start", Failed{Kind: keepwatch.InvariantViolation}, "stop"},
		{"watch", Failed{Kind: keepwatch.ServerError}, "≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.UnknownStatus}, "≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.StorageRead},
			"invalidate (expired), ≤800ms, list ≥60 (expired: storage read error)"},
		{"watch", Failed{Kind: x}, "≤800ms, list ≥60 (expired: expired)"},
		{"opening", Failed{Kind: x}, "≤800ms, list ≥50 (downtime: expired)"},
		{"relist", Failed{Kind: x}, "≤1.6s, list (expired: expired)"},
		{"relist page2", Failed{Kind: x}, "≤800ms, list ≥60 (expired: expired)"},
		{"relisted", Failed{Kind: x}, "≤800ms, list (expired: expired)"},
		{"relist", Failed{Kind: keepwatch.RevisionTooLarge, RetryAfter: time.Second},
			"1s+≤800ms, list ≥60 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.RevisionTooLarge, RetryAfter: time.Second}, "1s+≤800ms, watch 60"},
		{"relist", Failed{Kind: keepwatch.StaleReplica}, "≤800ms, list ≥60 (expired: expired)"},
		{"consistent", Failed{Kind: keepwatch.StaleReplica}, "invalidate (rewind), ≤3.2s, list (rewind: expired)"},
		{"watch", Failed{Kind: keepwatch.Rewound}, "invalidate (rewind), ≤800ms, list (rewind: rewound)"},
		{"compare", Failed{Kind: keepwatch.Silent}, "≤800ms, list (expired: silent)"},
		{"compare", Failed{Kind: keepwatch.Expired}, "≤800ms, list ≥60 (expired: expired)"},
		{"compare", Failed{Kind: keepwatch.Idle}, "watch 60"},
		{"compare", Failed{Kind: keepwatch.Forbidden}, "≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.Unauthorized}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Unauthorized}, "≤800ms, stream"},
		{"watch", Failed{Kind: keepwatch.Forbidden}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Forbidden}, "stop"},
		{"watch", Failed{Kind: keepwatch.Absent}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Absent}, "stop"},
		{"watch", Failed{Kind: keepwatch.Rejected}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Rejected}, "stop"},
		{"watch", Failed{Kind: keepwatch.Unversioned}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Unversioned}, "stop"},
		{"relist page2", Failed{Kind: keepwatch.Unversioned}, "≤800ms, list ≥60 p2 (expired: expired)"},
		{"relist page2", Failed{Kind: keepwatch.Rejected}, "≤800ms, list ≥60 (expired: expired)"},
		{"first list", Failed{Kind: keepwatch.StreamingListUnsupported}, "list"},
		{"watch", Failed{Kind: keepwatch.Undecodable}, "≤800ms, watch 60"},
		{"relist page2", Failed{Kind: keepwatch.Undecodable}, "≤800ms, list ≥60 p2 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.ProtocolViolation},
			"invalidate (expired), ≤800ms, list (expired: protocol violation)"},
		{"opening", Failed{Kind: keepwatch.ProtocolViolation},
			"invalidate (downtime), ≤800ms, list (downtime: protocol violation)"},
		{"first list", Failed{Kind: keepwatch.StorageRead}, "≤800ms, stream"},
		{"relist", Failed{Kind: keepwatch.StorageRead}, "≤1.6s, list ≥60 (expired: expired)"},
		{"relist page2", Failed{Kind: keepwatch.Rewound}, "invalidate (rewind), ≤800ms, list (rewind: expired)"},
		{"rewound", Failed{Kind: keepwatch.Rewound}, "≤1.6s, list (rewind: rewound)"},
		{"rewound", Failed{Kind: keepwatch.ProtocolViolation}, "≤1.6s, list (rewind: rewound)"},
		{"rewound", Failed{Kind: u}, "≤1.6s, list (rewind: rewound)"},
		{"first list", Failed{Kind: keepwatch.ProtocolViolation}, "≤800ms, stream"},
		{"relist page2", Failed{Kind: keepwatch.ProtocolViolation}, "≤800ms, list (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.Redefined}, "≤800ms, list ≥60 (expired: redefined)"},
		{"watch", Failed{Kind: keepwatch.InvariantViolation}, "stop"},
	} {
		t.Run(fmt.Sprintf("%s/%s", row.place, row.f.Kind), func(t *testing.T) {
			if got := decide(at(row.place), row.f); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestEveryKindHasARule(t *testing.T) {
	for _, kind := range keepwatch.FailureKinds() {
		if Table[kind].Do == "" {
			t.Errorf("no rule for %q", kind)
		}
	}
}

// TestMaxRetries checks that the last failure that a rule allows leads to its Then, and that
// progress clears the count.
func TestMaxRetries(t *testing.T) {
	for kind, limit := range map[keepwatch.FailureKind]int{
		keepwatch.Ended: 5, keepwatch.ServerError: 10, keepwatch.UnknownStatus: 10,
		keepwatch.Undecodable: 3, keepwatch.Rejected: 10,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			m := at("opening")
			m, _ = m.Step(Opened{})
			for range 3 { // progress in between: the limit is never reached
				for range limit - 1 {
					m = failAndReopen(t, m, kind)
				}
				m, _ = m.Step(Delivered{Revision: m.Revision + 1})
				m, _ = m.Step(Failed{Kind: keepwatch.Idle})
				m, _ = m.Step(Opened{})
			}
			for range limit - 1 {
				m = failAndReopen(t, m, kind)
			}
			m, _ = m.Step(Failed{Kind: kind})
			if _, a := m.Step(Elapsed{}); show(a) != fmt.Sprintf("list ≥53 (expired: %s)", kind) {
				t.Errorf("failure %d in a row leads to %s", limit, show(a))
			}
		})
	}
}

// TestResetWatches checks that the source is asked for its newest revision after ten watches that it has
// accepted were ended at once, and never while it refuses connections, nor by the number of longer watches.
func TestResetWatches(t *testing.T) {
	for _, kind := range []keepwatch.FailureKind{keepwatch.Unreachable, keepwatch.Throttled} {
		m := at("opening")
		end := func(f Failed) (a Action) {
			f.Kind = kind
			m, _ = m.Step(f)
			if m, a = m.Step(Elapsed{}); a == (Watch{From: 50}) {
				m, _ = m.Step(Opened{})
			}
			return a
		}
		for range 100 {
			if a := end(Failed{}); a != (Watch{From: 50}) {
				t.Fatalf("a source that refuses watches leads to %s", show(a))
			}
		}
		for range 10 {
			if a := end(Failed{Accepted: true, OpenFor: 2 * time.Second}); a != (Watch{From: 50}) {
				t.Fatalf("a watch that was cut leads to %s", show(a))
			}
		}
		for range 9 {
			if a := end(Failed{Accepted: true, OpenFor: time.Millisecond}); a != (Watch{From: 50}) {
				t.Fatalf("a watch that was ended at once leads to %s", show(a))
			}
			end(Failed{})
		}
		if a := end(Failed{Accepted: true}); a != (Probe{}) {
			t.Errorf("ten watches that were ended at once lead to %s", show(a))
		}
		for range 100 {
			if a := end(Failed{}); a != (Probe{}) {
				t.Fatalf("a probe that fails leads to %s", show(a))
			}
		}
	}
}

// TestCutWatches checks that watches that live for more than a second, and that the source resets or ends with an
// error, are quiet also in the waits between them: together they were open for quietLimit after an hour only.
func TestCutWatches(t *testing.T) {
	for _, f := range []Failed{
		{Kind: keepwatch.Unreachable, Accepted: true, OpenFor: time.Second},
		{Kind: keepwatch.Unreachable, Accepted: true, OpenFor: 5 * time.Second},
		{Kind: keepwatch.Throttled, Accepted: true, OpenFor: time.Second, RetryAfter: 30 * time.Second},
	} {
		m, a := at("opening"), Action(Watch{From: 50})
		var passed time.Duration
		watches := 0
		for a == (Watch{From: 50}) && watches < 1000 {
			for range 10 {
				m, _ = m.Step(Failed{Kind: f.Kind}) // is not part of the time
				m, _ = m.Step(Elapsed{})
			}
			m, _ = m.Step(Opened{})
			m, a = m.Step(f)
			passed += f.OpenFor + a.(Wait).For + a.(Wait).Jitter/2
			m, a = m.Step(Elapsed{})
			watches++
		}
		if a != (Probe{}) || passed < quietLimit || passed > quietLimit+2*time.Minute {
			t.Errorf("%+v: after %d watches and %v: %s", f, watches, passed, show(a))
		}
	}
}

// TestProbeLeavesFailure checks that a probe after watches that were reset clears neither the failure
// nor the backoff of the next watch, and that one after steady watches clears both.
func TestProbeLeavesFailure(t *testing.T) {
	m := at("opening")
	reset := func(f Failed) {
		m, _ = m.Step(Opened{})
		m, _ = m.Step(f)
		m, _ = m.Step(Elapsed{})
	}
	resets := func() {
		for range 10 {
			reset(Failed{Kind: keepwatch.Unreachable, Accepted: true})
		}
	}
	resets()
	for _, inputs := range [][]Input{{Probed{50}, Confirmed{}}, {Probed{70}, Unchanged{}, Confirmed{}}} {
		for _, in := range inputs {
			m, _ = m.Step(in)
		}
		if m.Failure != keepwatch.Unreachable || m.Retries != (Retries{Attempts: maxAttempts}) {
			t.Errorf("%v leave %v, %+v", inputs, m.Failure, m.Retries)
		}
		resets() // the count of resets began again
	}
	probing := m
	m, _ = m.Step(Probed{80})
	if got := decide(m, Failed{Kind: keepwatch.Silent}); got != "≤800ms, list (downtime: silent)" {
		t.Errorf("a difference leads to %s", got)
	}
	m, _ = probing.Step(Probed{70})
	m, _ = m.Step(Confirmed{})
	for range 2 {
		m, _ = m.Step(Opened{})
		m, _ = m.Step(Failed{Kind: keepwatch.Idle, Accepted: true, OpenFor: SteadyWatch})
	}
	if m, _ = m.Step(Probed{70}); m.Failure != 0 || m.Retries != (Retries{}) {
		t.Errorf("after steady watches, a probe leaves %v, %+v", m.Failure, m.Retries)
	}
}

// TestMaxRetriesCountsAcrossOtherFailures checks that failures of other kinds do not clear
// the count: they do not make an undecodable frame decodable. But a watch that stays open for
// a minute does: there is no such frame.
func TestMaxRetriesCountsAcrossOtherFailures(t *testing.T) {
	for between, want := range map[Failed]string{
		{Kind: keepwatch.Unreachable}:                   "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.Throttled}:                     "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.ServerError}:                   "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.Idle}:                          "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.Ended}:                         "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.Ended, OpenFor: time.Minute}:   "watch 60",
		{Kind: keepwatch.RevisionTooLarge, Elapsed: 10}: "list ≥60 (expired: undecodable)",
	} {
		m := failAndReopen(t, at("watch"), keepwatch.Undecodable)
		m = failAndReopen(t, m, keepwatch.Undecodable)
		m, a := m.Step(between)
		if _, waits := a.(Wait); waits {
			m, _ = m.Step(Elapsed{})
		}
		m, _ = m.Step(Opened{})
		m, _ = m.Step(Failed{Kind: keepwatch.Undecodable})
		if _, a = m.Step(Elapsed{}); show(a) != want {
			t.Errorf("with %v (lived %v) in between: %s, want %s", between.Kind, between.OpenFor, show(a), want)
		}
	}
}

// TestReplayed checks that a deletion at an old revision is not taken for a watch that begins from scratch.
func TestReplayed(t *testing.T) {
	for change, want := range map[keepwatch.ChangeType]string{
		keepwatch.Added: "does not resume watches", keepwatch.Deleted: "deletes objects at the revision of their last state",
	} {
		c := keepwatch.Change{Type: change, Revision: 50, Object: thing{}}
		f := Replayed(keepwatch.Batch{Changes: []keepwatch.Change{c}}, 50)
		if f == nil || !strings.Contains(f.Error(), want) {
			t.Errorf("%v: %v", change, f)
		}
		if c.Revision = 51; Replayed(keepwatch.Batch{Changes: []keepwatch.Change{c}}, 50) != nil {
			t.Errorf("%v at 51 is refused", change)
		}
	}
}

type thing struct{ keepwatch.Object }

func (thing) Key() keepwatch.Key { return keepwatch.Key{Name: "a"} }

// TestRevisionWaitIsBounded checks the bound of the wait for a revision when every other
// request fails in another way.
func TestRevisionWaitIsBounded(t *testing.T) {
	m := at("relist")
	for now := time.Duration(0); ; now += time.Second {
		if now > time.Minute {
			t.Fatal("the wait is longer than a minute")
		}
		var a Action
		for _, kind := range []keepwatch.FailureKind{keepwatch.Unreachable, keepwatch.RevisionTooLarge} {
			m, a = m.Step(Failed{Kind: kind, Elapsed: now})
			if _, waits := a.(Wait); waits {
				m, a = m.Step(Elapsed{})
			}
		}
		if a.(List).NotOlderThan == 0 {
			return
		}
	}
}

// failAndReopen fails once and expects a new watch.
func failAndReopen(t *testing.T, m Machine, kind keepwatch.FailureKind) Machine {
	t.Helper()
	m, _ = m.Step(Failed{Kind: kind})
	m, a := m.Step(Elapsed{})
	if _, ok := a.(Watch); !ok {
		t.Fatalf("%s leads to %s, not to a watch", kind, show(a))
	}
	m, _ = m.Step(Opened{})
	return m
}

// TestRevisionWait checks that the wait for a revision that the source has not reached ends
// after 30 s with a consistent list, for any duration of the requests and any failures
// before.
func TestRevisionWait(t *testing.T) {
	for _, row := range []struct {
		asked, request time.Duration
		jitter         int // in percent
		failed         int // before
		tries          int // at the same revision
		listed         time.Duration
	}{
		{asked: time.Second, jitter: 100, tries: 6, listed: 30 * time.Second},
		{asked: time.Second, jitter: 100, failed: 9, tries: 6, listed: 30 * time.Second},
		{asked: time.Second, jitter: 50, tries: 8, listed: 27625 * time.Millisecond},
		{asked: time.Second, jitter: 0, tries: 23, listed: 23 * time.Second},
		{asked: time.Second, jitter: 100, request: 3 * time.Second, tries: 5, listed: 30 * time.Second},
		{asked: time.Second, jitter: 0, request: 3 * time.Second, tries: 7, listed: 25 * time.Second},
		{jitter: 100, tries: 7, listed: 30 * time.Second},
		{asked: 10 * time.Second, tries: 3, jitter: 100, listed: 30 * time.Second},
		{asked: time.Hour, jitter: 100, tries: 1, listed: 30 * time.Second},
	} {
		m := at("relist")
		for range row.failed {
			m, _ = m.Step(Failed{Kind: keepwatch.Unreachable})
			m, _ = m.Step(Elapsed{})
		}
		const began = time.Hour
		now, tries := began, 0
		for {
			var a Action
			m, a = m.Step(Failed{Kind: keepwatch.RevisionTooLarge, RetryAfter: row.asked, Elapsed: now})
			tries++
			if w, ok := a.(Wait); ok {
				now += w.For + w.Jitter*time.Duration(row.jitter)/100
				m, a = m.Step(Elapsed{})
			}
			if a.(List).NotOlderThan == 0 {
				break
			}
			now += row.request
			if tries > 99 {
				t.Fatalf("%+v waits without a bound", row)
			}
		}
		if now -= began; now != row.listed || tries != row.tries {
			t.Errorf("%+v lists after %v and %d tries", row, now, tries)
		}
	}
}

// TestRewind checks that a consistent list below the target's revision is a rewind.
func TestRewind(t *testing.T) {
	m := at("relist")
	m.Retries = Retries{RevisionDeadline: time.Second}
	m, _ = m.Step(Failed{Kind: keepwatch.RevisionTooLarge, Elapsed: time.Minute})
	_, a := m.Step(Page{Revision: 20})
	want := Invalidate{keepwatch.GapRewind, StorePage{First: true, Last: true, Reason: keepwatch.GapRewind, Revision: 20}}
	if a != want {
		t.Errorf("a consistent list below the target's revision gives %+v, want %+v", a, want)
	}
	if _, a = at("rewound").Step(Page{Revision: 20}); a != want.Then {
		t.Errorf("a list after a known rewind gives %+v, want %+v", a, want.Then)
	}
}

func TestBackoff(t *testing.T) {
	for kind, most := range map[keepwatch.FailureKind]time.Duration{
		keepwatch.Unreachable: 30 * time.Second, keepwatch.Unauthorized: 30 * time.Second,
		keepwatch.Forbidden: 5 * time.Minute, keepwatch.Absent: 5 * time.Minute, keepwatch.Unversioned: 5 * time.Minute,
	} {
		m, want := at("watch"), 800*time.Millisecond
		openFor := time.Hour // time is no progress
		if endsQuietly(kind) {
			openFor = 0 // see TestQuietWatches
		}
		for range 1000 { // without a limit
			var a Action
			m, a = m.Step(Failed{Kind: kind, OpenFor: openFor})
			if got := a.(Wait); got != (Wait{Jitter: want}) {
				t.Fatalf("%v: waits %v, want %v", kind, got, want)
			}
			want = min(2*want, most)
			if m, a = m.Step(Elapsed{}); a != (Watch{From: 60}) {
				t.Fatalf("%v leads to %s", kind, show(a))
			}
			m, _ = m.Step(Opened{}) // nor is an open connection
		}
		for what, inputs := range map[string][]Input{
			"an event":   {Delivered{Revision: 61}},
			"a bookmark": {Delivered{Revision: 60, Bookmark: true}},
			"a page":     {Failed{Kind: keepwatch.Expired}, Elapsed{}, page70, PageStored{}},
		} {
			m := m
			for _, in := range inputs {
				m, _ = m.Step(in)
			}
			if _, a := m.Step(Failed{Kind: kind}); a != (Wait{Jitter: firstWait}) {
				t.Errorf("%v: after %s the wait is %v", kind, what, a)
			}
		}
	}
}

// TestBackoffBeforeTheFirstList checks that a type or a right that is not there yet is noticed soon.
func TestBackoffBeforeTheFirstList(t *testing.T) {
	for kind, most := range map[keepwatch.FailureKind]time.Duration{
		keepwatch.Forbidden: 30 * time.Second, keepwatch.Absent: 30 * time.Second,
		keepwatch.Rejected: 5 * time.Minute, keepwatch.Unversioned: 5 * time.Minute,
	} {
		m, longest := Machine{State: Fresh{}, Config: Config{StartupDeadline: -1}}, time.Duration(0)
		m, _ = m.Step(Started{})
		for range 20 {
			var a Action
			m, a = m.Step(Failed{Kind: kind})
			longest = max(longest, a.(Wait).Jitter)
			m, _ = m.Step(Elapsed{})
		}
		if longest != most {
			t.Errorf("%v: waits up to %v, want %v", kind, longest, most)
		}
	}
}

// TestOneDenialAfterAnOutage checks that a denial is repeated soon: a server that starts denies what it will allow. One
// that repeats it is asked seldom.
func TestOneDenialAfterAnOutage(t *testing.T) {
	for _, kind := range []keepwatch.FailureKind{keepwatch.Forbidden, keepwatch.Absent} {
		m := at("watch")
		for range 20 {
			m, _ = m.Step(Failed{Kind: keepwatch.Unreachable})
			m, _ = m.Step(Elapsed{})
		}
		for i, want := range []time.Duration{30 * time.Second, 5 * time.Minute, 5 * time.Minute} {
			var a Action
			if m, a = m.Step(Failed{Kind: kind}); a != (Wait{Jitter: want}) {
				t.Errorf("%v: denial %d is followed by a wait of %v, want %v", kind, i+1, a, want)
			}
			m, _ = m.Step(Elapsed{})
		}
	}
}

// TestRejectedPageIsNoProgress checks that the backoff grows while the target rejects every
// page.
func TestRejectedPageIsNoProgress(t *testing.T) {
	m := at("relist")
	last := time.Duration(0)
	for range 5 {
		var a Action
		m, _ = m.Step(Page{Revision: 70})
		m, a = m.Step(Failed{Kind: keepwatch.ProtocolViolation})
		if w := a.(Wait).Jitter; w <= last {
			t.Fatalf("waits %v after %v", w, last)
		} else {
			last = w
		}
		m, _ = m.Step(Elapsed{})
	}
}

func TestStartupDeadline(t *testing.T) {
	m := Machine{State: Fresh{}, Config: Config{StartupDeadline: 10 * time.Second}}
	m, _ = m.Step(Started{})
	m, a := m.Step(Failed{Kind: keepwatch.Forbidden, Elapsed: 9900 * time.Millisecond})
	if w := a.(Wait).Jitter; w != 100*time.Millisecond {
		t.Errorf("waits %v with 100 ms left", w)
	}
	m, _ = m.Step(Elapsed{})
	if _, a := m.Step(Failed{Kind: keepwatch.Forbidden, Elapsed: 10 * time.Second}); show(a) != "stop" {
		t.Errorf("at the deadline: %s", show(a))
	}
	m.StartupDeadline = -1
	if _, a := m.Step(Failed{Kind: keepwatch.Forbidden, Elapsed: time.Hour}); show(a) == "stop" {
		t.Error("a negative deadline stops")
	}
}

func TestStreamingIsTriedOnce(t *testing.T) {
	m := at("first list")
	m, a := m.Step(Failed{Kind: keepwatch.StreamingListUnsupported})
	if show(a) != "list" {
		t.Fatalf("falls back to %s", show(a))
	}
	m, _ = m.Step(Failed{Kind: keepwatch.ProtocolViolation})
	if _, a = m.Step(Elapsed{}); show(a) != "list" {
		t.Errorf("starts over with %s", show(a))
	}
}

// TestStreamingListsThatFail checks that pages are read after two streaming lists have failed,
// whatever the failure, unless the lists were not accepted and a paged list would meet it, too.
func TestStreamingListsThatFail(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		for _, kind := range keepwatch.FailureKinds() {
			streamingListFails(t, kind, accepted)
		}
	}
}

func streamingListFails(t *testing.T, kind keepwatch.FailureKind, accepted bool) {
	m := at("first list")
	var a Action
	for range 2 {
		m, _ = m.Step(Chunk{})
		m, a = m.Step(Failed{Kind: kind, Accepted: accepted, Elapsed: time.Minute})
		switch a.(type) {
		case Wait, Invalidate:
			m, a = m.Step(Elapsed{})
		}
		if kind == keepwatch.StreamingListUnsupported {
			break
		}
	}
	want := "list"
	switch kind {
	case keepwatch.Unreachable, keepwatch.Unauthorized:
		if !accepted {
			want = "stream"
		}
	case keepwatch.Forbidden, keepwatch.Absent, keepwatch.Untrusted, keepwatch.Rejected, keepwatch.Unversioned,
		keepwatch.InvariantViolation:
		return // the run has ended
	}
	if got := show(a); got != want {
		t.Errorf("%s twice (accepted: %v) leads to %s, want %s", kind, accepted, got, want)
	}
}

func TestPagesShowOneRevision(t *testing.T) {
	m := at("relist page2")
	if f := m.Validate(Page{Revision: 71}); f == nil || f.Kind != keepwatch.ProtocolViolation {
		t.Errorf("page 2 at another revision: %v", f)
	}
	if f := at("relist").Validate(Page{Revision: 59}); f == nil || f.Kind != keepwatch.StaleReplica {
		t.Errorf("list below its floor: %v", f)
	}
	m, a := m.Step(Page{Revision: 70})
	if want := (StorePage{Last: true, Reason: keepwatch.GapExpired, Revision: 70}); a != want {
		t.Errorf("last page: %+v", a)
	}
	if m, a = m.Step(PageStored{}); show(a) != "watch 70" || m.Revision != 70 {
		t.Errorf("after the last page: %s", show(a))
	}
}

// TestListsThatMakeNoProgress checks that a page that repeats another one is a breach, that its
// list starts over, and that the pages in between do not shorten the backoff.
func TestListsThatMakeNoProgress(t *testing.T) {
	m := at("relist")
	last := time.Duration(0)
	for range 5 {
		var a Action
		m, _ = m.Step(page70)
		m, _ = m.Step(PageStored{})
		f := m.Validate(page70)
		if f == nil || f.Kind != keepwatch.ProtocolViolation {
			t.Fatalf("page 2 has the token of page 1: %v", f)
		}
		m, a = m.Step(Failed{Kind: f.Kind})
		if v, ok := a.(Invalidate); ok {
			a = v.Then
		}
		if w := a.(Wait).Jitter; w <= last {
			t.Fatalf("waits %v after %v", w, last)
		} else {
			last = w
		}
		if m, a = m.Step(Elapsed{}); a.(List).Continue != "" || a.(List).Progress != (paging.Progress{}) {
			t.Fatalf("starts over with %+v", a)
		}
	}
	if l := m.State.(Listing); !l.Whole {
		t.Errorf("the list is still read in pages: %+v", l)
	}
	m, _ = m.Step(Page{Revision: 70})
	m, _ = m.Step(PageStored{})
	if _, a := m.Step(Failed{Kind: keepwatch.Unreachable}); a != (Wait{Jitter: firstWait}) {
		t.Errorf("a committed list leaves a wait of %v", a)
	}
	m, _ = m.Step(Failed{Kind: keepwatch.Expired})
	if _, a := m.Step(Elapsed{}); a.(List).Whole {
		t.Errorf("the next list is %+v", a)
	}
}

// TestProgressClearsFailure checks that progress clears the visible failure, and so does a
// steady watch, but not a watch that was only opened.
func TestProgressClearsFailure(t *testing.T) {
	cut := Failed{Kind: keepwatch.Unreachable, OpenFor: time.Millisecond}
	for name, c := range map[string]struct {
		then []Input
		want keepwatch.FailureKind
	}{
		"an open watch": {[]Input{Elapsed{}, Opened{}}, keepwatch.Unreachable},
		"a watch that ends at once": {[]Input{Elapsed{}, Opened{}, Failed{Kind: keepwatch.Ended, OpenFor: time.Second}},
			keepwatch.Unreachable},
		"a steady watch": {[]Input{Elapsed{}, Opened{}, Failed{Kind: keepwatch.Ended, OpenFor: SteadyWatch}}, 0},
		"a steady watch that fails": {[]Input{Elapsed{}, Opened{}, Failed{Kind: keepwatch.ServerError, OpenFor: SteadyWatch}},
			keepwatch.ServerError},
		"an idle watch": {[]Input{Elapsed{}, Opened{}, Failed{Kind: keepwatch.Idle, OpenFor: time.Minute}}, 0},
		"a bookmark":    {[]Input{Elapsed{}, Opened{}, Delivered{Revision: 60, Bookmark: true}}, 0},
		"an event":      {[]Input{Elapsed{}, Opened{}, Delivered{Revision: 61}}, 0},
	} {
		m, _ := at("watch").Step(cut)
		for _, in := range c.then {
			m, _ = m.Step(in)
		}
		if m.Failure != c.want {
			t.Errorf("%s: the failure is %v, want %v", name, m.Failure, c.want)
		}
	}
}
