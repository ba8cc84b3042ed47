package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// table renders a run, or a part of it, in Markdown.
type table func(*Run) string

// Table renders the whole run.
func (r *Run) Table() string { return sideBySide("what", "measure")(r) }

// sideBySide has a line for each figure: its row and measure, our value, each peer's with our ratio to it, and the
// goal, if a figure has one. The ratio to the first peer is bold if the figure misses its goal. first and second are
// the heads of the columns of rows and measures.
func sideBySide(first, second string) table {
	return func(r *Run) string {
		head := []string{first, second, Ours}
		for _, peer := range r.Peers {
			head = append(head, peer, Ours+" / "+peer)
		}
		lines, goals := [][]string{head}, []string{"target"}
		for _, f := range r.Figures {
			cells := []string{f.Row, f.Measure, f.Unit.Format(f.Value(Ours))}
			for i, peer := range r.Peers {
				ratio := FormatRatio(f.Ratio(peer))
				if f.Missed && i == 0 {
					ratio = "**" + ratio + "**"
				}
				cells = append(cells, f.Unit.Format(f.Value(peer)), ratio)
			}
			lines, goals = append(lines, cells), append(goals, f.Goal)
		}
		return markdown(withGoals(lines, goals))
	}
}

// withGoals adds a column of goals, the first of which is its head, if there are any.
func withGoals(lines [][]string, goals []string) [][]string {
	if strings.Join(goals[1:], "") == "" {
		return lines
	}
	for i := range lines {
		lines[i] = append(lines[i], goals[i])
	}
	return lines
}

// only is a table of the rows that are named.
func only(named func(row string) bool, t table) table {
	return func(r *Run) string {
		part := *r
		part.Figures = slices.DeleteFunc(slices.Clone(r.Figures), func(f *Figure) bool { return !named(f.Row) })
		return t(&part)
	}
}

// column is one measure beside a peer, or ours alone if the peer has no name.
type column struct{ head, measure, peer string }

// byRow has a line for each row that is named, and a column for each measure: the peer's figure, ours and the ratio,
// which is bold if it misses its goal, as ours alone is. If rows of several runs are kept, the next column says when
// each was measured. The last column has the goals, if there are some.
func byRow(first string, named func(row string) bool, columns ...column) table {
	return func(r *Run) string {
		head := []string{first}
		for _, c := range columns {
			head = append(head, c.head)
		}
		if r.Rows != nil {
			head = append(head, "measured")
		}
		lines, targets := [][]string{head}, []string{"target"}
		for _, row := range r.rows() {
			if !named(row) {
				continue
			}
			cells, goals := []string{row}, []string{}
			known := map[string]bool{} // of several columns of a measure one has its goal
			for _, c := range columns {
				f := r.Find(row, c.measure)
				cells = append(cells, f.beside(c.peer))
				if f.Goal != "" && !known[c.measure] {
					goals = append(goals, c.head+" "+f.Goal)
				}
				known[c.measure] = true
			}
			if r.Rows != nil {
				cells = append(cells, r.Rows[row])
			}
			lines, targets = append(lines, cells), append(targets, strings.Join(goals, "; "))
		}
		return markdown(withGoals(lines, targets))
	}
}

// beside returns "peer → ours, ratio", without the ratio of exponents; without a peer ours alone.
func (f *Figure) beside(peer string) string {
	if peer == "" {
		if math.IsNaN(f.Value(Ours)) {
			return ""
		}
		if f.Missed {
			return "**" + f.Unit.Format(f.Value(Ours)) + "**"
		}
		return f.Unit.Format(f.Value(Ours))
	}
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
