package published

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// Result is what the judge has found about one bug.
type Result struct {
	Bug      string  `json:"bug"`
	Date     string  `json:"date"`
	Affected Verdict `json:"affected"`
	Repaired Verdict `json:"repaired"`
}

// Verdict is about one version.
type Verdict struct {
	Version string `json:"version"`
	Seed    uint64 `json:"seed"`
	// Runs is the number of plans that came to their place, besides the runs without a fault.
	Runs     int       `json:"runs"`
	Findings []Finding `json:"findings,omitempty"`
}

// Finding is one of a report.
type Finding struct {
	Verdict string   `json:"verdict"`
	Plan    string   `json:"plan,omitempty"`
	Shown   int      `json:"shown"`
	Of      int      `json:"of"`
	Facts   []string `json:"facts"`
}

// verdictOf returns what is saved of a report.
func verdictOf(version string, report *operators.Report) Verdict {
	v := Verdict{Version: version, Seed: report.Seed}
	for _, r := range report.Results {
		if r.Reached {
			v.Runs++
		}
	}
	for _, f := range report.Findings {
		one := Finding{Verdict: f.Verdict.String(), Shown: f.Shown, Of: f.Of, Facts: f.Facts}
		if f.Plan != nil {
			one.Plan = f.Plan.String()
		}
		v.Findings = append(v.Findings, one)
	}
	return v
}

// Save writes the result into a folder, in place of an earlier one of the same bug.
func (r Result) Save(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Bug+".json"), append(text, '\n'), 0o644)
}

// LoadResults returns the results of a folder, in the order of Bugs.
func LoadResults(dir string) ([]Result, error) {
	var all []Result
	for _, b := range Bugs() {
		file := filepath.Join(dir, b.Name+".json")
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, nil
}
