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

// Page is docs/matrix.md and its figures: file contents by name, relative to the folder docs.
func Page(results []Result) map[string][]byte {
	results = slices.Clone(results)
	slices.SortFunc(results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(upstreamIndex(a), upstreamIndex(b)), cmp.Compare(clientIndex(a), clientIndex(b)),
			cmp.Compare(planIndex(a), planIndex(b)))
	})
	files := map[string][]byte{}
	var page bytes.Buffer
	page.WriteString(head)
	servers := group(results, func(r Result) string { return string(r.Upstream) })
	writeGlance(&page, servers)
	for _, of := range servers {
		name := fmt.Sprintf("matrix-%s.svg", of[0].Upstream)
		files[name] = drawGrid(of)
		fmt.Fprintf(&page, "\n## %s\n\n", strings.TrimSpace(string(of[0].Upstream)+" "+of[0].UpstreamVersion))
		writeGrid(&page, of)
		fmt.Fprintf(&page, "\n![The same grid, with the number of LISTs in each cell](%s)\n\n", name)
		writeSummaries(&page, group(of, func(r Result) string { return r.Client }))
	}
	writePlans(&page)
	page.WriteString(tail)
	files["matrix.md"] = page.Bytes()
	return files
}

const head = `# What clients see when something goes wrong

<!-- Generated from test/matrix/results by make matrix-page. -->

Each column of a grid is an unmodified [client](#clients), each row a [plan](#plans) of faults between it and a real API server. A program
follows the ConfigMaps of one namespace as the client's documentation shows. A writer creates, changes and deletes them; what it wrote is read
from etcd. The counts begin when the client has the initial state. A cell is one run.

| mark | meaning |
|---|---|
| ✓ | right and complete: within 2 minutes of the last write the client's state is the server's, and its user missed nothing and saw nothing twice |
| ~ | right at the end, but the user missed deletions or states, saw events twice, or received events that break a [promise](../doc.go) |
| ✗ | wrong (the last write is there, but not the state), hung (it is not there), or died (the process ended) |
| | not measured |

- A user sees less of some clients. controller-runtime (` + "`c-r`" + `) and our operator (` + "`kw-o`" +
	`) are called for a name, not for each change, and
  ` + "`kubectl wait`" + ` waits for one object. Their ✓ says only that the state at the end is right.
- In plans with ° clients learn of some changes by a list only. There, missed states do not count; missed deletions do.
- The faults are between the client and the server. A server cannot spare its clients these faults; a grid shows that it answers them as Kubernetes' own
  server does.
- Runs differ. The faults that a request meets are drawn, and the number of requests depends on time.

What could be reported as a fault of a client or a server is written up in [findings](findings).
`

const tail = `
## Repeat it

Everything, a client, or a cell, alone on the machine:

    make matrix
    make matrix CLIENT='kopf'
    make matrix CLIENT='kopf' PLAN=compaction SEED=1 UPSTREAM=serve

## The data

[test/matrix/results](../test/matrix/results) has a file for each server and client, with an object for each plan. To read a cell:

    jq '.[] | select(.plan == "outage")' test/matrix/results/kube-apiserver--kopf.json

| field | meaning |
|---|---|
| ` + "`outcome`, `exitCode`" + ` | right, wrong, hung or died within 2 minutes of the last write |
| ` + "`recovery`" + ` | seconds from the end of the faults and the last write until the state was right |
| ` + "`lostFinal`" + ` | names whose state is not the server's at the end |
| ` + "`lostIntermediate`, `writes`" +
	` | states that the user never saw, except each object's last one; of all writes |
| ` + "`lostDeletes`" + ` | objects that the user knew, that were deleted, and that the user never saw deleted |
| ` + "`duplicates`" + ` | events that the user had seen before |
| ` + "`violations`, `broken`" + ` | violations of the promises in the events, by package ` + "`check`" +
	`, and the first three. A state that only a list shows is none |
| ` + "`errors`" + ` | errors that the client showed its user |
| ` + "`lists`, `requests`, `rate`" +
	` | LISTs and streaming lists; these and watches; the most requests in a second. Refused connections are not seen |
| ` + "`seed`, `load`" + ` | the run's seed; the machine's load average at its end |
`

// writeGlance writes a row for each client, with the marks that it has at each server, and which column is the
// client's.
func writeGlance(w io.Writer, servers [][]Result) {
	fmt.Fprint(w, "\n## Clients\n\nThe cells count the plans with ✓, ~ and ✗.\n\n| column | client |")
	for _, of := range servers {
		fmt.Fprintf(w, " %s |", of[0].Upstream)
	}
	fmt.Fprintf(w, "\n|---|---|%s\n", strings.Repeat("---|", len(servers)))
	for _, p := range clients.Programs() {
		name, counts := "", ""
		for _, server := range servers {
			marks := map[string]int{}
			for _, r := range server {
				if r.Client == p.Name {
					name = title(r)
					marks[r.mark()]++
				}
			}
			if len(marks) == 0 {
				counts += " |"
				continue
			}
			counts += fmt.Sprintf(" %d, %d, %d |", marks[complete], marks[incomplete], marks[failed])
		}
		if name != "" {
			fmt.Fprintf(w, "| `%s` | %s |%s\n", p.Short, name, counts)
		}
	}
}

// writeGrid writes a row for each plan and a column for each client.
func writeGrid(w io.Writer, cells []Result) {
	columns := group(cells, func(r Result) string { return r.Client })
	fmt.Fprint(w, "| plan |")
	for _, of := range columns {
		fmt.Fprintf(w, " %s |", clients.Programs()[clientIndex(of[0])].Short)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, p := range Plans {
		fmt.Fprintf(w, "| `%s`%s |", p.Name, p.sign())
		for _, of := range columns {
			if i := slices.IndexFunc(of, func(r Result) bool { return r.Plan == p.Name }); i >= 0 {
				fmt.Fprintf(w, " %s |", of[i].mark())
			} else {
				fmt.Fprint(w, " |")
			}
		}
		fmt.Fprintln(w)
	}
}

// writePlans writes what goes wrong in each plan.
func writePlans(w io.Writer) {
	fmt.Fprint(w, "\n## Plans\n\n| plan | what goes wrong |\n|---|---|\n")
	for _, p := range commanded {
		fmt.Fprintf(w, "| `%s`%s | %s |\n", p.Name, p.sign(), p.What)
	}
	fmt.Fprint(w, `
[keepwatch faults](faults.md) ships these. They begin before the client and last for about a minute, in which 600 writes are
made, with two pauses of 20 s. A client that does not have the initial state within 30 s is measured from then on.

| plan | what goes wrong | incident |
|---|---|---|
`)
	for _, p := range Plans[len(commanded):] {
		fmt.Fprintf(w, "| `%s`%s | %s | [%s](%s) |\n", p.Name, p.sign(), p.What, p.incident(), p.named.Incident)
	}
}

// sign marks a plan in which states are hidden.
func (p Plan) sign() string {
	if p.HidesHistory {
		return "°"
	}
	return ""
}

// incident is the name of the issue with the plan's incident, such as kubernetes#72187.
func (p Plan) incident() string {
	parts := strings.Split(p.named.Incident, "/")
	if len(parts) < 4 {
		return p.named.Incident
	}
	return parts[len(parts)-3] + "#" + parts[len(parts)-1]
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

func upstreamIndex(r Result) int {
	return slices.Index([]Upstream{KubeAPIServer, Proxy, Serve, KeepwatchAPIServer}, r.Upstream)
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
