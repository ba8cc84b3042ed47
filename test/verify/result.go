package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// result is what one run of a part found.
type result struct {
	Part    string    `json:"part"`
	Date    time.Time `json:"date"` // of the start
	Commit  string    `json:"commit"`
	Sources string    `json:"sources"` // see identify
	Seed    string    `json:"seed"`
	Command string    `json:"command"`
	Machine string    `json:"machine"`
	Seconds int       `json:"seconds"`
	Passed  bool      `json:"passed"`
	Skipped []string  `json:"skipped,omitempty"` // what was not tested, each with its reason
}

// of reports whether the result is about a part as it would run now.
func (r result) of(p part, id identity, seed string) bool {
	return r.Part == p.id() && r.Command == p.command && r.Sources == id.sources && r.Seed == seed
}

func resultFile(dir string, p part) string { return filepath.Join(dir, p.id()+".json") }

// loadResult returns the last result of a part. The zero result means that the part has never run.
func loadResult(dir string, p part) (result, error) {
	text, err := os.ReadFile(resultFile(dir, p))
	if errors.Is(err, fs.ErrNotExist) {
		return result{}, nil
	}
	var r result
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// loadResults returns the last results of all parts, by name.
func loadResults(dir string) ([]result, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	results := make([]result, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &results[i])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return results, nil
}

func (r result) save(dir string, p part) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(resultFile(dir, p), append(text, '\n'), 0o644)
}
