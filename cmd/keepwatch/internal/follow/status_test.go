package follow

import (
	"bytes"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/reflector"
)

func TestPrintedNotices(t *testing.T) {
	failure := func(kind keepwatch.FailureKind) *keepwatch.Failure {
		return keepwatch.Failed(kind, "watch pods: connection reset by peer")
	}
	tests := []struct {
		notice reflector.Notice
		want   string
	}{
		{reflector.Notice{Failure: failure(keepwatch.Unreachable), Decision: reflector.Resume, Revision: 1234,
			Wait: 1234567890},
			"keepwatch: watch pods: connection reset by peer; resuming at 1234 in 1.2s\n"},
		{reflector.Notice{Failure: failure(keepwatch.Ended), Decision: reflector.Resume, Revision: 1234},
			"keepwatch: watch pods: connection reset by peer; resuming at 1234\n"},
		{reflector.Notice{Failure: failure(keepwatch.Idle), Decision: reflector.Verify, Revision: 1234},
			"keepwatch: watch pods: connection reset by peer; requesting the newest revision, then resuming at 1234\n"},
		{reflector.Notice{Failure: failure(keepwatch.Expired), Decision: reflector.Relist, Wait: time.Second},
			"keepwatch: watch pods: connection reset by peer; listing again in 1s\n"},
		{reflector.Notice{Failure: failure(keepwatch.Throttled), Decision: reflector.ListAgain, Wait: 5 * time.Second},
			"keepwatch: watch pods: connection reset by peer; retrying in 5s\n"},
		{reflector.Notice{Failure: failure(keepwatch.Undecodable), Decision: reflector.Skip},
			"keepwatch: watch pods: connection reset by peer; skipping it\n"},
		{reflector.Notice{Failure: failure(keepwatch.Unreachable), Decision: reflector.Proceed, Revision: 1234},
			"keepwatch: watch pods: connection reset by peer; watching from 1234 anyway\n"},
		{reflector.Notice{Failure: failure(keepwatch.Forbidden), Decision: reflector.Stop}, ""},
		{reflector.Notice{Listed: 500}, ""}, // not on a terminal
		{reflector.Notice{Failure: keepwatch.Failed(keepwatch.Throttled, "\x1b[2Jno\nkeepwatch: synced: 9"),
			Decision: reflector.ListAgain}, "keepwatch: ?[2Jno keepwatch: synced: 9; retrying\n"},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		newStatusPrinter(&out, &out).observe(tt.notice)
		if out.String() != tt.want {
			t.Errorf("printed %q, want %q", &out, tt.want)
		}
	}
}

// TestLoggedProgress prints the progress of a long list where no line can be rewritten.
func TestLoggedProgress(t *testing.T) {
	var out bytes.Buffer
	w := newStatusPrinter(&out, &out)
	w.resource = "pods"
	now := time.Now()
	for _, n := range []reflector.Notice{{Listed: 500, Remaining: 9500}, {Listed: 1000, Remaining: 9000},
		{Listed: 2500, Remaining: 7500}, {Listed: 3000}, {Listed: 4000}, {}, {Listed: 500}} {
		now = now.Add(16 * time.Second)
		n.Time = now
		w.observe(n)
	}
	if want := "keepwatch: listing pods 2,500 of 10,000\nkeepwatch: listing pods 4,000\n"; out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}

