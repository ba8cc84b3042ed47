// Package served measures keepwatch serve and kube-apiserver on the contents of one etcd,
// and a plain Go server that writes the same bytes without encoding them.
package served

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Contender is a server that is measured.
type Contender int

// The contenders, in the order they are measured in.
const (
	KubeAPIServer Contender = iota
	Keepwatch
	PlainGo
	contenders
)

func (c Contender) String() string {
	return [contenders]string{"kube-apiserver", "keepwatch", "plain Go"}[c]
}

// Unit is the unit of a figure, and its format.
type Unit int

// The units.
const (
	Count Unit = iota
	Seconds
	Bytes
)

func (u Unit) format(value float64) string {
	switch {
	case math.IsNaN(value):
		return "–"
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
	values       [contenders]float64 // NaN is not measured
}

// Report collects the figures and logs each when it is added.
type Report struct {
	log   func(format string, args ...any)
	began time.Time
	lines []*line
}

// NewReport begins a report; log gets the progress.
func NewReport(log func(format string, args ...any)) *Report {
	return &Report{log: log, began: time.Now()}
}

// Progress logs a line with the time since the start.
func (r *Report) Progress(format string, args ...any) {
	at := time.Since(r.began).Round(time.Second)
	r.log("%3d:%02d  %s", int(at.Minutes()), int(at.Seconds())%60, fmt.Sprintf(format, args...))
}

// Add adds a contender's figures to a row.
func (r *Report) Add(by Contender, row string, figures ...Figure) {
	words := make([]string, len(figures))
	for i, f := range figures {
		r.line(row, f).values[by] = f.Value
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
	l := &line{row: row, measure: f.Measure, unit: f.Unit}
	for by := range l.values {
		l.values[by] = math.NaN()
	}
	r.lines = append(r.lines, l)
	return l
}

// value is NaN if it was not measured.
func (r *Report) value(by Contender, row, measure string) float64 {
	for _, l := range r.lines {
		if l.row == row && l.measure == measure {
			return l.values[by]
		}
	}
	return math.NaN()
}

// Table returns the report in Markdown, with the targets.
func (r *Report) Table(targets []Target) string {
	for _, t := range targets {
		r.line(t.Row, Figure{Measure: t.Measure}) // also for rows that were not measured
	}
	var b strings.Builder
	b.WriteString("| what | measure | kube-apiserver | keepwatch | keepwatch / kube-apiserver | plain Go | keepwatch / plain Go | target | |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, l := range r.lines {
		var goals, verdicts []string
		for _, t := range targets {
			if t.Row == l.row && t.Measure == l.measure {
				goals = append(goals, t.Goal)
				verdicts = append(verdicts, t.verdict(r))
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", l.row, l.measure,
			l.unit.format(l.values[KubeAPIServer]), l.unit.format(l.values[Keepwatch]), l.ratio(KubeAPIServer),
			l.unit.format(l.values[PlainGo]), l.ratio(PlainGo), strings.Join(goals, ", "), strings.Join(verdicts, ", "))
	}
	return b.String()
}

func (l *line) ratio(to Contender) string {
	ratio := l.values[Keepwatch] / l.values[to]
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return "–"
	}
	return fmt.Sprintf("%.3g×", ratio)
}
