package past

import (
	"fmt"
	"time"

	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// The measures of a timeline, in units of its picture.
const (
	drawingWidth = 1200
	drawingLeft  = 300 // of the time axis
	drawingRight = 1190
	laneHeight   = 20
	// markWidth is the width in which the changes of an object are one mark: it bounds the marks of a lane.
	markWidth = 8
	// maxLanes bounds the lanes.
	maxLanes = 40
	// maxTicks bounds the times of the axis.
	maxTicks = 8
	// maxLabel bounds the characters of a lane's name.
	maxLabel = 44
)

// drawing is a timeline as a picture.
type drawing struct {
	From, To                    string
	Width, Height, Bottom, Left int
	Labels                      int // the baseline of the axis' labels
	Ticks                       []tick
	Lanes                       []drawnLane
	LeftOut                     int // lanes
	Gaps                        []drawnSpan
}

// tick is a time of the axis.
type tick struct {
	X                int
	Label, Time, URL string
}

// drawnLane is the lane of an object.
type drawnLane struct {
	Name, Short, URL string
	Text             int // the baseline of its name
	Bars             []bar
	Marks            []mark
}

// bar is a time in which the object existed.
type bar struct{ X, Y, Width int }

// mark is a change, or several that are too close to each other.
type mark struct{ Class, Title, URL, Path string }

// drawnSpan is a time of which the history is missing.
type drawnSpan struct {
	X, Width int
	Title    string
}

// scale maps times to the axis.
type scale struct{ from, to time.Time }

func (s scale) x(t time.Time) int {
	if t.Before(s.from) {
		t = s.from
	}
	if t.After(s.to) {
		t = s.to
	}
	return drawingLeft + int(float64(drawingRight-drawingLeft)*float64(t.Sub(s.from))/float64(s.to.Sub(s.from)))
}

// draw returns the picture of a timeline, whose links change a query.
func draw(t *history.Timeline, q pageQuery) *drawing {
	axis := axisOf(t)
	d := &drawing{
		From: showTime(axis.from), To: showTime(t.To), Width: drawingWidth, Left: drawingLeft - 12,
		LeftOut: t.Objects - len(t.Lanes),
		Bottom:  len(t.Lanes)*laneHeight + 8,
	}
	d.Labels, d.Height = d.Bottom+14, d.Bottom+20
	for _, u := range t.Unknown {
		if u.From.Before(axis.from) {
			u.From = axis.from
		}
		title := fmt.Sprintf("missing from %s to %s: %s", showTime(u.From), showTime(u.To), u.Reason)
		d.Gaps = append(d.Gaps, drawnSpan{axis.x(u.From), max(2, axis.x(u.To)-axis.x(u.From)), title})
	}
	d.Ticks = axis.ticks(q)
	for i, l := range t.Lanes {
		d.Lanes = append(d.Lanes, drawLane(l, i*laneHeight+laneHeight/2+4, axis, q))
	}
	return d
}

// axisOf returns the axis of a timeline. Without a beginning it begins with the first change.
func axisOf(t *history.Timeline) scale {
	axis := scale{t.From, t.To}
	if !t.From.IsZero() {
		return axis
	}
	axis.from = t.To.Add(-window)
	for _, l := range t.Lanes {
		if first := l.Runs[0].First.Time; first.Before(axis.from) {
			axis.from = first
		}
	}
	return axis
}

// showTime returns a time for people.
func showTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// steps are the distances of the axis' times.
var steps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute,
	30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
	365 * 24 * time.Hour,
}

// ticks returns the times of the axis, which link to the list of then.
func (s scale) ticks(q pageQuery) (all []tick) {
	whole, step := s.to.Sub(s.from), steps[len(steps)-1]
	for _, candidate := range steps {
		if whole/candidate <= maxTicks {
			step = candidate
			break
		}
	}
	format := "15:04:05"
	if step >= 12*time.Hour {
		format = "Jan 2 15:04"
	}
	q = q.withoutChange()
	for t := s.from.UTC().Truncate(step).Add(step); t.Before(s.to) && len(all) <= maxTicks; t = t.Add(step) {
		q.At = t.Format(time.RFC3339)
		all = append(all, tick{s.x(t), t.Format(format), showTime(t), q.URL() + "#list"})
	}
	return all
}

