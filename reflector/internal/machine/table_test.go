package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
)

// at returns a machine in one of the places a failure can meet it.
func at(place string) Machine {
	m := Machine{State: Fresh{}}
	resume := []Input{Started{Revision: 50}, Probed{50}, Confirmed{}}
	watch := append(resume, Opened{}, Delivered{Revision: 60})
	relist := slices.Concat(watch, []Input{Failed{Kind: keepwatch.Expired}, Elapsed{}})
	silent := slices.Concat(watch, []Input{Failed{Kind: keepwatch.Idle}, Opened{}})
	steps := map[string][]Input{
		"first list":   {Started{}},
		"start":        {Started{Revision: 50}},
		"opening":      resume,
		"watch":        watch,
		"silent watch": silent,
		"probe":        append(silent, Failed{Kind: keepwatch.Idle}),
		"relist":       relist,
		"relist page2": append(relist, Page{70, "p2"}, PageStored{}),
		"relisted":     append(relist, Page{Revision: 70}, PageStored{}, Opened{}),
		"nothing new":  append(resume, Opened{}, Delivered{Revision: 50, Bookmark: true}),
		"rewound":      append(silent, Failed{Kind: keepwatch.Idle}, Failed{Kind: keepwatch.Rewound}, Elapsed{}),
	}
	for _, in := range steps[place] {
		m, _ = m.Step(in)
	}
	return m
}

// after shows what a failure led to: the wait, if any, and what follows it.
func after(m Machine, f Failed) string {
	m, a := m.Step(f)
	said := ""
	if void, ok := a.(Invalidate); ok {
		a, said = void.Then, fmt.Sprintf("void (%s), ", void.Reason)
	}
	wait, ok := a.(Wait)
	if !ok {
		return said + show(a)
	}
	_, a = m.Step(Elapsed{})
	return said + pause(wait) + ", " + show(a)
}

// pause shows a wait: 1s+≤800ms, or only one of the two.
func pause(w Wait) string {
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
		if a.Floor > 0 {
			s += fmt.Sprintf(" ≥%d", a.Floor)
		}
		if a.Continue != "" {
			s += " " + a.Continue
		}
		if a.Why != 0 {
			s += fmt.Sprintf(" (%s: %s)", a.Reason, a.Why)
		}
		return s
	case Probe:
		return "probe"
	case Stop:
		return "stop"
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", a), "machine."))
}

