// Package served measures API servers on the contents of one etcd: keepwatch serve, kube-apiserver, and
// a plain Go server that writes the same bytes without encoding them; keepwatch-apiserver in both
// of its modes; and keepwatch proxy in front of kube-apiserver.
package served

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
)

// Contender is a server that is measured.
type Contender string

// The contenders. Keepwatch is keepwatch serve, keepwatch-apiserver with its own reads, or keepwatch proxy.
const (
	Keepwatch     Contender = "keepwatch"
	KubeAPIServer Contender = "kube-apiserver"
	PlainGo       Contender = "plain Go"
	// Upstream is keepwatch-apiserver with --reads=upstream.
	Upstream Contender = "upstream"
)

// Unit is the unit of a figure, and its format.
type Unit int

// The units.
const (
	Count Unit = iota
	Seconds
	Bytes
	// Losses is a count of failures: of several rounds the worst one counts.
	Losses
	// Exponent is that of a power law.
	Exponent
)

func (u Unit) format(value float64) string {
	switch {
	case math.IsNaN(value):
		return "–"
	case u == Exponent:
		return fmt.Sprintf("%.2f", value)
	case u == Seconds && math.Abs(value) < 1e-3:
		return fmt.Sprintf("%.3g µs", value*1e6)
	case u == Seconds && math.Abs(value) < 1:
		return fmt.Sprintf("%.3g ms", value*1e3)
	case u == Seconds:
		return fmt.Sprintf("%.2f s", value)
	case u == Bytes && math.Abs(value) < 1e6:
		return fmt.Sprintf("%.1f KB", value/1e3)
	case u == Bytes && math.Abs(value) < 1e9:
		return fmt.Sprintf("%.0f MB", value/1e6)
	case u == Bytes:
		return fmt.Sprintf("%.2f GB", value/1e9)
	}
	return fmt.Sprintf("%.6g", value)
}

// Figure is one measured value of a row.
type Figure struct {
	Measure string
	Unit    Unit
	Value   float64
}

func seconds(measure string, d time.Duration) Figure { return Figure{measure, Seconds, d.Seconds()} }
func size[N int | int64 | float64](measure string, n N) Figure {
	return Figure{measure, Bytes, float64(n)}
}
func count(measure string, n int) Figure { return Figure{measure, Count, float64(n)} }

// line is one of the table's.
type line struct {
	row, measure string
	unit         Unit
	rounds       map[Contender]map[int]float64
}

// Report compares Keepwatch with peers. It collects the figures of all rounds and logs each when it is
// added.
type Report struct {
	peers  []Contender
	log    func(format string, args ...any)
	began  time.Time
	round  int
	lines  []*line
	failed []string // steps without figures
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
func (r *Report) Add(by Contender, row string, figures ...Figure) {
	words := make([]string, len(figures))
	for i, f := range figures {
		r.line(row, f).set(by, r.round, f.Value)
		words[i] = f.Measure + " " + f.Unit.format(f.Value)
	}
	r.Progress("%s: %s: %s", by, row, strings.Join(words, ", "))
}

func (r *Report) line(row string, f Figure) *line {
	for _, l := range r.lines {
		if l.row == row && l.measure == f.Measure {
			return l
		}
	}
	l := &line{row: row, measure: f.Measure, unit: f.Unit, rounds: map[Contender]map[int]float64{}}
	r.lines = append(r.lines, l)
	return l
}

func (l *line) set(by Contender, round int, value float64) {
	if l.rounds[by] == nil {
		l.rounds[by] = map[int]float64{}
	}
	l.rounds[by][round] = value
}

// value returns the median of the rounds, or NaN if none has a figure.
func (l *line) value(by Contender) float64 {
	measured := slices.Collect(maps.Values(l.rounds[by]))
	switch {
	case len(measured) == 0 || slices.ContainsFunc(measured, math.IsNaN):
		return math.NaN()
	case l.unit == Losses:
		return slices.Max(measured)
	}
	return median(measured)
}

// ratio returns the median of the ratios of the rounds in which both are measured.
func (l *line) ratio(to Contender) float64 {
	var ratios []float64
	for round, value := range l.rounds[Keepwatch] {
		if other, ok := l.rounds[to][round]; ok {
			ratios = append(ratios, value/other)
		}
	}
	if len(ratios) == 0 {
		return math.NaN()
	}
	return median(ratios)
}

// find returns the line of a measure, or an empty one.
func (r *Report) find(row, measure string) *line {
	for _, l := range r.lines {
		if l.row == row && l.measure == measure {
			return l
		}
	}
	return &line{}
}

// value is NaN if it was not measured.
func (r *Report) value(by Contender, row, measure string) float64 {
	return r.find(row, measure).value(by)
}

// Failed returns the steps that failed, in any round.
func (r *Report) Failed() []string { return r.failed }

// Table returns the report in Markdown, with the targets.
func (r *Report) Table(targets []Target) string {
	for _, t := range targets {
		r.line(t.Row, Figure{Measure: t.Measure}) // also for rows that were not measured
	}
	var b strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	head, rule := []string{"what", "measure"}, "|---|---|---|---|"
	for i, peer := range r.peers {
		head = append(head, string(peer))
		if i == 0 {
			head, rule = append(head, string(Keepwatch)), rule+"---|"
		}
		head, rule = append(head, fmt.Sprintf("%s / %s", Keepwatch, peer)), rule+"---|---|"
	}
	row(append(head, "target", "")...)
	b.WriteString(rule + "\n")
	for _, l := range r.lines {
		cells := []string{l.row, l.measure}
		for i, peer := range r.peers {
			cells = append(cells, l.unit.format(l.value(peer)))
			if i == 0 {
				cells = append(cells, l.unit.format(l.value(Keepwatch)))
			}
			cells = append(cells, formatRatio(l.ratio(peer)))
		}
		var goals, verdicts []string
		for _, t := range targets {
			if t.Row == l.row && t.Measure == l.measure {
				goals = append(goals, t.Goal)
				verdicts = append(verdicts, t.verdict(r))
			}
		}
		row(append(cells, strings.Join(goals, ", "), strings.Join(verdicts, ", "))...)
	}
	return b.String()
}

// storedUnits are the units of figures as they are stored.
var storedUnits = map[Unit]figures.Unit{Count: figures.Count, Seconds: figures.Seconds, Bytes: figures.Bytes,
	Losses: figures.Losses, Exponent: figures.Exponent}

// Figures returns the report for the documentation, with the targets. target is the Makefile's.
func (r *Report) Figures(target string, targets []Target) *figures.Run {
	peers := make([]string, len(r.peers))
	for i, peer := range r.peers {
		peers[i] = string(peer)
	}
	run := figures.NewRun(target, peers...)
	run.Failed = r.failed
	for _, l := range r.lines {
		f := run.Of(l.row, l.measure, storedUnits[l.unit])
		for by, rounds := range l.rounds {
			for round, value := range rounds {
				f.Set(string(by), round, value)
			}
		}
		var goals []string
		for _, t := range targets {
			if t.Row == l.row && t.Measure == l.measure {
				goals = append(goals, t.Goal)
				f.Missed = f.Missed || t.verdict(r) == missed
			}
		}
		f.Goal = strings.Join(goals, ", ")
	}
	return run
}

func formatRatio(ratio float64) string {
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return "–"
	}
	return fmt.Sprintf("%.3g×", ratio)
}
