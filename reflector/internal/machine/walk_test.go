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

// runner is the part of a runner's state that decides which actions it can perform.
type runner struct {
	listStarted bool // a replacement that is neither committed nor discarded
	watchOpen   bool // a watch is open
	// invalidated is the reason of the last Invalidate since the last list, "" if none.
	invalidated keepwatch.GapReason
}

// position is a machine with its runner and the next action.
type position struct {
	Machine
	runner
	action Action
}

func start(c Config, revision keepwatch.Revision) position {
	return position{Machine: Machine{Config: c, State: Fresh{}}}.after(Started{Revision: revision})
}

// after returns the position after an outcome of the action.
func (p position) after(in Input) position {
	switch in := in.(type) {
	case Chunk: // the same list continues
		p.Machine, _ = p.Step(in)
		return p
	case Opened:
		p.watchOpen = true
	case Streamed:
		p.watchOpen, p.invalidated = true, ""
	case PageStored:
		if p.action.(StorePage).Last {
			p.listStarted, p.invalidated = false, ""
		}
	}
	p.Machine, p.action = p.Step(in)
	_, failed := in.(Failed)
	if _, reads := p.action.(Read); failed && !reads {
		p.watchOpen = false
	}
	if v, ok := p.action.(Invalidate); ok {
		p.invalidated, p.action = v.Reason, v.Then
	}
	switch a := p.action.(type) {
	case List:
		p.listStarted = p.listStarted && a.Continue != ""
	case StorePage:
		p.listStarted = p.listStarted || a.First
	}
	return p
}

// outcomes returns the outcomes that the action can have, except failures.
func (p position) outcomes() []Input {
	var all []Input
	switch a := p.action.(type) {
	case List:
		if a.Stream {
			return []Input{Chunk{}, Streamed{70}}
		}
		for _, r := range []keepwatch.Revision{20, 50, 70} {
			for _, next := range []string{"p2", ""} {
				if in := (Page{r, paging.Page{Continue: next}}); p.Validate(in) == nil {
					all = append(all, in)
				}
			}
		}
	case StorePage:
		all = []Input{PageStored{}}
	case Watch:
		all = []Input{Opened{}}
	case Read:
		for _, r := range []keepwatch.Revision{p.Revision, 50, 70} {
			if r >= p.Revision {
				all = append(all, Delivered{Revision: r}, Delivered{Revision: r, Bookmark: true})
			}
		}
	case Probe:
		for _, r := range []keepwatch.Revision{20, 50, 70} {
			if in := (Probed{r}); p.Validate(in) == nil {
				all = append(all, in)
			}
		}
		if p.State.(Probing).Start {
			all = append([]Input{ProbeTimedOut{}}, all...)
		}
	case Compare:
		all = []Input{Unchanged{}}
	case ConfirmCurrent:
		all = []Input{Confirmed{}}
	case Wait:
		all = []Input{Elapsed{}}
	}
	return all
}

// violation returns why the action is impossible or forbidden here, "" if it is neither.
// before is the position before.
func (p position) violation(before position) string {
	switch a := p.action.(type) {
	case List:
		switch {
		case a.Continue != "" && (a.Revision == 0 || !p.listStarted):
			return "a later page of a list that was not started"
		case a.Stream && (p.Revision > 0 || p.NoStreaming || p.Paged):
			return "a streaming list that is not allowed"
		case a.NotOlderThan > p.Revision:
			return "a list newer than the target's revision"
		}
	case StorePage:
		switch {
		case !p.listStarted:
			return "a page of a list that was not started is stored"
		case a.Reason == keepwatch.GapRewind && p.invalidated != a.Reason:
			return "a rewind is stored, but the target was not invalidated before"
		}
	case Watch:
		if p.invalidated != "" {
			return "a watch from an invalidated state"
		}
		if a.From == 0 || a.From != p.Revision {
			return "a watch from another revision than the target's"
		}
	case Read:
		if !p.watchOpen {
			return "a read without an open watch"
		}
	case Probe:
		if p.Revision == 0 {
			return "a probe without a revision to compare with"
		}
		if _, listing := before.State.(Listing); listing {
			return "a probe in place of a list"
		}
	case ConfirmCurrent:
		if p.State.(Confirming).WatchOpen != p.watchOpen {
			return "the open watch is lost"
		}
	case Invalidate:
		return "two Invalidates in a row"
	case Wait:
		if total := a.For + a.Jitter; total <= 0 || a.For > maxRetryAfter || a.Jitter > slowWaits.Max {
			return "a wait outside its bounds"
		}
	case Stop:
		if p.Synced && p.State.(Stopped).Cause != keepwatch.InvariantViolation {
			return "a run that has synced ends"
		}
	}
	if p.Revision < before.Revision {
		if page, ok := before.action.(StorePage); !ok || !page.Last || before.State.(Listing).Reason != keepwatch.GapRewind {
			return "the revision decreases without a rewind"
		}
	}
	return ""
}

