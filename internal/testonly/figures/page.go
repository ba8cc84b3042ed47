package figures

import (
	"fmt"
	"strings"
)

// place is where a table stands.
type place struct {
	page, name string // name is in its markers
	part       string
	table
}

// places are the tables that are written from runs.
var places = []place{}

// markers returns the lines around a table.
func (p place) markers() (begin, end string) {
	return fmt.Sprintf("<!-- make figures writes the table %s -->\n", p.name), "<!-- end of the table -->\n"
}

// write returns the text of the page with the table of a run.
func (p place) write(text string, r *Run) (string, error) {
	begin, end := p.markers()
	head, rest, hasBegin := strings.Cut(text, begin)
	_, tail, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("%s has no place for the table %s: it needs the lines %q and %q", p.page, p.name, begin, end)
	}
	return head + begin + p.table(r) + "\n" + origin(r) + end + tail, nil
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