// TestFailureTable has a line for each row of the table and each place where its
// verdict differs.
func TestFailureTable(t *testing.T) {
	const (
		x = keepwatch.Expired
		u = keepwatch.Unreachable
	)
	told := 7 * time.Second
	for _, row := range []struct {
		place string
		f     Failed
		want  string
	}{
		{"watch", Failed{Kind: keepwatch.Ended, Lived: time.Minute}, "watch 60"},
		{"opening", Failed{Kind: keepwatch.Ended}, "≤800ms, watch 50"},
		{"probe", Failed{Kind: keepwatch.Ended}, "≤800ms, probe"},
		{"first list", Failed{Kind: keepwatch.Ended}, "≤800ms, stream"},
		{"relist page2", Failed{Kind: keepwatch.Ended}, "≤800ms, list ≥60 p2 (expired: expired)"},
		{"nothing new", Failed{Kind: keepwatch.Ended}, "≤800ms, watch 50"},
		{"relisted", Failed{Kind: keepwatch.Ended, Lived: time.Minute}, "watch 70"},
		{"watch", Failed{Kind: keepwatch.Idle}, "watch 60"},
		{"silent watch", Failed{Kind: keepwatch.Idle}, "probe"},
		{"probe", Failed{Kind: u}, "≤800ms, probe"},
		{"probe", Failed{Kind: keepwatch.Rewound}, "void (rewind), ≤800ms, list (rewind: rewound)"},
		{"watch", Failed{Kind: u}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: u}, "≤800ms, stream"},
		{"relist page2", Failed{Kind: u}, "≤800ms, list ≥60 p2 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.Throttled}, "≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.Throttled, RetryAfter: told}, "7s+≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.Throttled, RetryAfter: time.Hour}, "5m0s+≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.Throttled, RetryAfter: time.Millisecond}, "1s+≤800ms, watch 60"},
		{"relist page2", Failed{Kind: keepwatch.Throttled, RetryAfter: told}, "7s+≤800ms, list ≥60 p2 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.StorageRead, RetryAfter: told}, "void (expired), 7s+≤800ms, list ≥60 (expired: storage read error)"},
		{"first list", Failed{Kind: keepwatch.StreamingListUnsupported, RetryAfter: told}, "7s+≤800ms, list"},
		{"watch", Failed{Kind: keepwatch.Untrusted}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Untrusted}, "stop"},
		{"opening", Failed{Kind: keepwatch.Untrusted}, "stop"},
		{"start", Failed{Kind: keepwatch.Untrusted}, "watch 50"},
		{"start", Failed{Kind: u}, "watch 50"},
		{"start", Failed{Kind: keepwatch.Idle}, "watch 50"},
		{"start", Failed{Kind: keepwatch.Throttled, RetryAfter: told}, "watch 50"},
		{"start", Failed{Kind: keepwatch.Forbidden}, "watch 50"},
		{"start", Failed{Kind: keepwatch.ProtocolViolation}, "watch 50"},
		{"start", Failed{Kind: keepwatch.Rewound}, "void (rewind), ≤800ms, list (rewind: rewound)"},
		{"start", Failed{Kind: keepwatch.InvariantViolation}, "stop"},
		{"watch", Failed{Kind: keepwatch.ServerError}, "≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.UnknownStatus}, "≤800ms, watch 60"},
		{"watch", Failed{Kind: keepwatch.StorageRead}, "void (expired), ≤800ms, list ≥60 (expired: storage read error)"},
		{"watch", Failed{Kind: x}, "≤800ms, list ≥60 (expired: expired)"},
		{"opening", Failed{Kind: x}, "≤800ms, list ≥50 (downtime: expired)"},
		{"relist", Failed{Kind: x}, "≤1.6s, list (expired: expired)"},
		{"relist page2", Failed{Kind: x}, "≤800ms, list ≥60 (expired: expired)"},
		{"relisted", Failed{Kind: x}, "≤800ms, list (expired: expired)"},
		{"relist", Failed{Kind: keepwatch.RevisionTooLarge, RetryAfter: time.Second}, "1s+≤800ms, list ≥60 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.RevisionTooLarge, RetryAfter: time.Second}, "1s+≤800ms, watch 60"},
		{"relist", Failed{Kind: keepwatch.StaleReplica}, "≤800ms, list ≥60 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.Rewound}, "void (rewind), ≤800ms, list (rewind: rewound)"},
		{"watch", Failed{Kind: keepwatch.Unauthorized}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Unauthorized}, "≤800ms, stream"},
		{"watch", Failed{Kind: keepwatch.Forbidden}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Forbidden}, "stop"},
		{"watch", Failed{Kind: keepwatch.Absent}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Absent}, "stop"},
		{"watch", Failed{Kind: keepwatch.Rejected}, "≤800ms, watch 60"},
		{"first list", Failed{Kind: keepwatch.Rejected}, "stop"},
		{"relist page2", Failed{Kind: keepwatch.Rejected}, "≤800ms, list ≥60 (expired: expired)"},
		{"first list", Failed{Kind: keepwatch.StreamingListUnsupported}, "list"},
		{"watch", Failed{Kind: keepwatch.Undecodable}, "≤800ms, watch 60"},
		{"relist page2", Failed{Kind: keepwatch.Undecodable}, "≤800ms, list ≥60 p2 (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.ProtocolViolation}, "void (expired), ≤800ms, list (expired: protocol violation)"},
		{"opening", Failed{Kind: keepwatch.ProtocolViolation}, "void (downtime), ≤800ms, list (downtime: protocol violation)"},
		{"first list", Failed{Kind: keepwatch.StorageRead}, "≤800ms, stream"},
		{"relist", Failed{Kind: keepwatch.StorageRead}, "≤1.6s, list ≥60 (expired: expired)"},
		{"relist page2", Failed{Kind: keepwatch.Rewound}, "void (rewind), ≤800ms, list (rewind: expired)"},
		{"rewound", Failed{Kind: keepwatch.Rewound}, "≤1.6s, list (rewind: rewound)"},
		{"rewound", Failed{Kind: keepwatch.ProtocolViolation}, "≤1.6s, list (rewind: rewound)"},
		{"rewound", Failed{Kind: u}, "≤1.6s, list (rewind: rewound)"},
		{"first list", Failed{Kind: keepwatch.ProtocolViolation}, "≤800ms, stream"},
		{"relist page2", Failed{Kind: keepwatch.ProtocolViolation}, "≤800ms, list (expired: expired)"},
		{"watch", Failed{Kind: keepwatch.InvariantViolation}, "stop"},
	} {
		t.Run(fmt.Sprintf("%s/%s", row.place, row.f.Kind), func(t *testing.T) {
			if got := after(at(row.place), row.f); got != row.want {
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

// TestPatience: the n-th failure in a row is one too many; progress forgets.
func TestPatience(t *testing.T) {
	for kind, patience := range map[keepwatch.FailureKind]int{
		keepwatch.Ended: 5, keepwatch.ServerError: 10, keepwatch.UnknownStatus: 10,
		keepwatch.Undecodable: 3, keepwatch.Rejected: 10,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			m := at("opening")
			m, _ = m.Step(Opened{})
			for range 3 { // progress in between: patience never runs out
				for range patience - 1 {
					m = resumes(t, m, kind)
				}
				m, _ = m.Step(Delivered{Revision: m.Revision + 1})
				m, _ = m.Step(Failed{Kind: keepwatch.Idle})
				m, _ = m.Step(Opened{})
			}
			for range patience - 1 {
				m = resumes(t, m, kind)
			}
			m, _ = m.Step(Failed{Kind: kind})
			if _, a := m.Step(Elapsed{}); show(a) != fmt.Sprintf("list ≥53 (expired: %s)", kind) {
				t.Errorf("the %d. failure in a row leads to %s", patience, show(a))
			}
		})
	}
}

// TestPatienceCountsWithoutProgress: a frame that can't be read does not become
// readable because the connection to it fails in between, be it for another reason
// each time. But a watch that was quiet for long shows that there is nothing
// to be read.
func TestPatienceCountsWithoutProgress(t *testing.T) {
	for between, want := range map[Failed]string{
		{Kind: keepwatch.Unreachable}:                   "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.Throttled}:                     "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.ServerError}:                   "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.Idle}:                          "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.Ended}:                         "list ≥60 (expired: undecodable)",
		{Kind: keepwatch.Ended, Lived: time.Minute}:     "watch 60",
		{Kind: keepwatch.RevisionTooLarge, Elapsed: 10}: "list ≥60 (expired: undecodable)",
	} {
		m := resumes(t, at("watch"), keepwatch.Undecodable)
		m = resumes(t, m, keepwatch.Undecodable)
		m, a := m.Step(between)
		if _, waits := a.(Wait); waits {
			m, _ = m.Step(Elapsed{})
		}
		m, _ = m.Step(Opened{})
		m, _ = m.Step(Failed{Kind: keepwatch.Undecodable})
		if _, a = m.Step(Elapsed{}); show(a) != want {
			t.Errorf("with %v (lived %v) in between: %s, want %s", between.Kind, between.Lived, show(a), want)
		}
	}
}