// retriesBefore returns the retries before which a failure is tried: none, one less than
// the limit, and a revision wait that is over.
func retriesBefore(kind keepwatch.FailureKind) []Retries {
	last := Retries{}
	last.ByKind[kind] = max(1, Table[kind].MaxRetries) - 1
	return []Retries{{}, last, {RevisionDeadline: 1}}
}

// TestEveryReachablePosition visits all positions that can be reached, and applies all
// inputs there: each outcome, and each failure as the first of its kind and as the one that
// exceeds its limit.
func TestEveryReachablePosition(t *testing.T) {
	for _, c := range []Config{{StartupDeadline: -1}, {Paged: true}, {ProbeAfterOutage: true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			seen := map[position]bool{}
			queue := []position{start(c, 0), start(c, 50)}
			steps := 0
			visit := func(from position, in Input) {
				steps++
				next := from.after(in)
				if violation := next.violation(from); violation != "" {
					t.Fatalf("%s: %+v in %+v leads to %+v", violation, in, from, next)
				}
				// The retries and the quiet time are set below, the failure decides only retries, the breaches a
				// wait, and TestStreamingListsThatFail counts streams.
				next.Retries, next.Quiet, next.Failure, next.Breaches, next.FailedStreams = Retries{}, 0, 0, 0, 0
				if !seen[next] {
					seen[next] = true
					queue = append(queue, next)
				}
			}
			for len(queue) > 0 {
				here := queue[0]
				queue = queue[1:]
				if _, stopped := here.action.(Stop); stopped {
					continue
				}
				for _, in := range here.outcomes() {
					visit(here, in)
				}
				if _, waiting := here.action.(Wait); waiting {
					continue // a wait cannot fail
				}
				for _, kind := range keepwatch.FailureKinds() {
					for _, retries := range retriesBefore(kind) {
						from := here
						from.Retries = retries
						visit(from, Failed{Kind: kind})
						visit(from, Failed{Kind: kind, Accepted: true, OpenFor: time.Minute, RetryAfter: time.Second})
						visit(from, Failed{Kind: kind, Accepted: true, OpenFor: quietLimit})
					}
				}
			}
			t.Logf("%d positions, %d steps", len(seen), steps)
		})
	}
}

// TestIdleListIsRetried checks that an idle list is retried without a limit and without a
// probe: the target has no revision to compare with.
func TestIdleListIsRetried(t *testing.T) {
	paged := Config{Paged: true}
	list := start(paged, 0)
	page2 := list.after(page70).after(PageStored{})
	relist := start(paged, 50).after(Probed{60}).after(Opened{}).after(Failed{Kind: keepwatch.Expired}).after(Elapsed{})
	for name, at := range map[string]position{
		"first list": list, "page 2": page2, "relist": relist,
		"page 2 of a relist": relist.after(page70).after(PageStored{}),
	} {
		t.Run(name, func(t *testing.T) {
			want := at.action
			for n := range 7 {
				at = at.after(Failed{Kind: keepwatch.Idle})
				if _, waits := at.action.(Wait); waits {
					at = at.after(Elapsed{})
				}
				if at.action != want {
					t.Fatalf("idle failure %d: %s, want %s", n+1, show(at.action), show(want))
				}
			}
		})
	}
}

