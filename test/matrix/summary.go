package matrix

import (
	"fmt"
	"io"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// summary is all plans of one client.
type summary struct {
	deletes, deletePlans  int    // deletions that the user never saw
	repeated, repeatPlans int    // events that the user saw twice
	lists, rate           Result // the plans with the most LISTs, and the most requests in a second
	eventsKnown           bool
}

func summarize(cells []Result) summary {
	s := summary{lists: cells[0], rate: cells[0], eventsKnown: cells[0].View == clients.Events}
	for _, r := range cells {
		s.deletes += r.LostDeletes
		s.repeated += r.Duplicates
		if r.LostDeletes > 0 {
			s.deletePlans++
		}
		if r.Duplicates > 0 {
			s.repeatPlans++
		}
		if r.Lists > s.lists.Lists {
			s.lists = r
		}
		if r.Rate > s.rate.Rate {
			s.rate = r
		}
	}
	return s
}

// writeSummaries writes a line for each client of an upstream.
func writeSummaries(w io.Writer, rows [][]Result) {
	fmt.Fprintln(w, "| client | deletions never seen | events seen twice | most LISTs | most requests in a second |")
	fmt.Fprintln(w, "|---|---|---|---|---|")
	for _, cells := range rows {
		s := summarize(cells)
		deletes, repeated := "–", "–"
		if s.eventsKnown {
			deletes, repeated = inPlans(s.deletes, s.deletePlans), inPlans(s.repeated, s.repeatPlans)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", cells[0].Client, deletes, repeated,
			inPlan(s.lists.Lists, s.lists.Plan), inPlan(s.rate.Rate, s.rate.Plan))
	}
}

// title is a client and its version.
func title(r Result) string {
	if r.Version == "" {
		return r.Client
	}
	return r.Client + " " + r.Version
}

func inPlans(n, plans int) string {
	switch plans {
	case 0:
		return "0"
	case 1:
		return fmt.Sprintf("%d in 1 plan", n)
	}
	return fmt.Sprintf("%d in %d plans", n, plans)
}

func inPlan(n int, plan string) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (`%s`)", n, plan)
}
