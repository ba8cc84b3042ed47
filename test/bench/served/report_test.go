package served

import (
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

func TestTable(t *testing.T) {
	var logged []string
	r := NewReport(func(_ string, args ...any) { logged = append(logged, args[2].(string)) }, KubeAPIServer, PlainGo)
	r.Add(KubeAPIServer, "A", Figure{"time", figures.Seconds, 2}, Figure{"memory", figures.Bytes, 3.5e9})
	r.Add(Keepwatch, "A", Figure{"time", figures.Seconds, 0.25}, Figure{"memory", figures.Bytes, 2e6})
	r.Add(PlainGo, "A", Figure{"time", figures.Seconds, 0.1})
	r.Add(KubeAPIServer, "B", Figure{cutOff, figures.Losses, 3}, Figure{behind, figures.Seconds, 0.5},
		Figure{p99, figures.Seconds, 0.00012})
	r.Add(Keepwatch, "B", Figure{cutOff, figures.Losses, 0}, Figure{behind, figures.Seconds, 0.5},
		Figure{p99, figures.Seconds, 1})
	got := r.Figures("", []Target{
		part("A", "time", KubeAPIServer, 0.2), part("A", "time", PlainGo, 1.3),
		more("A", "time", figures.Seconds, PlainGo, 0.1), more("A", "time", figures.Seconds, KubeAPIServer, 0.001),
		more("A", "memory", figures.Seconds, PlainGo, 1),
		atMost("A", "memory", figures.Bytes, 3e6), exactly("B", cutOff, 0), whereCurrent("B", p99, KubeAPIServer),
		exactly("C", "lists", 0),
	}).Table()
	want := `| what | measure | keepwatch | kube-apiserver | keepwatch / kube-apiserver | plain Go | keepwatch / plain Go | target |
|---|---|---|---|---|---|---|---|
| A | time | 250 ms | 2.00 s | **0.125×** | 100 ms | 2.5× | ≤ 0.2× kube-apiserver, ≤ 1.3× plain Go (missed), ≤ 100 ms more than plain Go (missed), ≤ 1 ms more than kube-apiserver |
| A | memory | 2 MB | 3.50 GB | < 0.001× | – | – | ≤ 1.00 s more than plain Go (not judged), ≤ 3 MB |
| B | watchers cut off | 0 | 3 | 0× | – | – | = 0 |
| B | last event after last write | 500 ms | 500 ms | 1× | – | – |  |
| B | p99 latency | 1.00 s | 120 µs | 8.33e+03× | – | – | ≤ kube-apiserver's where it keeps up (not judged) |
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	if want := "kube-apiserver: A: time 2.00 s, memory 3.50 GB"; logged[0] != want {
		t.Errorf("logged %q", logged[0])
	}
}

// Of several rounds the medians count, and the median of the ratios of each round.
func TestRounds(t *testing.T) {
	r := NewReport(t.Logf, Upstream)
	for round, seconds := range [][2]float64{{10, 1}, {20, 8}, {40, 6}} {
		if round > 0 {
			r.NextRound()
		}
		r.Add(Upstream, "A", Figure{"time", figures.Seconds, seconds[0]})
		r.Add(Keepwatch, "A", Figure{"time", figures.Seconds, seconds[1]})
	}
	r.Add(Keepwatch, "B", Figure{"time", figures.Seconds, 1}) // in the last round only
	r.Add(Upstream, "B", Figure{cutOff, figures.Losses, 5})
	got := r.Figures("", []Target{part("A", "time", Upstream, 0.15), multiple("A", "time", Upstream, 0.2),
		part("B", "time", Upstream, 1)}).Table()
	want := `| what | measure | keepwatch | upstream | keepwatch / upstream | target |
|---|---|---|---|---|---|
| A | time | 6.00 s | 20.00 s | **0.15×** | ≤ 0.15× upstream, ≥ 0.2× upstream (missed) |
| B | time | 1.00 s | – | – | ≤ 1× upstream (not judged) |
| B | watchers cut off | – | 5 | – |  |
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	r.NextRound()
	r.Add(Upstream, "B", Figure{cutOff, figures.Losses, 0})
	if n := r.value(Upstream, "B", cutOff); n != 5 {
		t.Errorf("%v watchers are cut off, want those of the worst round", n)
	}
}

// Events are compared with writes in the order of revisions. A watcher that was cut off
// counts with the events that it received.
func TestJudge(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	since := func(ms ...int) (all []time.Duration) {
		for _, n := range ms {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	// The second was requested before the first, and committed after it.
	all := []written{{10, at(2)}, {11, at(1)}, {12, at(1002)}}
	c := &watcherGroup{start: began, watchers: []*watcher{{arrivals: since(12, 12, 1012)}, {arrivals: since(22)}}}
	measured, err := c.judge(all, usage{cpu: 40 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"events delivered": 4, perEvent: 0.01, p50: 0.011, p99: 0.02, behind: 0.01,
		"updates per second": 3}
	for _, f := range measured {
		if f.Value != want[f.Measure] {
			t.Errorf("%s is %v, want %v", f.Measure, f.Value, want[f.Measure])
		}
		delete(want, f.Measure)
	}
	if len(want) > 0 {
		t.Errorf("no figure for %v", want)
	}
	if _, err := c.judge(all[:2], usage{}); err == nil {
		t.Error("no error for a watcher that received more events than were written")
	}
}
