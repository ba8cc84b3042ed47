package published

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

var (
	record = flag.String("published.record", "",
		"judge the operators, and write the verdicts into this folder; empty: TestPublishedBugs is skipped")
	only = flag.String("published.only", "", "only the bugs whose names match this regular expression")
)

// TestPublishedBugs checks that each bug is found at the affected version, and that the repaired one has no finding.
func TestPublishedBugs(t *testing.T) {
	if *record == "" {
		t.Skip("see make published")
	}
	selected, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range Bugs() {
		if !selected.MatchString(b.Name) {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			result := Result{Bug: b.Name, Date: time.Now().UTC().Format(time.DateOnly)}
			result.Affected = b.judge(t, b.Affected, b.plan)
			result.Repaired = b.judge(t, b.Repaired, b.plan)
			if err := result.check(b); err != "" {
				t.Fatalf("%s: %+v", err, result)
			}
			if err := result.Save(*record); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func (b Bug) judge(t *testing.T, version, plan string) Verdict {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	command, crds, err := operator(t.Context(), b.source, filepath.Join(cache, "keepwatch", "published"), version)
	if err != nil {
		t.Fatal(err)
	}
	report, err := operators.Run(t.Context(), operators.Options{
		Operator: operators.Operator{Command: command}, CRDs: []string{crds}, Simulate: true, Whole: true,
		Workload: filepath.Join("testdata", b.workload), Plans: []string{plan},
		Progress: func(line string) { t.Log(version, line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return verdictOf(version, report)
}

// check returns what is wrong with a result, or nothing.
func (r Result) check(b Bug) string {
	shows := slices.ContainsFunc(r.Affected.Findings, func(f Finding) bool { return f.Verdict == b.verdict.String() })
	switch {
	case !shows:
		return "the affected version has no such finding"
	case len(r.Repaired.Findings) > 0:
		return "the repaired version has a finding"
	case b.plan != "none" && r.Repaired.Runs == 0:
		return "the repaired version did not come to the place of the plan"
	}
	return ""
}

// TestResults checks that each bug has a result, of the versions that it names, which shows it.
func TestResults(t *testing.T) {
	results, err := LoadResults("results")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range Bugs() {
		i := slices.IndexFunc(results, func(r Result) bool { return r.Bug == b.Name })
		if i < 0 {
			t.Errorf("%s has no result: make published BUG=%s", b.Name, b.Name)
			continue
		}
		r := results[i]
		if wrong := r.check(b); wrong != "" || r.Affected.Version != b.Affected || r.Repaired.Version != b.Repaired {
			t.Errorf("%s: %s, of %s and %s", b.Name, wrong, r.Affected.Version, r.Repaired.Version)
		}
	}
}

// TestPage checks that the table of docs/judged.md is that of the results.
func TestPage(t *testing.T) {
	results, err := LoadResults("results")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/judged.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Write(string(page), results)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != want {
		t.Error("the table of docs/judged.md is not that of test/published/results: make published-page")
	}
}
