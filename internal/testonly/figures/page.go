package figures

import (
	"fmt"
	"regexp"
	"strings"
)

// place is where a table stands.
type place struct {
	page, name string // name is in its markers
	part       string
	table
}

const (
	notes      = "docs/notes-performance.md"
	growthPage = "docs/growth.md"
)

// places are the tables that are written from runs.
var places = []place{
	{notes, "first-lists", "kubernetes-first", byRow("list", named("^first "),
		column{"server CPU", "server CPU", "upstream"}, column{"time", "time", "upstream"},
		column{"peak RSS growth", "peak RSS growth", "upstream"})},
	{notes, "idle-watchers", "kubernetes-first", byRow("", named("^idle"),
		column{"memory of one", "memory per watcher", "upstream"},
		column{"time to open one", "time to open one", "upstream"})},
	{notes, "idle-watchers-routine", "kubernetes-idle-routine", byRow("", named("^idle"),
		column{"memory of one", "memory per watcher", "upstream"},
		column{"time to open one", "time to open one", "upstream"})},
	{notes, "store", "store", sideBySide("objects", "operation")},
	{"docs/judge.md", "judge", "judge", sideBySide("", "measure")},
	{growthPage, "growth", "growth", byRow("server CPU", named(""), column{"10,000", "10,000", "kube-apiserver"},
		column{"40,000", "40,000", "kube-apiserver"}, column{"160,000", "160,000", "kube-apiserver"},
		column{"exponent", "exponent", "kube-apiserver"})},
	{growthPage, "nodes", "nodes", byRow("", named(""), column{"server CPU of an update", "server CPU per update",
		"kube-apiserver"}, column{"p50", "p50 latency", "kube-apiserver"},
		column{"p99", "p99 latency", "kube-apiserver"},
		column{"delivered, %", "updates delivered, %", "kube-apiserver"})},
	{growthPage, "overload", "fanout", overload},
	{growthPage, "overload-history", "fanout-history", overload},
}

// overload has more updates than the machine can deliver.
var overload = byRow("watchers × updates", named("^100 watchers × 1000|^1000 watchers × 200/"),
	column{"events delivered", "events delivered", "kube-apiserver"},
	column{"… plain Go", "events delivered", "plain Go"}, column{"CPU of an event", "server CPU per event", "plain Go"},
	column{"p50", "p50 latency", "plain Go"}, column{"cut off", "watchers cut off", "kube-apiserver"})

// named names the rows that a regular expression matches.
func named(pattern string) func(row string) bool { return regexp.MustCompile(pattern).MatchString }

// markers returns the lines around a table.
func (p place) markers() (begin, end string) {
	return fmt.Sprintf("<!-- make figures writes the table %s -->\n", p.name), "<!-- end of the table -->\n"
}

// write returns the text of the page with the table of a run.
func (p place) write(text string, r *Run) (string, error) {
	return p.replace(text, p.table(r)+"\n"+origin(r))
}

// replace returns the text of the page with other lines between the markers.
func (p place) replace(text, lines string) (string, error) {
	begin, end := p.markers()
	head, rest, hasBegin := strings.Cut(text, begin)
	_, tail, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("%s has no place for the table %s: it needs the lines %q and %q", p.page, p.name, begin, end)
	}
	return head + begin + lines + end + tail, nil
}

// origin says where the figures of a table come from.
func origin(r *Run) string {
	from := fmt.Sprintf("%s, commit %s, %s", r.Date.Format("2006-01-02"), r.Commit, r.Machine)
	if r.Seed != "" {
		from += ", seed " + r.Seed
	}
	text := fmt.Sprintf("%s: `%s`.\n", from, r.Command)
	for _, failure := range r.Failed {
		text += "Failed: " + failure + ".\n"
	}
	return text
}
