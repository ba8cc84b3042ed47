package operators

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/internal/report"
)

//go:embed report.html
var htmlReport string

// Texts of others have no characters that cannot be printed.
var htmlTemplate = template.Must(template.New("report").
	Funcs(template.FuncMap{"printable": report.Printable}).Parse(htmlReport))

// PrintHTML writes the report as one page that needs no other file, no script and no network: the plans, and each
// finding with a timeline of the writes that led to it.
func (r *Report) PrintHTML(w io.Writer) error {
	page := htmlPage{Report: r, Plans: r.planCounts(), Took: r.Took.Round(time.Second), Gaps: r.gaps()}
	for _, f := range r.Findings {
		page.Shown = append(page.Shown, r.htmlFinding(f))
	}
	return htmlTemplate.Execute(w, page)
}

// htmlPage is what the page shows.
type htmlPage struct {
	*Report
	Plans []planCount
	Shown []htmlFinding
	Took  time.Duration
	Gaps  []string
}

// htmlFinding is a finding on the page.
type htmlFinding struct {
	Finding
	Verdict, Sentence, What string
	Smallest                string // what is left of the plan and the workload, if something was left out
	Facts, Lines            []string
	Repeat                  string
	Timeline                *timeline // nil without requests
}

func (r *Report) htmlFinding(f Finding) htmlFinding {
	seen := f
	shown := htmlFinding{
		Finding: f, Verdict: f.Verdict.String(), Sentence: f.Verdict.Sentence(), What: f.what(), Repeat: r.Repeat(f),
	}
	if f.Smallest != nil {
		seen = *f.Smallest
		shown.Smallest = fmt.Sprintf("in %d of %d runs: %s", seen.Shown, seen.Of, seen.less())
	}
	shown.Facts = seen.Facts
	for _, q := range seen.Requests {
		shown.Lines = append(shown.Lines, q.String())
	}
	if len(seen.Requests) > 0 {
		shown.Timeline = newTimeline(seen.Requests)
	}
	return shown
}

// timeline is a drawing of requests: a lane an object, from left to right in time.
type timeline struct {
	Width, Height int
	Lanes         []timelineLane
	Marks         []timelineMark
	Starts        []timelineNote // of the operator
	Notes         []timelineNote // what the judge did
	Ticks         []timelineNote
}

type timelineLane struct {
	Y    int
	Name string
}

// timelineMark is a write. Class is accepted, refused or unanswered.
type timelineMark struct {
	X, Y        int
	Class, Text string
}

// timelineNote is a moment of all lanes.
type timelineNote struct {
	X    int
	Text string
}

// The drawing's measures. Objects after the last lane share one.
const (
	timelineWidth  = 1000
	timelineNames  = 330
	timelineMargin = 20
	timelineTop    = 34
	timelineLanes  = 20
	laneHeight     = 22
	nameLength     = 52
)

func newTimeline(requests []Request) *timeline {
	t := &timeline{Width: timelineWidth}
	first, last := requests[0].After, requests[0].After
	for _, q := range requests {
		first, last = min(first, q.After), max(last, q.After)
	}
	x := func(at time.Duration) int {
		room := timelineWidth - timelineNames - 2*timelineMargin
		return timelineNames + timelineMargin + int(int64(room)*int64(at-first)/int64(max(last-first, 1)))
	}
	instance := -1
	for _, q := range requests {
		if q.Verb == "" {
			t.Notes = append(t.Notes, timelineNote{x(q.After), q.String()})
			continue
		}
		if q.Instance != instance {
			instance = q.Instance
			t.Starts = append(t.Starts, timelineNote{x(q.After), fmt.Sprintf("[%d]", instance)})
		}
		t.Marks = append(t.Marks, timelineMark{x(q.After), t.lane(q.Place), q.class(), q.String()})
	}
	t.Height = t.Bottom() + timelineMargin
	for i := range 5 {
		at := first + (last-first)*time.Duration(i)/4
		t.Ticks = append(t.Ticks, timelineNote{x(at), fmt.Sprintf("%.3f s", at.Seconds())})
	}
	return t
}

// Bottom is where the lanes end.
func (t *timeline) Bottom() int { return timelineTop + len(t.Lanes)*laneHeight + timelineMargin/2 }

// lane returns the middle of an object's lane.
func (t *timeline) lane(p Place) int {
	name := p.Resource + " " + p.object()
	if text := []rune(name); len(text) > nameLength {
		name = "…" + string(text[len(text)-nameLength+1:])
	}
	at := slices.IndexFunc(t.Lanes, func(l timelineLane) bool { return l.Name == name })
	switch {
	case at >= 0:
	case len(t.Lanes) == timelineLanes:
		at = timelineLanes - 1
		t.Lanes[at].Name = "other objects"
	default:
		at = len(t.Lanes)
		t.Lanes = append(t.Lanes, timelineLane{timelineTop + at*laneHeight + laneHeight/2, name})
	}
	return t.Lanes[at].Y
}

// class says how a write was answered.
func (q Request) class() string {
	switch {
	case q.Status == 0:
		return "unanswered"
	case q.Status < 400:
		return "accepted"
	}
	return "refused"
}
