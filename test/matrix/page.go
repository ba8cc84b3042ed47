package matrix

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// Page is docs/matrix.md and its plots: file contents by name, relative to the folder docs.
func Page(results []Result) map[string][]byte {
	results = slices.Clone(results)
	slices.SortFunc(results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(clientIndex(a), clientIndex(b)), cmp.Compare(planIndex(a), planIndex(b)))
	})
	files := map[string][]byte{}
	var page bytes.Buffer
	page.WriteString(head)
	for _, p := range commanded {
		fmt.Fprintf(&page, "| `%s` | %s |\n", p.Name, p.What)
	}
	page.WriteString(namedHead)
	for _, p := range Plans[len(commanded):] {
		fmt.Fprintf(&page, "| `%s` | %s [Incident](%s) |\n", p.Name, p.What, p.named.Incident)
	}
	if len(results) == 0 {
		page.WriteString("\nNo cell has been measured on a machine without other load yet.\n")
	}
	servers := group(results, func(r Result) string { return string(r.Upstream) })
	if len(servers) > 1 {
		writeComparison(&page, servers)
	}
	for _, of := range servers {
		upstream := string(of[0].Upstream)
		fmt.Fprintf(&page, "\n## Through %s\n", strings.TrimSpace(upstream+" "+of[0].UpstreamVersion))
		for _, p := range []plot{
			{"lists", "LISTs made", "LISTs", func(r Result) (float64, bool) { return float64(r.Lists), true }},
			{"recovery", "Seconds until right again", "s", func(r Result) (float64, bool) { return r.Recovery, r.Outcome == Right }},
		} {
			name := fmt.Sprintf("matrix-%s-%s.svg", upstream, p.name)
			files[name] = p.draw(of)
			fmt.Fprintf(&page, "\n![%s](%s)\n", p.title, name)
		}
		rows := group(of, func(r Result) string { return r.Client })
		writeSummaries(&page, rows)
		for _, of := range rows {
			writeRow(&page, of)
		}
	}
	files["matrix.md"] = page.Bytes()
	return files
}

const head = `# What clients see when something goes wrong

<!-- Generated from test/matrix/results by make matrix-page. -->

Each row is an unmodified client, and each cell one [plan](#plans) of faults between it and a real API server. A program follows the
ConfigMaps of one namespace as the client's documentation shows. A writer creates, changes and deletes them; what it wrote is read from
etcd. The counts begin when the client has the initial state. They are of one run; ` + "`load`" + ` is the machine's load average then.

| column | meaning |
|---|---|
| outcome | within 2 minutes of the last write: **right**, the client's state is the server's; **wrong**, it has the last write, but not the state; **hung**, it does not have the last write; **died**, the process has ended |
| again | seconds from the end of the faults and the last write until the state was right |
| final | names whose state is not the server's at the end |
| states | states that the user never saw, of all writes; a client cannot see those that a list hides |
| deletes | objects that the user knew, that were deleted, and that the user never saw deleted |
| twice | events that the user had seen before |
| broken | violations of the [promises](../doc.go) in the events, by package ` + "`check`" + `; a state that only a list shows is none |
| errors | errors that the client showed its user |
| LISTs, requests, /s | LISTs and streaming lists; these and watches; at most in one second. Refused connections are not seen |

` + "`–`" + ` is not judged: a reconciler (controller-runtime, our operator) is called for a name, not for each change or object, and ` + "`kubectl wait`" + ` waits
for one object. The faults are between the client and the server, whichever it is: what a server spares its clients does not show
here, but that it answers as Kubernetes' own does, also then. One run differs from the next, since the faults that a request meets are
drawn, and how many requests a client makes depends on time. What looks like a fault of a client or a server that could be reported is written up in [findings](findings).

Repeat everything, a row, or a cell, alone on the machine:

    make matrix
    make matrix CLIENT='kopf'
    make matrix CLIENT='kopf' PLAN=compaction SEED=1 UPSTREAM=serve

## Plans

| plan | what goes wrong |
|---|---|
`

const namedHead = `
[keepwatch faults](faults.md) ships these. They begin before the client and last for about a minute, in which 600 writes are
made, with two pauses of 20 s. A client that does not have the initial state within 30 s is measured from then on.

| plan | what goes wrong |
|---|---|
`

// writeRow writes the cells of one client.
func writeRow(w io.Writer, cells []Result) {
	fmt.Fprintf(w, "\n### %s\n\n", title(cells[0]))
	fmt.Fprintln(w, "| plan | outcome | again | final | states | deletes | twice | broken | errors | LISTs | requests | /s | seed | load |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range cells {
		again := "–"
		if r.Outcome == Right {
			again = fmt.Sprintf("%.1f", r.Recovery)
		}
		outcome := string(r.Outcome)
		if r.Outcome == Died {
			outcome = fmt.Sprintf("died, exit code %d", r.ExitCode)
		}
		final, states, deletes, twice, broken := fmt.Sprint(r.LostFinal), fmt.Sprintf("%d/%d", r.LostIntermediate, r.Writes),
			fmt.Sprint(r.LostDeletes), fmt.Sprint(r.Duplicates), fmt.Sprint(r.Violations)
		if r.View != clients.Events {
			states, deletes, twice, broken = "–", "–", "–", "–"
		}
		if r.View == clients.Condition {
			final = "–"
		}
		fmt.Fprintf(w, "| %s | %s |\n", r.Plan, strings.Join([]string{
			outcome, again, final, states, deletes, twice, broken, fmt.Sprint(r.Errors),
			fmt.Sprint(r.Lists), fmt.Sprint(r.Requests), fmt.Sprint(r.Rate), fmt.Sprint(r.Seed), fmt.Sprintf("%.1f", r.Load),
		}, " | "))
	}
}

// group divides results that are in order.
func group(results []Result, key func(Result) string) (groups [][]Result) {
	for i, r := range results {
		if i == 0 || key(r) != key(results[i-1]) {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], r)
	}
	return groups
}

func clientIndex(r Result) int {
	return slices.IndexFunc(clients.Programs(), func(p clients.Program) bool { return p.Name == r.Client })
}

func planIndex(r Result) int {
	return slices.IndexFunc(Plans, func(p Plan) bool { return p.Name == r.Plan })
}

// WritePage writes the page of the results in one folder into another.
func WritePage(results, docs string) error {
	all, err := LoadResults(results)
	if err != nil {
		return err
	}
	for name, text := range Page(all) {
		if err := os.WriteFile(filepath.Join(docs, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
