package figures

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// packageTrials is the file of what the tests of each package went through, below the repository's root. A line is one
// trial: its kind, the package, the date, the commit, how many runs or mutants were as they should, of how many, and
// the seed. Tabs stand between them. internal/stress.sh appends lines, too.
const packageTrials = "test/results/packages.tsv"

// The kinds of trials: runs beside busy loops that passed, and mutants that were noticed.
const (
	Stress  = "stress"
	Mutants = "mutants"
)

// RecordPackage appends what the tests of a package went through to the file in the repository whose root is given.
func RecordPackage(root, kind, importPath string, good, of int, seed string) error {
	commit, err := commitOf(root)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(root, packageTrials), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", kind, importPath, time.Now().UTC().Format(time.DateOnly), commit,
		good, of, seed)
	return cmp.Or(err, f.Close())
}

const module = "github.com/keepwatch/keepwatch/"

// packageTable returns a table of the last trials of each kind of all packages in a file's text.
func packageTable(text string) (string, error) {
	last := map[string]map[string][]string{} // the fields, by package and kind
	for n, line := range slices.Collect(strings.Lines(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 7 || fields[0] != Stress && fields[0] != Mutants {
			return "", fmt.Errorf("%s:%d is no trial: %q", packageTrials, n+1, line)
		}
		kind, name := fields[0], strings.TrimPrefix(fields[1], module)
		if last[name] == nil {
			last[name] = map[string][]string{}
		}
		last[name][kind] = fields
	}
	lines := [][]string{{"package", "runs that passed", "when", "mutants noticed", "when"}}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		of := last[name]
		lines = append(lines, slices.Concat([]string{"`" + name + "`"}, cells(of[Stress]), cells(of[Mutants])))
	}
	return markdown(lines), nil
}

// cells returns the cells of a trial, empty ones of no trial.
func cells(trial []string) []string {
	if trial == nil {
		return []string{"", ""}
	}
	return []string{trial[4] + " of " + trial[5], trial[2] + ", " + trial[3]}
}