// withoutChange returns a query that shows no change.
func (q pageQuery) withoutChange() pageQuery {
	q.Object, q.Since, q.UpTo, q.Status = "", "", "", ""
	return q
}

// drawLane draws the lane of an object around a height.
func drawLane(l history.Lane, y int, axis scale, q pageQuery) drawnLane {
	one := q.withoutChange()
	one.Namespace, one.Name = l.Key.Namespace, l.Key.Name
	d := drawnLane{Name: l.Key.String(), Short: short(l.Key.String()), URL: one.URL(), Text: y + 4, Bars: bars(l, y, axis)}
	for _, run := range l.Runs {
		d.Marks = append(d.Marks, markOf(l, run, axis.x(run.First.Time), y, q))
	}
	return d
}

// bars returns when the object existed.
func bars(l history.Lane, y int, axis scale) (all []bar) {
	begin, exists := axis.from, false
	add := func(end time.Time) {
		if exists {
			all = append(all, bar{axis.x(begin), y - 2, max(1, axis.x(end)-axis.x(begin))})
		}
	}
	for i, run := range l.Runs {
		switch first := run.First; {
		case first.Type == history.Added || first.Type == history.Existed:
			add(first.Time) // of another object with the name
			begin, exists = first.Time, true
		case i == 0:
			exists = true
		case !exists && run.Count > 1: // it was created in the run
			begin, exists = first.Time, true
		}
		if run.Last.Type == history.Deleted {
			add(run.Last.Time)
			exists = false
		}
	}
	add(axis.to)
	return all
}

// short returns the end of a long name, which differs most.
func short(name string) string {
	runes := []rune(name)
	if len(runes) <= maxLabel {
		return name
	}
	return "…" + string(runes[len(runes)-maxLabel+1:])
}

// markOf returns the mark of changes that are shown as one.
func markOf(l history.Lane, run history.Run, x, y int, q pageQuery) mark {
	first, last := run.First, run.Last
	q.Object, q.Since, q.UpTo, q.At, q.Status = l.Key.String(), pointText(first.Point), pointText(last.Point), "", ""
	m := mark{URL: q.URL() + "#difference", Title: changeTitle(last)}
	switch {
	case run.Count > 1:
		m.Class, m.Path = "several", fmt.Sprintf("M%d %dh8v10h-8z", x-4, y-5)
		m.Title = fmt.Sprintf("%d changes from revision %d to %d, the last one %s, %s", run.Count, first.Point.Revision,
			last.Point.Revision,
			last.Type, showTime(last.Time))
		if last.Type == history.Deleted {
			m.Class = "several ended"
		}
	case last.Type == history.Added:
		m.Class, m.Path = "added", fmt.Sprintf("M%d %dl5 9h-10z", x, y-5)
	case last.Type == history.Deleted:
		m.Class, m.Path = "deleted", fmt.Sprintf("M%d %dl8 8m0 -8l-8 8", x-4, y-4)
	default:
		m.Class, m.Path = "modified", fmt.Sprintf("M%d %da4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", x-4, y)
		if last.Type == history.Existed {
			m.Class = "existed"
		}
	}
	return m
}

// changeTitle returns one line about a change.
func changeTitle(e history.Event) string {
	text := fmt.Sprintf("%s at revision %d, %s", e.Type, e.Point.Revision, showTime(e.Time))
	if e.Gap != nil {
		text += fmt.Sprintf(", in the gap from revision %d to %d", e.Gap.From, e.Gap.To)
	}
	return text
}

// pointText returns a point as parsePoint reads it.
func pointText(p sink.Point) string {
	if p.Epoch == 0 {
		return p.Revision.String()
	}
	return fmt.Sprintf("%d.%d", p.Epoch, p.Revision)
}
