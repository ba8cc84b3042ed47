package figures

import (
	"fmt"
	"math"
	"strings"
)

// table renders a run, or a part of it, in Markdown.
type table func(*Run) string

// sideBySide has a line for each figure: its row and measure, our value, and each peer's with our ratio to it. The
// ratio to the first peer is bold if the figure misses its goal. first and second are the heads of the columns of rows
// and measures.
func sideBySide(first, second string) table {
	return func(r *Run) string {
		head := []string{first, second, Ours}
		for _, peer := range r.Peers {
			head = append(head, peer, Ours+" / "+peer)
		}
		lines := [][]string{head}
		for _, f := range r.Figures {
			cells := []string{f.Row, f.Measure, f.Unit.Format(f.Value(Ours))}
			for i, peer := range r.Peers {
				ratio := FormatRatio(f.Ratio(peer))
				if f.Missed && i == 0 {
					ratio = "**" + ratio + "**"
				}
				cells = append(cells, f.Unit.Format(f.Value(peer)), ratio)
			}
			lines = append(lines, cells)
		}
		return markdown(lines)
	}
}

// column is one measure beside a peer.
type column struct{ head, measure, peer string }

// byRow has a line for each row that is named, and a column for each measure: the peer's figure, ours and the ratio,
// bold if it misses its goal. The last column has the goals, if there are some.
func byRow(first string, named func(row string) bool, columns ...column) table {
	return func(r *Run) string {
		head := []string{first}
		for _, c := range columns {
			head = append(head, c.head)
		}
		lines, some := [][]string{append(head, "target")}, false
		for _, row := range r.rows() {
			if !named(row) {
				continue
			}
			cells, goals := []string{row}, []string{}
			for _, c := range columns {
				f := r.Find(row, c.measure)
				cells = append(cells, f.beside(c.peer))
				if f.Goal != "" {
					goals = append(goals, c.head+" "+f.Goal)
				}
			}
			some = some || len(goals) > 0
			lines = append(lines, append(cells, strings.Join(goals, "; ")))
		}
		for i := range lines {
			if !some {
				lines[i] = lines[i][:len(columns)+1]
			}
		}
		return markdown(lines)
	}
}

// beside returns "peer → ours, ratio", without the ratio of exponents.
func (f *Figure) beside(peer string) string {
	if math.IsNaN(f.Value(Ours)) && math.IsNaN(f.Value(peer)) {
		return ""
	}
	both := f.Unit.Format(f.Value(peer)) + " → " + f.Unit.Format(f.Value(Ours))
	ratio := FormatRatio(f.Ratio(peer))
	switch {
	case f.Unit == Exponent:
		return both
	case f.Missed:
		return fmt.Sprintf("%s, **%s**", both, ratio)
	}
	return both + ", " + ratio
}

// markdown returns a table of lines, the first of which is its head.
func markdown(lines [][]string) string {
	var b strings.Builder
	for i, cells := range lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(cells)) + "\n")
		}
	}
	return b.String()
}
