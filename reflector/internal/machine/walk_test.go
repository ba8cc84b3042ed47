package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
)

// runner is what somebody who performs the actions has in hand.
type runner struct {
	begun bool // a list on its way into the target
	open  bool // a watch
	// void is what the target was told of what it holds since the last list.
	void keepwatch.GapReason
}

// place is everywhere one can be.
type place struct {
	Machine
	runner
	action Action
}

func begin(c Config, held keepwatch.Revision) place {
	return place{Machine: Machine{Config: c, State: Fresh{}}}.goOn(Started{Revision: held})
}

// goOn takes the outcome of the action.
func (p place) goOn(in Input) place {
	switch in := in.(type) {
	case Chunk: // the list goes on
		p.Machine, _ = p.Step(in)
		return p
	case Opened:
		p.open = true
	case Streamed:
		p.open, p.void = true, ""
	case PageStored:
		if p.action.(StorePage).Last {
			p.begun, p.void = false, ""
		}
	case Failed:
		p.open = false
	}
	p.Machine, p.action = p.Step(in)
	if v, ok := p.action.(Invalidate); ok {
		p.void, p.action = v.Reason, v.Then
	}
	switch a := p.action.(type) {
	case List:
		p.begun = p.begun && a.Continue != ""
	case StorePage:
		p.begun = p.begun || a.First
	}
	return p
}

// outcomes are what can come of the action, but for failures.
func (p place) outcomes() []Input {
	var all []Input
	switch a := p.action.(type) {
	case List:
		if a.Stream {
			return []Input{Chunk{}, Streamed{70}}
		}
		for _, r := range []keepwatch.Revision{20, 50, 70} {
			for _, next := range []string{"p2", ""} {
				if in := (Page{r, next}); p.Judge(in) == nil {
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
			if in := (Probed{r}); p.Judge(in) == nil {
				all = append(all, in)
			}
		}
		if p.State.(Probing).Start {
			all = append([]Input{Unanswered{}}, all...)
		}
	case ConfirmCurrent:
		all = []Input{Confirmed{}}
	case Wait:
		all = []Input{Elapsed{}}
	}
	return all
}

// wrong says what nobody can do, or must not, of what is asked for here; before is
// where it came from, "" is nothing.
func (p place) wrong(before place) string {
	switch a := p.action.(type) {
	case List:
		switch {
		case a.Continue != "" && (a.At == 0 || !p.begun):
			return "a later page of a list that has not begun"
		case a.Stream && (p.Revision > 0 || p.NoStreaming || p.Paged):
			return "a list is streamed that may not be"
		case a.Floor > p.Revision:
			return "a list is asked for newer than what is held"
		}
	case StorePage:
		switch {
		case !p.begun:
			return "a page is kept of a list that has not begun"
		case a.Reason == keepwatch.GapRewind && p.void != a.Reason:
			return "a rewind is listed, and the target was not told before"
		}
	case Watch:
		if p.void != "" {
			return "a watch from what is void"
		}
		if a.From == 0 || a.From != p.Revision {
			return "a watch from somewhere else than what is held"
		}
	case Read:
		if !p.open {
			return "a watch is read that is not open"
		}
	case Probe:
		if p.Revision == 0 {
			return "nothing is held, and the newest revision is asked for"
		}
		if _, listing := before.State.(Listing); listing {
			return "the newest revision is asked for in place of a list"
		}
	case ConfirmCurrent:
		if p.State.(Confirming).Open != p.open {
			return "the watch was forgotten"
		}
	case Invalidate:
		return "the target is told twice in a row"
	case Wait:
		if total := a.For + a.Jitter; total <= 0 || a.For > maxTold || a.Jitter > slowWaits.Max {
			return "a wait without bounds"
		}
	case Stop:
		if p.Synced && p.State.(Stopped).Cause != keepwatch.InvariantViolation {
			return "what has worked before is given up"
		}
	}
	if p.Revision < before.Revision {
		if k, kept := before.action.(StorePage); !kept || !k.Last || before.State.(Listing).Reason != keepwatch.GapRewind {
			return "the held revision goes back, and nobody says so"
		}
	}
	return ""
}

// patience are the streaks in which a failure can be met: the first, and the one
// that is too many.
func patience(kind keepwatch.FailureKind) []Streak {
	last := Streak{}
	last.Failed[kind] = max(1, Table[kind].MaxRetries) - 1
	return []Streak{{}, last, {Until: 1}}
}

// TestNobodyIsAskedForWhatCantBe goes through all places that can be reached, and
// lets everything happen there that can: each outcome, and each failure as the
// first of its kind and as the one too many.
func TestNobodyIsAskedForWhatCantBe(t *testing.T) {
	for _, c := range []Config{{StartupDeadline: -1}, {Paged: true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			seen := map[place]bool{}
			queue := []place{begin(c, 0), begin(c, 50)}
			steps := 0
			visit := func(from place, in Input) {
				steps++
				next := from.goOn(in)
				if wrong := next.wrong(from); wrong != "" {
					t.Fatalf("%s: after %+v in %+v comes %+v", wrong, in, from, next)
				}
				// Whatever is left of them: streaks are made up, and trouble is for show.
				next.Streak, next.Failure = Streak{}, 0
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
					continue // nothing can fail
				}
				for _, kind := range keepwatch.FailureKinds() {
					for _, streak := range patience(kind) {
						from := here
						from.Streak = streak
						visit(from, Failed{Kind: kind})
						visit(from, Failed{Kind: kind, Lived: time.Minute, RetryAfter: time.Second})
					}
				}
			}
			t.Logf("%d places, %d steps", len(seen), steps)
		})
	}
}

