// Package served measures API servers on the contents of one etcd: keepwatch serve, kube-apiserver, and
// a plain Go server that writes the same bytes without encoding them; keepwatch-apiserver in both
// of its modes; and keepwatch proxy in front of kube-apiserver.
package served

import (
	"fmt"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// Contender is a server that is measured.
type Contender = string

// The contenders. Keepwatch is keepwatch serve, keepwatch-apiserver with its own reads, or keepwatch proxy.
const (
	Keepwatch     Contender = figures.Ours
	KubeAPIServer Contender = "kube-apiserver"
	PlainGo       Contender = "plain Go"
	// Upstream is keepwatch-apiserver with --reads=upstream.
	Upstream Contender = "upstream"
)

// Figure is one measured value of a row.
type Figure struct {
	Measure string
	Unit    figures.Unit
	Value   float64
}

func seconds(measure string, d time.Duration) Figure {
	return Figure{measure, figures.Seconds, d.Seconds()}
}
func size[N int | int64 | float64](measure string, n N) Figure {
	return Figure{measure, figures.Bytes, float64(n)}
}
func count(measure string, n int) Figure { return Figure{measure, figures.Count, float64(n)} }

// Report compares Keepwatch with peers. It collects the figures of all rounds and logs each when it is
// added.
type Report struct {
	peers []Contender
	log   func(format string, args ...any)
	began time.Time
	round int
	run   figures.Run
}

// NewReport begins a report with its first round; log gets the progress.
func NewReport(log func(format string, args ...any), peers ...Contender) *Report {
	return &Report{peers: peers, log: log, began: time.Now()}
}

// NextRound begins a round, in which everything is measured again.
func (r *Report) NextRound() { r.round++ }

// Progress logs a line with the time since the start.
func (r *Report) Progress(format string, args ...any) {
	at := time.Since(r.began).Round(time.Second)
	r.log("%3d:%02d  %s", int(at.Minutes()), int(at.Seconds())%60, fmt.Sprintf(format, args...))
}

// Add adds a contender's figures to a row.
func (r *Report) Add(by Contender, row string, measured ...Figure) {
	words := make([]string, len(measured))
	for i, f := range measured {
		r.run.Of(row, f.Measure, f.Unit).Set(by, r.round, f.Value)
		words[i] = f.Measure + " " + f.Unit.Format(f.Value)
	}
	r.Progress("%s: %s: %s", by, row, strings.Join(words, ", "))
}

// value is NaN if it was not measured.
func (r *Report) value(by Contender, row, measure string) float64 {
	return r.run.Find(row, measure).Value(by)
}

// Failed returns the steps that failed, in any round.
func (r *Report) Failed() []string { return r.run.Failed }

// Figures returns what was measured, with the targets. target is the Makefile's.
func (r *Report) Figures(target string, targets []Target) *figures.Run {
	run := figures.NewRun(target, r.peers...)
	run.Figures, run.Failed = r.run.Figures, r.run.Failed
	for _, f := range run.Figures {
		var goals []string
		for _, t := range targets {
			if t.Row == f.Row && t.Measure == f.Measure {
				v := t.verdict(r)
				f.Missed = f.Missed || v == missed
				goals = append(goals, t.Goal+string(v))
			}
		}
		f.Goal = strings.Join(goals, ", ")
	}
	return run
}
