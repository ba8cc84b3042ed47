package figures

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// place is where a table stands.
type place struct {
	page, name string // name is in its markers
	part       string
	// byHand is set if the table was typed before its benchmark could record it: it stays until there is a run.
	byHand bool
	table
}

const (
	performance = "docs/performance.md"
	notes       = "docs/notes-performance.md"
	growthPage  = "docs/growth.md"
)

// places are the tables that are written from runs.
var places = []place{
	{performance, "serve-lists", "real", true, byRow("list", named("LIST|WatchList"),
		column{"time", "time", "kube-apiserver"}, column{"server CPU", "server CPU", "kube-apiserver"},
		column{"peak RSS growth", "peak RSS growth", "kube-apiserver"},
		column{"server CPU of plain Go", "server CPU", "plain Go"})},
	{performance, "serve-fanout", "real", true, fanOut("kube-apiserver", column{"server CPU of an event of plain Go",
		"server CPU per event", "plain Go"})},
	{performance, "serve-start", "real", true, only(atRest, sideBySide("", "measure"))},
	{performance, "kubernetes-lists", "kubernetes", true, byRow("list", named("^LIST|^WatchList"),
		column{"server CPU", "server CPU", "upstream"})},
	{performance, "kubernetes-start", "kubernetes", true, only(atRest, sideBySide("", "measure"))},
	{notes, "kubernetes-fanout", "kubernetes", true, fanOut("upstream")},
	{notes, "kubernetes-writes", "kubernetes", true, byRow("kind", named(" writers?$"),
		column{"writes per second", "writes per second", "upstream"},
		column{"server CPU of a write", "server CPU per write", "upstream"},
		column{"p99 of a write", "p99 of a write", "upstream"})},
	{performance, "proxy-lists", "proxy", true, byRow("list", named("^LIST"), column{"time", "time", "kube-apiserver"},
		column{"server CPU", "server CPU", "kube-apiserver"})},
	{performance, "proxy-fanout", "proxy", true, fanOut("kube-apiserver", column{"kube-apiserver's CPU",
		"kube-apiserver's CPU", "kube-apiserver"})},
	{performance, "proxy-rest", "proxy", true, only(func(row string) bool { return !named("^LIST|watchers × ")(row) },
		sideBySide("", "measure"))},
	{performance, "sync", "sync", true, byRow("sink", named(""),
		column{"first list, of `keepwatch serve`", "first list of serve", ""},
		column{"… of its CPU", "first list of serve, of the command's CPU", ""},
		column{"first list", "first list", ""}, column{"… of its CPU", "first list, of the command's CPU", ""},
		column{"changes", "changes", ""}, column{"… of its CPU", "changes, of the command's CPU", ""},
		column{"peak memory", "peak RSS", ""}, column{"own", "peak RSS without pages of files", ""})},
	{notes, "first-lists", "kubernetes-first", false, byRow("list", named("^first "),
		column{"server CPU", "server CPU", "upstream"}, column{"time", "time", "upstream"},
		column{"peak RSS growth", "peak RSS growth", "upstream"})},
	{notes, "idle-watchers", "kubernetes-first", false, idleWatchers},
	{notes, "idle-watchers-routine", "kubernetes-idle-routine", false, idleWatchers},
	{notes, "store", "store", false, sideBySide("objects", "operation")},
	{"docs/history.md", "history", "history", true, byRow("", measured, column{"time", "time", ""},
		column{"CPU", "CPU", ""}, column{"peak memory", "peak memory", ""}, column{"bytes of a state", "bytes of a state", ""})},
	{"docs/judge.md", "judge", "judge", false, sideBySide("", "measure")},
	{"docs/proxy-limits.md", "neighbours", "neighbours", false, byRow("meanwhile", named(""),
		column{"p99", "p99 of a well-behaved user", "quiet"},
		column{"answers to the others in a second", "answers to the others in a second", ""}, column{"most memory in use", "most memory in use", ""})},
	{growthPage, "growth", "growth", false, byRow("server CPU", named(""), column{"10,000", "10,000", "kube-apiserver"},
		column{"40,000", "40,000", "kube-apiserver"}, column{"160,000", "160,000", "kube-apiserver"},
		column{"exponent", "exponent", "kube-apiserver"})},
	{growthPage, "nodes", "nodes", false, byRow("", named(""), column{"server CPU of an update", "server CPU per update",
		"kube-apiserver"}, column{"p50", "p50 latency", "kube-apiserver"},
		column{"p99", "p99 latency", "kube-apiserver"},
		column{"delivered, %", "updates delivered, %", "kube-apiserver"})},
	{"docs/sizing.md", "sizes", "sizes", false, byRow("", named(""), column{"RSS at rest", "RSS at rest", ""},
		column{"… without pages of files", "RSS at rest without pages of files", ""},
		column{"RSS after lists", "RSS after lists", ""}, column{"peak", "peak RSS", ""},
		column{"CPU until complete", "CPU until complete", ""}, column{"of a create", "CPU of a create", ""},
		column{"of a list as JSON", "CPU of the first list as JSON", ""}, column{"… again", "CPU of a list as JSON", ""},
		column{"of a list as protobuf", "CPU of the first list as protobuf", ""},
		column{"… again", "CPU of a list as protobuf", ""}, column{"disk", "disk", ""})},
	{growthPage, "small-sync", "sync-million", false, smallSinks},
	{growthPage, "overload", "fanout", false, overload},
	{growthPage, "overload-history", "fanout-history", false, overload},
}

// smallSinks has the sinks of keepwatch sync with small objects.
var smallSinks = byRow("sink", named(""), column{"first list", "first list", ""},
	column{"… of its CPU", "first list, of the command's CPU", ""}, column{"changes", "changes", ""},
	column{"… of its CPU", "changes, of the command's CPU", ""}, column{"peak memory", "peak RSS", ""},
	column{"own", "peak RSS without pages of files", ""})

var idleWatchers = byRow("", named("^idle"), column{"memory of one", "memory per watcher", "upstream"},
	column{"time to open one", "time to open one", "upstream"})

// measured names the rows but that of the machine's load.
var measured = named("^[^l]")

// atRest names the rows of starts, restarts and memory.
var atRest = named("^start|^at rest|^restart|^idle")

// fanOut has a line for each number of watchers.
func fanOut(peer string, more ...column) table {
	return byRow("watchers × events", named("^[1-9][0-9]* watchers × "), slices.Concat([]column{
		{"server CPU of an event", "server CPU per event", peer}, {"p50", "p50 latency", peer}, {"p99", "p99 latency", peer},
		{"watchers cut off", "watchers cut off", peer}}, more)...)
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
