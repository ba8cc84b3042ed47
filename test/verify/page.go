package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// The table stands between these lines of docs/verification.md.
const (
	tableBegin = "<!-- make verify writes this table -->\n"
	tableEnd   = "<!-- end of the table -->\n"
)

// writeTable replaces the table of results in a page.
func writeTable(page string, results []result) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, hasBegin := bytes.Cut(text, []byte(tableBegin))
	_, tail, hasEnd := bytes.Cut(rest, []byte(tableEnd))
	if !hasBegin || !hasEnd {
		return fmt.Errorf("%s has no place for the table: it needs the lines %q and %q", page, tableBegin, tableEnd)
	}
	written := string(head) + tableBegin + table(results) + tableEnd + string(tail)
	return os.WriteFile(page, []byte(written), 0o644)
}

func table(results []result) string {
	var b strings.Builder
	b.WriteString("| part | result | not tested | minutes | date | commit | seed |\n|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		verdict := "**failed**"
		if r.Passed {
			verdict = "passed"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s | %s | %s |\n", r.Part, verdict, len(r.Skipped), (r.Seconds+59)/60,
			r.Date.Format("2006-01-02"), r.Commit, r.Seed)
	}
	return b.String()
}
