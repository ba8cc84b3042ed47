package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// graphEvery is the time between two points of the graph, and graphPoints is how many there are: a quarter of an hour.
	graphEvery, graphPoints = 15 * time.Second, 61
	// graphWidth and graphHeight are the size of the graph in its own units.
	graphWidth, graphHeight = 600, 120
)

// recent are the numbers of reads in the last quarter of an hour. It is safe for concurrent use.
type recent struct {
	mu     sync.Mutex
	points []readTotals // oldest first, graphEvery apart; the last ones of graphPoints
}

// readTotals are how many reads were answered so far.
type readTotals struct{ memory, server uint64 }

func totalsOf(all []ReadsStatus) (t readTotals) {
	for _, r := range all {
		t.memory += r.Memory.Gets + r.Memory.Lists + r.Memory.Watches
		t.server += r.Forwarded.Gets + r.Forwarded.Lists + r.Forwarded.Watches
	}
	return t
}

// run adds a point again and again until ctx ends.
func (r *recent) run(ctx context.Context, totals func() readTotals) {
	r.add(totals())
	tick := time.NewTicker(graphEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.add(totals())
		case <-ctx.Done():
			return
		}
	}
}

func (r *recent) add(t readTotals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.points = append(r.points, t)
	r.points = r.points[max(0, len(r.points)-graphPoints):]
}

// status returns how many reads were answered between two points, oldest first.
func (r *recent) status() (all []RecentReads) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.points); i++ {
		all = append(all, RecentReads{r.points[i].memory - r.points[i-1].memory, r.points[i].server - r.points[i-1].server})
	}
	return all
}

// RecentReads are the reads of 15 seconds.
type RecentReads struct {
	Memory uint64 `json:"memory"`
	Server uint64 `json:"server"`
}

// graph is the last quarter of an hour as a picture.
type graph struct {
	// Memory and All are the points of two lines: the reads that memory has answered, and all.
	Memory, All string
	Text        string // says the same
	Most        string // the number at the upper edge
}

// Graph returns the picture of the last quarter of an hour, nil if there is nothing to show yet.
func (s Status) Graph() *graph {
	if len(s.Recent) == 0 {
		return nil
	}
	var most, memory, all uint64
	for _, r := range s.Recent {
		most = max(most, r.Memory+r.Server)
		memory, all = memory+r.Memory, all+r.Memory+r.Server
	}
	span := time.Duration(len(s.Recent)) * graphEvery
	return &graph{
		Memory: s.line(most, func(r RecentReads) uint64 { return r.Memory }),
		All:    s.line(most, func(r RecentReads) uint64 { return r.Memory + r.Server }),
		Text:   fmt.Sprintf("In the last %s, memory has answered %d of %d reads.", span, memory, all),
		Most:   fmt.Sprintf("%.1f reads a second", float64(most)/graphEvery.Seconds()),
	}
}

// line returns the points of a line in SVG; the newest is at the right edge.
func (s Status) line(most uint64, value func(RecentReads) uint64) string {
	var points strings.Builder
	for i, r := range s.Recent {
		x := graphWidth - float64(len(s.Recent)-1-i)*graphWidth/(graphPoints-2)
		y := graphHeight - float64(value(r))*graphHeight/float64(max(most, 1))
		fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
	}
	return strings.TrimSpace(points.String())
}
