package conform

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/internal/report"
)

// PrintTable writes the report for people: a line a rule, then the facts of each rule that is not kept.
func (r *Report) PrintTable(w io.Writer) error {
	fmt.Fprintf(w, "%s %s, judged with %s, seed %d, in %v\n\n", report.Printable(r.Server), report.Printable(r.Version),
		strings.Join(r.Resources, " and "), r.Seed, r.Took.Round(time.Second))
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "RULE\tVERDICT\tSENTENCE")
	for _, one := range r.Results {
		fmt.Fprintf(table, "%s\t%v\t%s\n", one.Rule.ID, one.Verdict, one.Rule.Sentence)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, one := range r.Results {
		if one.Verdict == Kept {
			continue
		}
		fmt.Fprintf(w, "\n%s is %v (%s)\n", one.Rule.ID, one.Verdict, one.Rule.Source)
		for _, fact := range one.Facts {
			fmt.Fprintf(w, "  %s\n", report.Printable(fact))
		}
		if one.Left > 0 {
			fmt.Fprintf(w, "  and %d more\n", one.Left)
		}
	}
	counts := map[Verdict]int{}
	for _, one := range r.Results {
		counts[one.Verdict]++
	}
	_, err := fmt.Fprintf(w, "\n%d kept, %d broken, %d not offered\n", counts[Kept], counts[Broken], counts[NotOffered])
	return err
}

// PrintJSON writes the report as one JSON object.
func (r *Report) PrintJSON(w io.Writer) error { return report.WriteJSON(w, r) }

// PrintJUnit writes the report in JUnit's format: a rule is a test case, a rule that is not offered is skipped.
func (r *Report) PrintJUnit(w io.Writer) error {
	suite := report.Suite{Name: "conform " + r.Server, Time: r.Took.Seconds()}
	for _, one := range r.Results {
		c := report.Case{Name: one.Rule.ID, Class: "conform"}
		text := ""
		for _, fact := range one.Facts {
			text += fact + "\n"
		}
		message := &report.Message{Message: one.Rule.Sentence + " " + one.Rule.Source, Text: text}
		switch one.Verdict {
		case Broken:
			c.Failure = message
		case NotOffered:
			c.Skipped = message
		}
		suite.Cases = append(suite.Cases, c)
	}
	return suite.Write(w)
}
