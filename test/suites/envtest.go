package suites

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Reason says why tests do not pass with the assets.
type Reason struct {
	// Test is a regular expression of the tests' names.
	Test string
	// Reason is a sentence.
	Reason string
}

// reasonsFile is the file of reasons in the folder of results.
const reasonsFile = "reasons.json"

// EnvtestTable returns the table of controller-runtime's and operators' tests with kube-apiserver and etcd and with the
// assets, in Markdown, from the results in a folder. Behind it are the tests that pass with the former alone, each with
// a reason.
func EnvtestTable(folder string) (string, error) {
	reasons, err := loadReasons(filepath.Join(folder, reasonsFile))
	if err != nil {
		return "", err
	}
	table := envtestTable{reasons: reasons, missed: map[string][]string{}}
	if err := table.add(folder, "controller-runtime", envtestTargets()); err != nil {
		return "", err
	}
	for _, o := range operators() {
		if err := table.add(folder, o.name()+" "+o.version, o.targets()); err != nil {
			return "", err
		}
	}
	if table.rows.Len() == 0 {
		return "Not measured yet.\n", nil
	}
	const head = "| suite | passed with kube-apiserver and etcd | of these with the assets | seconds | with the assets |\n|---|---|---|---|---|\n"
	return head + table.rows.String() + listMissed(reasons, table.missed), nil
}

// envtestTable collects rows, and the names of tests that do not pass with the assets, by reason.
type envtestTable struct {
	reasons []Reason
	rows    strings.Builder
	missed  map[string][]string
}

// add adds a row for each result of a project, and one for their sum.
func (table *envtestTable) add(folder, project string, of []target) error {
	results, err := load(folder, of)
	if err != nil || len(results) == 0 {
		return err
	}
	passes, misses, seconds, ours := 0, 0, 0.0, 0.0
	for _, r := range results {
		all := r.missed()
		for _, name := range all {
			why := reasonOf(table.reasons, name)
			table.missed[why] = append(table.missed[why], r.Target+": "+strings.TrimPrefix(name, specPrefix))
		}
		n := r.passedUpstream()
		fmt.Fprintf(&table.rows, "| %s | %d | %d | %.0f | %.0f |\n", r.Target, n, n-len(all), r.Seconds[upstream],
			r.Seconds[keepwatch])
		passes, misses, seconds, ours = passes+n, misses+len(all), seconds+r.Seconds[upstream], ours+r.Seconds[keepwatch]
	}
	fmt.Fprintf(&table.rows, "| **%s** | %d | %d | %.0f | %.0f |\n", project, passes, passes-misses, seconds, ours)
	return nil
}

// listMissed lists tests by their reasons, in the order of reasons.
func listMissed(reasons []Reason, missed map[string][]string) string {
	var text strings.Builder
	for _, why := range slices.Concat(reasons, []Reason{{Reason: notAnalysed}}) {
		names := missed[why.Reason]
		if len(names) == 0 {
			continue
		}
		delete(missed, why.Reason)
		fmt.Fprintf(&text, "\n%s: %d\n\n", why.Reason, len(names))
		for _, name := range names {
			fmt.Fprintf(&text, "- %s\n", name)
		}
	}
	return text.String()
}

const notAnalysed = "Not analysed yet"

func reasonOf(reasons []Reason, name string) string {
	for _, r := range reasons {
		if regexp.MustCompile(r.Test).MatchString(name) {
			return r.Reason
		}
	}
	return notAnalysed
}

// loadReasons reads the reasons, and checks their expressions. Without a file there are none.
func loadReasons(file string) ([]Reason, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var reasons []Reason
	if err := json.Unmarshal(text, &reasons); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, r := range reasons {
		if _, err := regexp.Compile(r.Test); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return reasons, nil
}

// isTest reports whether a name is that of a test, and not of the Go test that runs all specs, of a suite's setup or
// of the process.
func (r *result) isTest(name string) bool {
	if r.hasSpecs() {
		return strings.HasPrefix(name, specPrefix) && !slices.Contains(setups, name)
	}
	return name != process
}

// setups are the names of ginkgo's nodes that are no specs.
var setups = []string{
	specPrefix + "BeforeSuite", specPrefix + "SynchronizedBeforeSuite",
	specPrefix + "AfterSuite", specPrefix + "SynchronizedAfterSuite", specPrefix + "ReportAfterSuite",
}

func (r *result) hasSpecs() bool {
	for name := range r.Outcomes[upstream] {
		if strings.HasPrefix(name, specPrefix) {
			return true
		}
	}
	return false
}

// passedUpstream counts the tests that pass with the real programs.
func (r *result) passedUpstream() int {
	n := 0
	for name, o := range r.Outcomes[upstream] {
		if o == passed && r.isTest(name) {
			n++
		}
	}
	return n
}

// missed returns the tests that pass with the real programs and not with the assets, except flakes.
func (r *result) missed() []string {
	return slices.DeleteFunc(r.unexplained(), func(name string) bool {
		return r.Outcomes[upstream][name] != passed || !r.isTest(name)
	})
}

// The lines in a document between which ReplaceTable writes.
const (
	tableBegin = "<!-- make envtest-page writes what follows -->\n"
	tableEnd   = "<!-- until here -->\n"
)

// ReplaceTable returns a document with the table between its marks.
func ReplaceTable(document, table string) (string, error) {
	head, rest, ok := strings.Cut(document, tableBegin)
	_, tail, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		return "", fmt.Errorf("the document has no lines %q and %q", tableBegin, tableEnd)
	}
	return head + tableBegin + "\n" + table + "\n" + tableEnd + tail, nil
}
