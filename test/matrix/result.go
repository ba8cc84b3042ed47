package matrix

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

// Outcome is how a cell ended. The set is closed.
type Outcome string

// The outcomes, within two minutes of the last write.
const (
	// Right: the client's state is the server's.
	Right Outcome = "right"
	// Wrong: the client has received the last write, and its state is not the server's.
	Wrong Outcome = "wrong"
	// Hung: the client runs, and has not received the last write.
	Hung Outcome = "hung"
	// Died: the process has ended.
	Died Outcome = "died"
)

// Result is what was measured in one cell, from the client's initial state on.
type Result struct {
	Client  string       `json:"client"`
	Version string       `json:"version,omitempty"`
	View    clients.View `json:"view"`
	Plan    string       `json:"plan"`
	Seed    uint64       `json:"seed"`

	Upstream        Upstream `json:"upstream"`
	UpstreamVersion string   `json:"upstreamVersion,omitempty"`

	Outcome  Outcome `json:"outcome"`
	ExitCode int     `json:"exitCode"` // of a client that died
	// Recovery is the time in seconds from the end of the faults and the last write until the client's
	// state was the server's, if it was.
	Recovery float64 `json:"recovery"`

	Writes int `json:"writes"`
	// Hidden is true if the plan makes clients list: then intermediate states are lost for every client.
	Hidden bool `json:"hidden"`
	Counts
	// Violations of package check's promises, and the first three.
	Violations int      `json:"violations"`
	Broken     []string `json:"broken,omitempty"`
	// Errors that the client showed its user.
	Errors int `json:"errors"`

	// Lists counts lists and streaming lists, by their first page; Requests has watches and pages too.
	Lists    int `json:"lists"`
	Requests int `json:"requests"`
	// Rate is the largest number of requests within a second. The proxy does not see refused connections.
	Rate int `json:"rate"`

	// Faults counts those that the client's lists and watches met. It is not saved.
	Faults int `json:"-"`
	// Load is the machine's load average when the cell ended.
	Load float64 `json:"load"`
}

// file is where the result is, with the others of the same client and upstream.
func (r Result) file(dir string) string {
	return filepath.Join(dir, slug(string(r.Upstream))+"--"+slug(r.Client)+".json")
}

// Save writes the result into a folder, in place of an earlier one of the same cell.
func (r Result) Save(dir string) error {
	file := r.file(dir)
	results, err := readResults(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	results = slices.DeleteFunc(results, func(o Result) bool { return o.Plan == r.Plan })
	results = append(results, r)
	slices.SortFunc(results, func(a, b Result) int { return cmp.Compare(a.Plan, b.Plan) })
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// LoadResults returns all results of a folder.
func LoadResults(dir string) ([]Result, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Result
	for _, file := range files {
		results, err := readResults(file)
		if err != nil {
			return nil, err
		}
		all = append(all, results...)
	}
	return all, nil
}

func readResults(file string) (results []Result, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &results); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return results, nil
}

// slug is a name as part of a file's.
func slug(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-")
}
