package figures

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// goal is a goal for a million objects, and how far it is reached.
type goal struct {
	row, want string
	shown     []shown
	// why says what holds the figures that miss, or what the figures do not say.
	why string
}

// shown is a cell of another table of the documentation: so no figure is typed a second time.
type shown struct {
	name        string // what it is
	at          page
	row, column string // the first cells of its line, and the head of its column
	// most is what the last ratio of the cell may be; 0: the cell is shown as it is.
	most float64
}

// page is a place of the documentation: the table is the first one with the row behind the text after.
type page struct{ file, after, link string }

var ratio = regexp.MustCompile(`([0-9.]+)×`)

// text returns the cell with its name, bold if it is more than it may be.
func (s shown) text(read func(file string) (string, error)) (string, error) {
	text, err := read(s.at.file)
	if err != nil {
		return "", err
	}
	cell, err := find(text, s.at.after, s.row, s.column)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.at.file, err)
	}
	cell = strings.ReplaceAll(cell, "**", "")
	if s.most > 0 {
		all := ratio.FindAllStringSubmatch(cell, -1)
		if all == nil {
			return "", fmt.Errorf("%s: %q has no ratio", s.at.file, cell)
		}
		cell = all[len(all)-1][0]
		if value, err := strconv.ParseFloat(all[len(all)-1][1], 64); err != nil || value > s.most {
			cell = "**" + cell + "**"
		}
	}
	return strings.TrimSpace(s.name + " " + cell), nil
}

// find returns the cell of the first line behind a text that begins with row, in a table that has the column.
func find(text, after, row, column string) (string, error) {
	index, behind := -1, false
	for line := range strings.Lines(text) {
		behind = behind || strings.Contains(line, after)
		if !strings.HasPrefix(line, "|") {
			index = -1
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
			if cells[i] == column {
				index = i
			}
		}
		if behind && strings.HasPrefix(line, "| "+row+" |") && index >= 0 && index < len(cells) && cells[index] != column {
			return cells[index], nil
		}
	}
	return "", fmt.Errorf("no table behind %q has the row %q and the column %q", after, row, column)
}

// goalTable has a line for each goal.
func goalTable(root string, goals []goal) (string, error) {
	read := func(file string) (string, error) {
		text, err := os.ReadFile(filepath.Join(root, file))
		return string(text), err
	}
	lines := [][]string{{"row", "goal", "figures", "where", "reached, or what holds it"}}
	for _, g := range goals {
		var texts, links []string
		for _, s := range g.shown {
			text, err := s.text(read)
			if err != nil {
				return "", fmt.Errorf("%s: %w", g.row, err)
			}
			texts = append(texts, text)
			if len(links) == 0 || links[len(links)-1] != s.at.link {
				links = append(links, s.at.link)
			}
		}
		lines = append(lines, []string{g.row, g.want, strings.Join(texts, "; "), strings.Join(links, ", "), g.why})
	}
	return markdown(lines), nil
}
