package arrows

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the rules into the table of ARCHITECTURE.md")

const (
	modules   = 4
	document  = "../../ARCHITECTURE.md"
	tableHead = "| package | its one job | allowed imports from this repository |\n|---|---|---|\n"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// TestTable checks that the table of ARCHITECTURE.md has each rule's package, and what it may import. With -update it
// writes the imports.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), tableHead)
	if len(parts) != modules+1 {
		t.Fatalf("%s has %d tables of packages, want one a module", document, len(parts)-1)
	}
	described := map[string]bool{}
	for i, part := range parts[1:] {
		table, after, _ := strings.Cut(part, "\n\n")
		parts[i+1] = strings.Join(checkRows(t, strings.Split(table, "\n"), described), "\n") + "\n\n" + after
	}
	for path := range rules {
		if !described[path] && !strings.HasPrefix(path, "examples/") {
			t.Errorf("the tables are without %q", path)
		}
	}
	if *update {
		if err := os.WriteFile(document, []byte(strings.Join(parts, tableHead)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// checkRows checks the rows of a table, and adds their packages to described. It returns the rows as they should be.
func checkRows(t *testing.T, rows []string, described map[string]bool) []string {
	t.Helper()
	for i, row := range rows {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(row, "| "), " |"), " | ")
		name := quoted.FindStringSubmatch(cells[0])
		if len(cells) != 3 || name == nil {
			t.Errorf("the row %q is not a package, its job and its imports", row)
			continue
		}
		path := name[1]
		if path == "keepwatch" {
			path = ""
		}
		r, ok := rules[path]
		if tree := path + "/..."; !ok {
			r, ok = rules[tree]
			path = tree
		}
		if !ok {
			t.Errorf("there is no rule for the package of the row %q", row)
			continue
		}
		described[path] = true
		folder := path[:strings.LastIndex(path, "/")+1]
		if want := r.cell(folder); cells[2] != want && *update {
			rows[i] = "| " + cells[0] + " | " + cells[1] + " | " + want + " |"
		} else if cells[2] != want {
			t.Errorf("%s: the table has %s, and the rule %s: go test ./internal/arrows -update writes it", name[1], cells[2],
				want)
		}
	}
	return rows
}

// cell returns the imports of a rule as the table has them: a package of the same folder internal is ./NAME.
func (r rule) cell(folder string) string {
	if len(r.ours) == 0 {
		return "nothing"
	}
	var names []string
	for _, path := range r.ours {
		switch path {
		case "":
			names = append(names, "root")
		case "*":
			names = append(names, "all")
		default:
			if name, same := strings.CutPrefix(path, folder); same && strings.HasSuffix(folder, "/internal/") {
				path = "./" + name
			}
			names = append(names, "`"+path+"`")
		}
	}
	return strings.Join(names, ", ")
}
