package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// graphEvery is the time between two points of the graph, and graphPoints is how many there are: a quarter of an hour.
	graphEvery, graphPoints = 15 * time.Second, 61
	// graphWidth and graphHeight are the size of the graph in its own units.
	graphWidth, graphHeight = 600, 120
)

// recent are the numbers of reads in the last quarter of an hour: of all, by resource, and by client. It is safe for
// concurrent use.
type recent struct {
	mu     sync.Mutex
	begun  bool
	points map[readsOf][]readTotals // oldest first, graphEvery apart; the last ones of graphPoints
}

// readsOf is whose reads are counted: all if it is empty.
type readsOf struct {
	resource schema.GroupVersionResource
	client   string
	each     bool // of one resource, or of one client
}

// readTotals are how many reads were answered so far. Neither number ever falls.
type readTotals struct{ memory, server uint64 }

func (t *readTotals) add(r ReadsStatus) {
	t.memory += r.Memory.Gets + r.Memory.Lists + r.Memory.Watches
	t.server += r.Forwarded.Gets + r.Forwarded.Lists + r.Forwarded.Watches
}

// totals returns how many reads were answered so far.
func (p *Proxy) totals() map[readsOf]readTotals {
	all, totals := readTotals{}, map[readsOf]readTotals{}
	for _, r := range p.savings.status() {
		var own readTotals
		own.add(r)
		all.add(r)
		totals[r.readsOf()] = own
	}
	for _, c := range p.clients.status() {
		totals[c.readsOf()] = readTotals{c.memory, c.Forwarded}
	}
	totals[readsOf{}] = all
	return totals
}

func (r ReadsStatus) readsOf() readsOf {
	return readsOf{resource: schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource},
		each: true}
}

func (c ClientStatus) readsOf() readsOf { return readsOf{client: c.UserAgent, each: true} }

// run adds a point again and again until ctx ends.
func (r *recent) run(ctx context.Context, totals func() map[readsOf]readTotals) {
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

func (r *recent) add(totals map[readsOf]readTotals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.points == nil {
		r.points = map[readsOf][]readTotals{}
	}
	for of, t := range totals {
		points := r.points[of]
		if points == nil && r.begun {
			points = []readTotals{{}} // it has begun since the last point
		}
		points = append(points, t)
		r.points[of] = points[max(0, len(points)-graphPoints):]
	}
	r.begun = true
}

// status returns how many reads were answered between two points, oldest first.
func (r *recent) status(of readsOf) (all []RecentReads) {
	r.mu.Lock()
	defer r.mu.Unlock()
	points := r.points[of]
	for i := 1; i < len(points); i++ {
		all = append(all, RecentReads{points[i].memory - points[i-1].memory, points[i].server - points[i-1].server})
	}
	return all
}

// RecentReads are the reads of 15 seconds.
type RecentReads struct {
	Memory uint64 `json:"memory"`
	Server uint64 `json:"server"`
}

// sum adds two series, which end at the same time.
func sum(a, b []RecentReads) []RecentReads {
	if len(a) < len(b) {
		a, b = b, a
	}
	all := slices.Clone(a)
	for i, r := range b {
		at := &all[len(a)-len(b)+i]
		at.Memory, at.Server = at.Memory+r.Memory, at.Server+r.Server
	}
	return all
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
		Memory: line(s.Recent, most, graphWidth, graphHeight, fromMemory),
		All:    line(s.Recent, most, graphWidth, graphHeight, inAll),
		Text:   fmt.Sprintf("In the last %s, memory has answered %d of %d reads.", span, memory, all),
		Most:   fmt.Sprintf("%.1f reads a second", float64(most)/graphEvery.Seconds()),
	}
}

func fromMemory(r RecentReads) uint64 { return r.Memory }
func inAll(r RecentReads) uint64      { return r.Memory + r.Server }

// line returns the points of a line in SVG; the newest is at the right edge.
func line(recent []RecentReads, most uint64, width, height float64, value func(RecentReads) uint64) string {
	var points strings.Builder
	for i, r := range recent {
		x := width - float64(len(recent)-1-i)*width/(graphPoints-2)
		y := height - float64(value(r))*height/float64(max(most, 1))
		fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
	}
	return strings.TrimSpace(points.String())
}

// sparkWidth and sparkHeight are the size of the graph of one row, in its own units.
const sparkWidth, sparkHeight = 120, 20

// Spark returns the picture of one row of a table, nil if there is nothing to show.
func Spark(recent []RecentReads) *graph {
	var most, memory, all uint64
	for _, r := range recent {
		most = max(most, inAll(r))
		memory, all = memory+fromMemory(r), all+inAll(r)
	}
	if most == 0 {
		return nil
	}
	return &graph{
		Memory: line(recent, most, sparkWidth, sparkHeight, fromMemory),
		All:    line(recent, most, sparkWidth, sparkHeight, inAll),
		Text:   fmt.Sprintf("%d of %d from memory", memory, all),
	}
}

// bars are the heights of Bars, of which each takes one column of any terminal; nothing is a space.
const bars = " .:-=+*#"

// Bars returns the reads of the last quarter of an hour as text, a character a minute, the last one at the end.
func Bars(recent []RecentReads) string {
	const each, all = int(time.Minute / graphEvery), graphPoints * int(graphEvery) / int(time.Minute)
	var minutes []uint64
	for end := len(recent); end > 0; end -= each {
		var n uint64
		for _, r := range recent[max(0, end-each):end] {
			n += inAll(r)
		}
		minutes = append(minutes, n)
	}
	slices.Reverse(minutes)
	var text strings.Builder
	text.WriteString(strings.Repeat(bars[:1], max(0, all-len(minutes))))
	for _, n := range minutes {
		height := 0
		if n > 0 {
			height = 1 + int(n*uint64(len(bars)-2)/slices.Max(minutes))
		}
		text.WriteByte(bars[height])
	}
	return text.String()
}
