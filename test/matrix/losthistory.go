package matrix

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// LostHistory kills kube-apiserver, and etcd compacts what is written meanwhile through another one. Clients of the
// killed server see its connections refused; those of keepwatch proxy see what the proxy makes of it. It is not one of
// Plans, because it disturbs all cells of its server.
var LostHistory = Plan{
	Name:         "lost-history",
	What:         "Three times the API server is killed, 100 writes are made through another one, etcd compacts its history, and the server starts again.",
	HidesHistory: true,
	story: func(c *cell) error {
		for range 2 { // a client can have the first write from another list
			if err := c.awaitLive(); err != nil {
				return err
			}
		}
		for range lostHistories {
			if err := c.loseHistory(); err != nil {
				return err
			}
		}
		return nil
	},
}

const (
	lostHistories = 3
	// lostWrites are made while the server is down, keptWrites behind its start.
	lostWrites, keptWrites = 100, 40
)

// awaitLive makes a write, and waits until the client has it. A client can begin to watch at a revision that the proxy
// does not have yet; its watch ends with 410 if the server loses its history at that moment.
func (c *cell) awaitLive() error {
	if c.View == clients.Condition {
		return nil // its user sees no write
	}
	if err := c.write(1); err != nil {
		return err
	}
	writes, newest, err := c.server.writes(c.ctx, c.writer.namespace)
	if err != nil {
		return err
	}
	if outcome, _ := c.recovered(time.Now(), stateAt(writes, newest)); outcome != Right {
		return fmt.Errorf("%s does not show a write: %s", c.Client, outcome)
	}
	return nil
}

func (c *cell) loseHistory() error {
	down := func() error {
		c.server.stored.Kill()
		if err := c.write(lostWrites); err != nil {
			return err
		}
		if err := c.server.compact(c.ctx); err != nil {
			return err
		}
		return c.server.stored.Restart(c.ctx)
	}
	if c.server.upstream != Proxy {
		return c.whileRefused(down, keptWrites)
	}
	if err := down(); err != nil {
		return err
	}
	return c.write(keptWrites)
}

const (
	lostHistoryStart = "<!-- make lost-history writes what follows -->\n"
	lostHistoryEnd   = "<!-- until here -->\n"
)

// WriteLostHistory writes the table of LostHistory into a document, from the results in a folder.
func WriteLostHistory(results, document string) error {
	all, err := LoadResults(results)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	head, rest, started := strings.Cut(string(text), lostHistoryStart)
	_, tail, ended := strings.Cut(rest, lostHistoryEnd)
	if !started || !ended {
		return fmt.Errorf("%s has no place for the table: it needs the lines %q and %q", document, lostHistoryStart,
			lostHistoryEnd)
	}
	return os.WriteFile(document, []byte(head+lostHistoryStart+"\n"+lostHistoryTable(all)+"\n"+lostHistoryEnd+tail), 0o644)
}

// lostHistoryTable has a row for each client: at kube-apiserver, and behind the proxy.
func lostHistoryTable(all []Result) string {
	slices.SortFunc(all, func(a, b Result) int { return cmp.Compare(clientIndex(a), clientIndex(b)) })
	var text strings.Builder
	text.WriteString(
		"| client | at kube-apiserver | deletions never seen | LISTs | behind the proxy | deletions never seen | LISTs |\n|---|---|---|---|---|---|---|\n")
	for _, of := range group(all, func(r Result) string { return r.Client }) {
		fmt.Fprintf(&text, "| %s", title(of[0]))
		for _, upstream := range []Upstream{KubeAPIServer, Proxy} {
			text.WriteString(lostHistoryCells(of, upstream))
		}
		text.WriteString(" |\n")
	}
	return text.String()
}

func lostHistoryCells(of []Result, upstream Upstream) string {
	i := slices.IndexFunc(of, func(r Result) bool { return r.Upstream == upstream })
	if i < 0 {
		return " | not measured | | "
	}
	r := of[i]
	outcome, deletes := string(r.Outcome), fmt.Sprint(r.LostDeletes)
	if r.Outcome == Died {
		outcome = fmt.Sprintf("**died**, exit code %d", r.ExitCode)
	} else if r.Outcome != Right {
		outcome = "**" + outcome + "**"
	}
	if r.View != clients.Events {
		deletes = "–"
	}
	return fmt.Sprintf(" | %s | %s | %d", outcome, deletes, r.Lists)
}
