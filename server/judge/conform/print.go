package conform

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// visible replaces what could control a terminal: the server chooses its version, and what facts quote.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// PrintTable writes the report for people: a line a rule, then the facts of each rule that is not kept.
func (r *Report) PrintTable(w io.Writer) error {
	fmt.Fprintf(w, "%s %s, judged with %s, seed %d, in %v\n\n", visible(r.Server), visible(r.Version), strings.Join(r.Resources, " and "), r.Seed, r.Took.Round(time.Second))
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
			fmt.Fprintf(w, "  %s\n", visible(fact))
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
func (r *Report) PrintJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// The elements of JUnit's format that test reports in CI systems read.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     float64     `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// PrintJUnit writes the report in JUnit's format: a rule is a test case, a rule that is not offered is skipped.
func (r *Report) PrintJUnit(w io.Writer) error {
	suite := junitSuite{Name: "conform " + r.Server, Tests: len(r.Results), Time: r.Took.Seconds()}
	for _, one := range r.Results {
		c := junitCase{Name: one.Rule.ID, Class: "conform"}
		text := ""
		for _, fact := range one.Facts {
			text += fact + "\n"
		}
		message := &junitMessage{one.Rule.Sentence + " " + one.Rule.Source, text}
		switch one.Verdict {
		case Broken:
			suite.Failures++
			c.Failure = message
		case NotOffered:
			suite.Skipped++
			c.Skipped = message
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
