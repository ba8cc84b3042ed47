package matrix

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// maxBroken bounds the violations in a result.
const maxBroken = 3

// measure counts what a cell observed since its baseline.
func (c *cell) measure(o observed) Result {
	r := Result{
		Client: c.Client, View: c.View, Plan: c.Plan.Name, Seed: c.Seed,
		Upstream: c.server.upstream, UpstreamVersion: c.server.version,
		Outcome: o.outcome, Recovery: seconds(o.recovery),
		Lists: lists(o.requests), Requests: len(o.requests), Rate: busiestSecond(o.requests),
		Faults: o.faults, Load: loadAverage(),
	}
	r.Writes, r.Hidden = len(o.since()), c.Plan.HidesHistory
	if o.outcome == Died {
		r.ExitCode = c.client.ExitCode()
	}
	for _, a := range o.lines() {
		if a.Type == "ERROR" {
			r.Errors++
		}
	}
	if c.View == clients.Condition {
		return r
	}
	r.Counts = o.count()
	if c.View == clients.Events {
		violations := judge(o)
		r.Violations = len(violations)
		for _, v := range violations[:min(maxBroken, len(violations))] {
			r.Broken = append(r.Broken, v.String())
		}
	}
	return r
}

// lines are the client's lines since the baseline.
func (o observed) lines() []arrival { return o.arrivals[o.baseline.lines:] }

// count counts what the client's user did not see since the baseline.
func (o observed) count() Counts {
	user := NewUser(o.baseline.fold)
	for _, a := range o.lines() {
		user.Receive(a.Line)
	}
	return user.Count(o.writes, o.baseline.revision)
}

// lists counts the client's lists, by their first page.
func lists(requests []faults.Entry) (n int) {
	for _, e := range requests {
		switch e.Class {
		case faults.List, faults.StreamList, faults.Newest:
			n++
		}
	}
	return n
}

// busiestSecond is the largest number of requests within a second. The requests are in the order of
// their starts.
func busiestSecond(requests []faults.Entry) (most int) {
	first := 0
	for last, r := range requests {
		for r.Start-requests[first].Start >= time.Second {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// loadAverage is the machine's load of the last minute, or 0 where the system does not tell.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}