// TestASourceBehindIsNotAskedForEver, either, where every other request fails in
// another manner.
func TestASourceBehindIsNotAskedForEver(t *testing.T) {
	m := at("relist")
	for now := time.Duration(0); ; now += time.Second {
		if now > time.Minute {
			t.Fatal("it is waited for longer than a minute")
		}
		var a Action
		for _, kind := range []keepwatch.FailureKind{keepwatch.Unreachable, keepwatch.RevisionTooLarge} {
			m, a = m.Step(Failed{Kind: kind, Elapsed: now})
			if _, waits := a.(Wait); waits {
				m, a = m.Step(Elapsed{})
			}
		}
		if a.(List).Floor == 0 {
			return
		}
	}
}

// resumes fails once and expects a new watch.
func resumes(t *testing.T, m Machine, kind keepwatch.FailureKind) Machine {
	t.Helper()
	m, _ = m.Step(Failed{Kind: kind})
	m, a := m.Step(Elapsed{})
	if _, ok := a.(Watch); !ok {
		t.Fatalf("%s leads to %s, not to a watch", kind, show(a))
	}
	m, _ = m.Step(Opened{})
	return m
}

// TestAheadOfTheSource waits for a revision, and asks for what there is when 30 s are
// over, whatever time the requests take and whatever failed before; then it recognises
// that the source went back.
func TestAheadOfTheSource(t *testing.T) {
	for _, row := range []struct {
		told, request time.Duration
		jitter        int // in percent
		failed        int // before
		tries         int // at the same revision
		listed        time.Duration
	}{
		{told: time.Second, jitter: 100, tries: 6, listed: 30 * time.Second},
		{told: time.Second, jitter: 100, failed: 9, tries: 6, listed: 30 * time.Second},
		{told: time.Second, jitter: 50, tries: 8, listed: 27625 * time.Millisecond},
		{told: time.Second, jitter: 0, tries: 23, listed: 23 * time.Second},
		{told: time.Second, jitter: 100, request: 3 * time.Second, tries: 5, listed: 30 * time.Second},
		{told: time.Second, jitter: 0, request: 3 * time.Second, tries: 7, listed: 25 * time.Second},
		{jitter: 100, tries: 7, listed: 30 * time.Second},
		{told: 10 * time.Second, tries: 3, jitter: 100, listed: 30 * time.Second},
		{told: time.Hour, jitter: 100, tries: 1, listed: 30 * time.Second},
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
			m, a = m.Step(Failed{Kind: keepwatch.RevisionTooLarge, RetryAfter: row.told, Elapsed: now})
			tries++
			if w, ok := a.(Wait); ok {
				now += w.For + w.Jitter*time.Duration(row.jitter)/100
				m, a = m.Step(Elapsed{})
			}
			if a.(List).Floor == 0 {
				break
			}
			now += row.request
			if tries > 99 {
				t.Fatalf("%+v waits for ever", row)
			}
		}
		if now -= began; now != row.listed || tries != row.tries {
			t.Errorf("%+v lists after %v and %d tries", row, now, tries)
		}
	}
}