// TestPrintedFallbacks checks that the fallback to pages is printed with the first page, and not if the
// server refuses lists as well.
func TestPrintedFallbacks(t *testing.T) {
	refused := reflector.Notice{Failure: keepwatch.Failed(keepwatch.StreamingListUnsupported, "no such thing"),
		Decision: reflector.ListAgain}
	throttled := reflector.Notice{Failure: keepwatch.Failed(keepwatch.Throttled, "busy"), Decision: reflector.ListAgain}
	rejected := reflector.Notice{Failure: keepwatch.Failed(keepwatch.Rejected, "bad selector"), Decision: reflector.Stop}
	page := reflector.Notice{}
	const fallback, busy = "keepwatch: no such thing; listing in pages\n", "keepwatch: busy; retrying\n"
	for _, tt := range []struct {
		notices []reflector.Notice
		want    string
	}{
		{[]reflector.Notice{refused}, ""},
		{[]reflector.Notice{refused, rejected}, ""},
		{[]reflector.Notice{refused, page, page}, fallback},
		{[]reflector.Notice{refused, throttled, page}, fallback + busy},
	} {
		var out bytes.Buffer
		w := newStatusPrinter(&out, &out)
		for _, n := range tt.notices {
			w.observe(n)
		}
		if out.String() != tt.want {
			t.Errorf("%v: printed %q, want %q", tt.notices, &out, tt.want)
		}
	}
}

// TestPrintedIdleTimeouts checks that repeated idle timeouts are printed once while the server answers,
// and each time otherwise.
func TestPrintedIdleTimeouts(t *testing.T) {
	idle := func(v reflector.Decision) reflector.Notice {
		return reflector.Notice{Failure: keepwatch.Failed(keepwatch.Idle, "silent"), Decision: v, Revision: 7}
	}
	resume, verify, list := idle(reflector.Resume), idle(reflector.Verify), idle(reflector.ListAgain)
	reset := reflector.Notice{Failure: keepwatch.Failed(keepwatch.Unreachable, "reset"), Decision: reflector.Resume,
		Revision: 7}
	const (
		resumeLine = "keepwatch: silent; resuming at 7\n"
		verifyLine = "keepwatch: silent; requesting the newest revision, then resuming at 7\n"
		listLine   = "keepwatch: silent; retrying\n"
		resetLine  = "keepwatch: reset; resuming at 7\n"
	)
	for name, tt := range map[string]struct {
		notices []reflector.Notice
		want    string
	}{
		"no events":       {[]reflector.Notice{resume, verify, resume, verify, resume}, resumeLine},
		"few events":      {[]reflector.Notice{resume, resume, resume}, resumeLine},
		"no answer":       {[]reflector.Notice{resume, verify, verify, verify}, resumeLine + verifyLine + verifyLine},
		"no list":         {[]reflector.Notice{list, list}, listLine + listLine},
		"another failure": {[]reflector.Notice{resume, verify, reset, resume, verify}, resumeLine + resetLine + resumeLine},
	} {
		var out bytes.Buffer
		w := newStatusPrinter(&out, &out)
		for _, n := range tt.notices {
			w.observe(n)
		}
		if out.String() != tt.want {
			t.Errorf("%s: printed %q, want %q", name, &out, tt.want)
		}
	}
}

func TestProgressOnATerminal(t *testing.T) {
	const erase = "\r\x1b[K"
	var out bytes.Buffer
	w := &statusPrinter{out: &out, resource: "pods", live: true}
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	expect := func(want string) {
		t.Helper()
		if out.String() != want {
			t.Errorf("printed %q, want %q", &out, want)
		}
		out.Reset()
	}
	w.observe(reflector.Notice{Time: start, Listed: 500, Remaining: 40_700})
	expect(erase + "listing pods 500 of 41,200")
	w.observe(reflector.Notice{Time: start.Add(progressEvery / 2), Listed: 1000})
	expect("")
	w.observe(reflector.Notice{Time: start.Add(progressEvery), Listed: 1_234_567})
	expect(erase + "listing pods 1,234,567")
	w.observe(reflector.Notice{Time: start.Add(time.Second), Failure: keepwatch.Failed(keepwatch.Unreachable, "reset"),
		Decision: reflector.ListAgain})
	expect(erase + "keepwatch: reset; retrying\n")
	w.observe(reflector.Notice{Time: start.Add(time.Second), Listed: 500})
	expect(erase + "listing pods 500")

	w.clear()
	expect(erase)
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 41200: "41,200", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