// TestConfirmCurrent checks that a target that continues at a stored revision receives one
// confirmation that it is current, as soon as the source has shown it.
func TestConfirmCurrent(t *testing.T) {
	start := start(Config{}, 50)
	if start.action != (Probe{Timeout: startProbeTimeout}) {
		t.Fatalf("starts with %s", show(start.action))
	}
	actions := func(p position, inputs ...Input) string {
		var shown []string
		for _, in := range inputs {
			p = p.after(in)
			shown = append(shown, show(p.action))
		}
		return strings.Join(shown, ", ")
	}
	idle := Failed{Kind: keepwatch.Idle}
	for name, test := range map[string]struct {
		inputs []Input
		want   string
	}{
		"no newer revision": {[]Input{Probed{50}, Confirmed{}, Opened{}, Delivered{Revision: 51}},
			"confirm current, watch 50, read, read"},
		"a newer revision": {[]Input{Probed{60}, Opened{}, Delivered{Revision: 59}, Delivered{Revision: 61}, Confirmed{},
			Delivered{Revision: 62}},
			"watch 50, read, read, confirm current, read, read"},
		"the newer revision arrives on another connection": {[]Input{Probed{60}, Opened{}, Failed{Kind: keepwatch.Ended,
			OpenFor: time.Minute}, Opened{}, Delivered{Revision: 60}, Confirmed{}},
			"watch 50, read, watch 50, read, confirm current, read"},
		"a bookmark confirms it itself": {[]Input{Probed{60}, Opened{}, Delivered{Revision: 61, Bookmark: true},
			Delivered{Revision: 62}},
			"watch 50, read, read, read"},
		"a relist in between": {[]Input{Probed{60}, Opened{}, Failed{Kind: keepwatch.Expired}, Elapsed{}, Page{Revision: 55},
			PageStored{}, Opened{}, Delivered{Revision: 61}},
			"watch 50, read, wait, list ≥50 (downtime: expired), store page, watch 55, read, read"},
		"the probe fails, and is repeated when a watch is open": {[]Input{Failed{Kind: keepwatch.Unreachable},
			Failed{Kind: keepwatch.Unreachable}, Elapsed{}, Opened{}, Probed{50}, Confirmed{}},
			"watch 50, wait, watch 50, probe, confirm current, read"},
		"the repeated probe fails too": {[]Input{Failed{Kind: keepwatch.Unreachable}, Opened{},
			Failed{Kind: keepwatch.Throttled, RetryAfter: time.Minute}, Delivered{Revision: 51}},
			"watch 50, probe, read, read"},
		"the repeated probe times out, and is not repeated": {[]Input{Failed{Kind: keepwatch.Unreachable}, Opened{},
			ProbeTimedOut{}, Failed{Kind: keepwatch.Ended, OpenFor: time.Minute}, Opened{}},
			"watch 50, probe, read, watch 50, read"},
		"the repeated probe shows a newer revision": {[]Input{Failed{Kind: keepwatch.Unreachable}, Opened{}, Probed{60},
			Delivered{Revision: 60}, Confirmed{}},
			"watch 50, probe, read, confirm current, read"},
		"the repeated probe shows a rewind": {[]Input{Failed{Kind: keepwatch.Unreachable}, Opened{},
			Failed{Kind: keepwatch.Rewound}, Elapsed{}},
			"watch 50, probe, wait, list (rewind: rewound)"},
		"a bookmark confirms it before the watch fails": {[]Input{Failed{Kind: keepwatch.Unreachable}, Opened{},
			Failed{Kind: keepwatch.Throttled}, Delivered{Revision: 50, Bookmark: true}, Failed{Kind: keepwatch.Ended,
				OpenFor: time.Minute}, Opened{}},
			"watch 50, probe, read, read, watch 50, read"},
		"the probe times out": {[]Input{ProbeTimedOut{}, Opened{}, Delivered{Revision: 60}},
			"watch 50, read, read"},
		"a rewind": {[]Input{Failed{Kind: keepwatch.Rewound}, Elapsed{}},
			"wait, list (rewind: rewound)"},
		"a probe after idle watches": {[]Input{Probed{60}, Opened{}, idle, Opened{}, idle, Probed{50}, Confirmed{}},
			"watch 50, read, watch 50, read, probe, confirm current, watch 50"},
		"another resource has a newer revision": {[]Input{Probed{60}, Opened{}, idle, Opened{}, idle, Probed{70}, Unchanged{},
			Confirmed{}, Opened{}, Delivered{Revision: 71}},
			"watch 50, read, watch 50, read, probe, compare 70, confirm current, watch 70, read, read"},
		"the comparison fails": {[]Input{Probed{60}, Opened{}, idle, Opened{}, idle, Probed{70},
			Failed{Kind: keepwatch.Unreachable}, Elapsed{}, Opened{}, Delivered{Revision: 70}, Confirmed{}},
			"watch 50, read, watch 50, read, probe, compare 70, wait, watch 50, read, confirm current, read"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := actions(start, test.inputs...); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestProbeAfterOutage checks which failures of a watch are followed by a probe of the next one, until it is answered
// or a bookmark arrives, and that the others are not.
func TestProbeAfterOutage(t *testing.T) {
	asks := []keepwatch.FailureKind{
		keepwatch.Unreachable, keepwatch.Throttled, keepwatch.Untrusted, keepwatch.ServerError,
		keepwatch.UnknownStatus, keepwatch.Unauthorized,
	}
	reopened := func(c Config, kind keepwatch.FailureKind, accepted bool) position {
		at := start(c, 50).after(Probed{50}).after(Confirmed{}).after(Opened{}).after(Delivered{Revision: 60})
		at = at.after(Failed{Kind: keepwatch.Ended, OpenFor: time.Minute, Accepted: true})
		at = at.after(Failed{Kind: kind, Accepted: accepted})
		if _, waits := at.action.(Wait); waits {
			at = at.after(Elapsed{})
		}
		if _, watches := at.action.(Watch); watches {
			at = at.after(Opened{})
		}
		return at
	}
	for _, kind := range keepwatch.FailureKinds() {
		for _, c := range []Config{{}, {ProbeAfterOutage: true}} {
			for _, accepted := range []bool{false, true} {
				_, probes := reopened(c, kind, accepted).action.(Probe)
				if want := c.ProbeAfterOutage && !accepted && slices.Contains(asks, kind); probes != want {
					t.Errorf("%v, accepted %t, with %+v: probes %t, want %t", kind, accepted, c, probes, want)
				}
			}
		}
	}
	probing := reopened(Config{ProbeAfterOutage: true}, keepwatch.Unreachable, false)
	if f := probing.Validate(Probed{20}); f == nil || f.Kind != keepwatch.Rewound {
		t.Errorf("a source below the target's revision: %v", f)
	}
	again := func(at position) position {
		return at.after(Failed{Kind: keepwatch.Ended, OpenFor: time.Minute, Accepted: true}).after(Opened{})
	}
	for name, in := range map[string]Input{"timeout": ProbeTimedOut{}, "failure": Failed{Kind: keepwatch.ServerError}} {
		if at := again(probing.after(in)); at.action != (Probe{Timeout: startProbeTimeout}) {
			t.Errorf("after a probe's %s the next watch begins with %s", name, show(at.action))
		}
		if at := again(probing.after(in).after(Delivered{Revision: 60, Bookmark: true})); at.action != (Read{}) {
			t.Errorf("after a probe's %s and a bookmark the next watch begins with %s", name, show(at.action))
		}
	}
	if at := again(probing.after(Probed{70})); at.action != (Read{}) {
		t.Errorf("after a probe with an answer the next watch begins with %s", show(at.action))
	}
}

// TestSilentWatches checks that a machine whose watches stay silent lists once in each idle
// timeout in which the resource changes, and returns to watches alone when one delivers.
func TestSilentWatches(t *testing.T) {
	at := start(Config{}, 50)
	idle := Failed{Kind: keepwatch.Idle, OpenFor: time.Minute}
	var shown []string
	for _, in := range []Input{
		Probed{50}, Confirmed{}, Opened{}, idle, Opened{}, idle, Probed{60}, Failed{Kind: keepwatch.Silent}, Elapsed{},
		Page{Revision: 61}, PageStored{}, Opened{},
		idle, Probed{70}, Failed{Kind: keepwatch.Silent}, Elapsed{}, Page{Revision: 70}, PageStored{}, Opened{}, // changed
		idle, Probed{70}, Confirmed{}, Opened{}, // not changed
		idle, Probed{80}, Unchanged{}, Confirmed{}, Opened{}, // another resource has changed
	} {
		at = at.after(in)
		shown = append(shown, show(at.action))
	}
	got := strings.Join(shown, ", ")
	if want := "confirm current, watch 50, read, watch 50, read, probe, compare 60, wait, list (downtime: silent), store page, watch 61, read, " +
		"probe, compare 70, wait, list (expired: silent), store page, watch 70, read, " +
		"probe, confirm current, watch 70, read, " +
		"probe, compare 80, confirm current, watch 80, read"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !at.Silent {
		t.Error("a silent watch is taken for one that works")
	}
	at = at.after(Delivered{Revision: 80, Bookmark: true})
	if !at.Silent {
		t.Error("a watch that repeats a bookmark is taken for one that works")
	}
	for _, in := range []Input{Delivered{Revision: 81, Bookmark: true}, idle} {
		at = at.after(in)
	}
	if at.Silent || at.action != (Watch{From: 81}) {
		t.Errorf("after a bookmark, an idle watch leads to %s", show(at.action))
	}
}

// TestQuietWatches checks that the source is asked after watches were open for quietLimit and advanced
// nothing, although none was idle: a load balancer ends them, or they repeat one bookmark.
func TestQuietWatches(t *testing.T) {
	for _, kind := range []keepwatch.FailureKind{keepwatch.Ended, keepwatch.Unreachable, keepwatch.Throttled} {
		for name, watch := range map[string][]Input{
			"nothing":      {Opened{}, Failed{Kind: kind, OpenFor: quietLimit / 4}},
			"one bookmark": {Opened{}, Delivered{Revision: 50, Bookmark: true}, Failed{Kind: kind, OpenFor: quietLimit / 4}},
		} {
			at := start(Config{}, 50).after(Probed{50}).after(Confirmed{})
			step := func(inputs ...Input) Action {
				for _, in := range inputs {
					at = at.after(in)
					if _, waits := at.action.(Wait); waits {
						at = at.after(Elapsed{})
					}
				}
				return at.action
			}
			for range 3 {
				if a := step(watch...); a != (Watch{From: 50}) {
					t.Fatalf("%s, %v: %s", name, kind, show(a))
				}
			}
			if a := step(watch...); a != (Probe{}) {
				t.Fatalf("%s, %v: after %v, %s", name, kind, quietLimit, show(a))
			}
			if a := step(Probed{60}, Unchanged{}, Confirmed{}); a != (Watch{From: 60}) || at.Quiet != 0 {
				t.Errorf("%s, %v: after the answer, %s, quiet for %v", name, kind, show(a), at.Quiet)
			}
			if step(Opened{}, Delivered{Revision: 61}, Failed{Kind: kind, OpenFor: time.Hour}); at.Quiet != 0 {
				t.Errorf("%s, %v: a watch that delivers was quiet for %v", name, kind, at.Quiet)
			}
		}
	}
}

// TestRepeatedBreach checks that the waits grow when each watch breaks the contract, although
// each list succeeds.
func TestRepeatedBreach(t *testing.T) {
	at := start(Config{}, 50)
	for _, in := range []Input{Probed{50}, Confirmed{}, Opened{}} {
		at = at.after(in)
	}
	breach := func(openFor time.Duration) time.Duration {
		at = at.after(Failed{Kind: keepwatch.ProtocolViolation, OpenFor: openFor})
		wait := at.action.(Wait).Jitter
		for _, in := range []Input{Elapsed{}, Page{Revision: 60}, PageStored{}, Opened{}, Delivered{Revision: 61}} {
			at = at.after(in)
		}
		return wait
	}
	for _, want := range []time.Duration{firstWait, 2 * firstWait, 4 * firstWait} {
		if got := breach(time.Millisecond); got != want {
			t.Errorf("waits %v, want %v", got, want)
		}
	}
	if got := breach(SteadyWatch); got != firstWait {
		t.Errorf("after a watch that was good for %v, waits %v", SteadyWatch, got)
	}
}