// TestASilentListIsReadAgain, however often: there is nothing to watch from, and
// the newest revision is of no use.
func TestASilentListIsReadAgain(t *testing.T) {
	paged := Config{Paged: true}
	list := begin(paged, 0)
	page2 := list.goOn(Page{70, "p2"}).goOn(PageStored{})
	relist := begin(paged, 50).goOn(Probed{60}).goOn(Opened{}).goOn(Failed{Kind: keepwatch.Expired}).goOn(Elapsed{})
	for name, at := range map[string]place{
		"first list": list, "page 2": page2, "relist": relist,
		"page 2 of a relist": relist.goOn(Page{70, "p2"}).goOn(PageStored{}),
		"streaming list":     begin(Config{}, 0),
		"a part of one":      begin(Config{}, 0).goOn(Chunk{}),
	} {
		t.Run(name, func(t *testing.T) {
			want := at.action
			for n := range 7 {
				at = at.goOn(Failed{Kind: keepwatch.Idle})
				if _, waits := at.action.(Wait); waits {
					at = at.goOn(Elapsed{})
				}
				if at.action != want {
					t.Fatalf("silent for the %d. time: %s, want %s", n+1, show(at.action), show(want))
				}
			}
		})
	}
}

// TestProofOfCurrency: whoever goes on where an earlier run ended is told that it
// is current as soon as the source says so, and once.
func TestProofOfCurrency(t *testing.T) {
	start := begin(Config{}, 50)
	if start.action != (Probe{Within: startProbe}) {
		t.Fatalf("starts with %s", show(start.action))
	}
	ask := func(p place, inputs ...Input) string {
		var asked []string
		for _, in := range inputs {
			p = p.goOn(in)
			asked = append(asked, show(p.action))
		}
		return strings.Join(asked, ", ")
	}
	idle := Failed{Kind: keepwatch.Idle}
	for name, test := range map[string]struct {
		inputs []Input
		want   string
	}{
		"nothing is missing": {[]Input{Probed{50}, Confirmed{}, Opened{}, Delivered{Revision: 51}},
			"confirmcurrent, watch 50, read, read"},
		"something is": {[]Input{Probed{60}, Opened{}, Delivered{Revision: 59}, Delivered{Revision: 61}, Confirmed{}, Delivered{Revision: 62}},
			"watch 50, read, read, confirmcurrent, read, read"},
		"it comes on another connection": {[]Input{Probed{60}, Opened{}, Failed{Kind: keepwatch.Ended, Lived: time.Minute}, Opened{}, Delivered{Revision: 60}, Confirmed{}},
			"watch 50, read, watch 50, read, confirmcurrent, read"},
		"a bookmark says so itself": {[]Input{Probed{60}, Opened{}, Delivered{Revision: 61, Bookmark: true}, Delivered{Revision: 62}},
			"watch 50, read, read, read"},
		"a list comes in between": {[]Input{Probed{60}, Opened{}, Failed{Kind: keepwatch.Expired}, Elapsed{}, Page{55, ""}, PageStored{}, Opened{}, Delivered{Revision: 61}},
			"watch 50, read, wait, list ≥50 (downtime: expired), storepage, watch 55, read, read"},
		"it does not say": {[]Input{Failed{Kind: keepwatch.Unreachable}, Opened{}, Delivered{Revision: 60}},
			"watch 50, read, read"},
		"it takes its time": {[]Input{Unanswered{}, Opened{}, Delivered{Revision: 60}},
			"watch 50, read, read"},
		"it went back": {[]Input{Failed{Kind: keepwatch.Rewound}, Elapsed{}},
			"wait, list (rewind: rewound)"},
		"it says so after a silence": {[]Input{Probed{60}, Opened{}, idle, Opened{}, idle, Probed{50}, Confirmed{}},
			"watch 50, read, watch 50, read, probe, confirmcurrent, watch 50"},
		"what it said was not reached": {[]Input{Probed{60}, Opened{}, idle, Opened{}, idle, Probed{70}, Opened{}, Delivered{Revision: 60}, Delivered{Revision: 70}, Confirmed{}},
			"watch 50, read, watch 50, read, probe, watch 50, read, read, confirmcurrent, read"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(start, test.inputs...); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
