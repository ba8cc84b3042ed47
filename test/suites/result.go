package suites

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The values of --reads.
const (
	upstream  = "upstream"
	keepwatch = "keepwatch"
)

var modes = []string{upstream, keepwatch}

// result has the outcomes of a target in both modes.
type result struct {
	Target   string
	Commit   string
	Seconds  map[string]float64  // by mode
	Outcomes map[string]outcomes // by mode
	// Repeated has the outcomes of tests that differed when they were repeated, by mode.
	Repeated map[string]map[string][]outcome `json:",omitempty"`
}

// replace replaces the outcomes of the tests that a later run has run.
func (r *result) replace(later *result) {
	again := map[string]bool{}
	for _, mode := range modes {
		for name := range later.Outcomes[mode] {
			again[outermost(name)] = true
		}
	}
	if r.Repeated == nil {
		r.Repeated = map[string]map[string][]outcome{}
	}
	for _, mode := range modes {
		r.Outcomes[mode] = replaced(r.Outcomes[mode], later.Outcomes[mode], again)
		r.Repeated[mode] = replaced(r.Repeated[mode], later.Repeated[mode], again)
		r.Seconds[mode] += later.Seconds[mode]
	}
	r.Commit = later.Commit
}

// replaced returns what two runs have by the names of tests, where again are the outermost tests of the later one.
func replaced[M ~map[string]V, V any](earlier, later M, again map[string]bool) M {
	all := M{}
	maps.Copy(all, earlier)
	maps.DeleteFunc(all, func(name string, _ V) bool { return again[outermost(name)] })
	maps.Copy(all, later)
	return all
}

// outermost returns the test that a test is run within, and specs as they are.
func outermost(name string) string {
	if strings.HasPrefix(name, specPrefix) {
		return name
	}
	outer, _, _ := strings.Cut(name, "/")
	return outer
}

// differences returns the tests with different outcomes. Tests that are run within a test are
// reported by it.
func (r *result) differences() []string {
	a, b := r.Outcomes[upstream], r.Outcomes[keepwatch]
	names := maps.Clone(a)
	maps.Copy(names, b)
	var all []string
	for name := range names {
		if orMissing(a, name) != orMissing(b, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func orMissing(o outcomes, name string) outcome { return cmp.Or(o[name], missing) }

// explained reports whether a test that differed had the same outcomes in both modes when it was
// repeated: always the same one, or in both modes several.
func (r *result) explained(name string) bool {
	distinct := func(mode string) []outcome {
		all := slices.Sorted(slices.Values(r.Repeated[mode][name]))
		return slices.Compact(all)
	}
	a, b := distinct(upstream), distinct(keepwatch)
	return len(a) > 0 && slices.Equal(a, b)
}

// unexplained returns the differences that repetition has not shown to be flakes.
func (r *result) unexplained() []string {
	return slices.DeleteFunc(r.differences(), r.explained)
}

func (r *result) count(mode string, of outcome) int {
	n := 0
	for name, o := range r.Outcomes[mode] {
		if o == of && name != process {
			n++
		}
	}
	return n
}

func fileOf(folder, target string) string {
	return filepath.Join(folder, strings.ReplaceAll(target, "/", ".")+".json")
}

func (r *result) save(folder string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(fileOf(folder, r.Target), append(text, '\n'), 0o666)
}

// load reads the results that are saved in a folder, in the order of targets.
func load(folder string, of []target) ([]*result, error) {
	var all []*result
	for _, t := range of {
		text, err := os.ReadFile(fileOf(folder, t.name))
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return nil, err
		}
		r := &result{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// writeTable writes the results as a table in Markdown.
func writeTable(w io.Writer, results []*result) {
	fmt.Fprintln(w,
		"| suite | passed with upstream's reads | with Keepwatch's | failed, both | skipped, both | different | of these not shown to be flakes |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, r := range results {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %d |\n", r.Target,
			r.count(upstream, passed), r.count(keepwatch, passed), r.both(failed), r.both(skipped), len(r.differences()),
			len(r.unexplained()))
	}
}

// both counts the tests that ended so in both modes.
func (r *result) both(as outcome) int {
	n := 0
	for name, o := range r.Outcomes[upstream] {
		if o == as && r.Outcomes[keepwatch][name] == as && name != process {
			n++
		}
	}
	return n
}
