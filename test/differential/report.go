package differential

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// samples is how many requests with one cause are shown.
const samples = 3

// Report collects the requests and the differences between the answers. It is safe for
// concurrent use.
type Report struct {
	comparison *Comparison

	mu        sync.Mutex
	asked     map[string]int // by verb and their status
	permitted map[string]int // by exception
	causes    map[string]*cause
}

// cause has the differences at one location.
type cause struct {
	count int
	shown []string
}

// NewReport returns an empty report.
func NewReport(c *Comparison) *Report {
	return &Report{comparison: c, asked: map[string]int{}, permitted: map[string]int{}, causes: map[string]*cause{}}
}

// excuse is the name of the exception for a difference, or nothing.
func (r *Report) excuse(e Exchange, d Difference) string {
	for _, x := range r.comparison.exceptions {
		if x.permits(e, d) {
			return x.name
		}
	}
	return ""
}

// Add compares the answers of an exchange.
func (r *Report) Add(e Exchange) {
	differences := append(r.comparison.Compare(e.Request, e.Theirs, e.Ours), e.Judged...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[fmt.Sprintf("%s %d", e.Request.verb(), e.Theirs.Status)]++
	for _, d := range differences {
		if name := r.excuse(e, d); name != "" {
			r.permitted[name]++
			continue
		}
		where := e.Request.verb() + ": " + d.Where
		c := r.causes[where]
		if c == nil {
			c = &cause{}
			r.causes[where] = c
		}
		c.count++
		if len(c.shown) < samples {
			c.shown = append(c.shown,
				fmt.Sprintf("  %s\n    (revision %d, both follow from %d, compacted at %d)\n    theirs %d: %s\n    ours   %d: %s\n",
					e.Request, e.World.Revision, e.World.Origin, e.World.Compacted, e.Theirs.Status, d.Theirs, e.Ours.Status, d.Ours))
		}
	}
}

// Requests is how many requests were compared, and Answered how many of them were
// answered with 200.
func (r *Report) Requests() (all, answered int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, n := range r.asked {
		all += n
		if what[len(what)-3:] == "200" {
			answered += n
		}
	}
	return all, answered
}

// Differences is how many differences no exception permits.
func (r *Report) Differences() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.causes {
		n += c.count
	}
	return n
}

// Print writes it all for people, the most frequent causes first.
func (r *Report) Print(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(r.asked)) {
		fmt.Fprintf(out, "%6d %s\n", r.asked[what], what)
	}
	for _, name := range slices.Sorted(maps.Keys(r.permitted)) {
		fmt.Fprintf(out, "%6d permitted: %s\n", r.permitted[name], name)
	}
	wheres := slices.SortedFunc(maps.Keys(r.causes), func(a, b string) int {
		return r.causes[b].count - r.causes[a].count
	})
	for _, where := range wheres {
		fmt.Fprintf(out, "\n%6d × %s\n", r.causes[where].count, where)
		for _, text := range r.causes[where].shown {
			fmt.Fprint(out, text)
		}
	}
}