// TestASourceThatWentBack is recognised by the list that shows it.
func TestASourceThatWentBack(t *testing.T) {
	m := at("relist")
	m.Streak = Streak{Until: time.Second}
	m, _ = m.Step(Failed{Kind: keepwatch.RevisionTooLarge, Elapsed: time.Minute})
	_, a := m.Step(Page{Revision: 20})
	want := Invalidate{keepwatch.GapRewind, StorePage{First: true, Last: true, Reason: keepwatch.GapRewind, Revision: 20}}
	if a != want {
		t.Errorf("a consistent list below what we hold gives %+v, want %+v", a, want)
	}
	if _, a = at("rewound").Step(Page{Revision: 20}); a != want.Then {
		t.Errorf("one that is known to be of a source that went back gives %+v, want %+v", a, want.Then)
	}
}

func TestBackoffDoublesToItsCapAndProgressResetsIt(t *testing.T) {
	for kind, most := range map[keepwatch.FailureKind]time.Duration{
		keepwatch.Unreachable: 30 * time.Second, keepwatch.Unauthorized: 30 * time.Second,
		keepwatch.Forbidden: 5 * time.Minute, keepwatch.Absent: 5 * time.Minute,
	} {
		m, want := at("watch"), 800*time.Millisecond
		for range 1000 { // for ever
			var a Action
			m, a = m.Step(Failed{Kind: kind, Lived: time.Hour}) // time that passes is no progress
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
			"a page":     {Failed{Kind: keepwatch.Expired}, Elapsed{}, Page{70, "p2"}, PageStored{}},
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

// TestARefusedPageIsNoProgress: a target that takes none of a list is asked less
// and less often.
func TestARefusedPageIsNoProgress(t *testing.T) {
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

func TestStreamingIsForgottenOnceRefused(t *testing.T) {
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

func TestPagesShowOneRevision(t *testing.T) {
	m := at("relist page2")
	if f := m.Judge(Page{Revision: 71}); f == nil || f.Kind != keepwatch.ProtocolViolation {
		t.Errorf("page 2 at another revision: %v", f)
	}
	if f := at("relist").Judge(Page{Revision: 59}); f == nil || f.Kind != keepwatch.StaleReplica {
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

// TestTroubleEndsWithProgress, or with a watch that lasts, but not with a request that
// is answered.
func TestTroubleEndsWithProgress(t *testing.T) {
	cut := Failed{Kind: keepwatch.Unreachable, Lived: time.Millisecond}
	for name, c := range map[string]struct {
		then []Input
		want keepwatch.FailureKind
	}{
		"a watch is open":           {[]Input{Elapsed{}, Opened{}}, keepwatch.Unreachable},
		"it ends at once":           {[]Input{Elapsed{}, Opened{}, Failed{Kind: keepwatch.Ended, Lived: time.Second}}, keepwatch.Unreachable},
		"it lasts":                  {[]Input{Elapsed{}, Opened{}, Failed{Kind: keepwatch.Ended, Lived: SteadyWatch}}, 0},
		"it lasts, and is cut":      {[]Input{Elapsed{}, Opened{}, Failed{Kind: keepwatch.ServerError, Lived: SteadyWatch}}, keepwatch.ServerError},
		"it is silent for too long": {[]Input{Elapsed{}, Opened{}, Failed{Kind: keepwatch.Idle, Lived: time.Minute}}, 0},
		"a bookmark":                {[]Input{Elapsed{}, Opened{}, Delivered{Revision: 60, Bookmark: true}}, 0},
		"an event":                  {[]Input{Elapsed{}, Opened{}, Delivered{Revision: 61}}, 0},
	} {
		m, _ := at("watch").Step(cut)
		for _, in := range c.then {
			m, _ = m.Step(in)
		}
		if m.Failure != c.want {
			t.Errorf("%s: the trouble is %v, want %v", name, m.Failure, c.want)
		}
	}
}
