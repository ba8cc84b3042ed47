package servers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// Result is the verdicts on one server.
type Result struct {
	Server  string `json:"server"`
	Version string `json:"version"` // that it states
	Seed    uint64 `json:"seed"`
	Writes  int    `json:"writes"`
	Rules   []Rule `json:"rules"`
}

// Rule is the verdict on one rule.
type Rule struct {
	ID       string   `json:"id"`
	Sentence string   `json:"sentence"`
	Source   string   `json:"source"`
	Verdict  string   `json:"verdict"`
	Facts    []string `json:"facts,omitempty"` // unless it is kept
}

// resultOf returns what is saved of a report.
func resultOf(server Server, report *conform.Report, writes int) Result {
	r := Result{Server: server.Name, Version: report.Version, Seed: report.Seed, Writes: writes}
	for _, one := range report.Results {
		r.Rules = append(r.Rules, Rule{one.Rule.ID, one.Rule.Sentence, one.Rule.Source, one.Verdict.String(), one.Facts})
	}
	return r
}

// Save writes the result into a folder, in place of an earlier one of the same server.
func (r Result) Save(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.ReplaceAll(r.Server, " ", "-")+".json"), append(text, '\n'), 0o644)
}

// LoadResults returns the results of a folder, in the order of Servers.
func LoadResults(dir string) ([]Result, error) {
	var all []Result
	for _, s := range Servers() {
		file := filepath.Join(dir, strings.ReplaceAll(s.Name, " ", "-")+".json")
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
