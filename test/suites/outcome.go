package suites

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// outcome is how a test ended.
type outcome string

const (
	passed     outcome = "pass"
	failed     outcome = "fail"
	skipped    outcome = "skip"
	unfinished outcome = "unfinished" // the process ended before the test
	missing    outcome = "missing"    // the test did not begin
)

// outcomes are those of a run, by the name of the test.
type outcomes map[string]outcome

// process is the test that the whole process passes if it ends without an error: some packages look
// for leaked goroutines behind their tests.
const process = "(process)"

// readEvents reads test2json's events and writes the tests' output to log.
func (o outcomes) readEvents(events io.Reader, log io.Writer) error {
	decoder := json.NewDecoder(events)
	for {
		var e struct{ Action, Test, Output string }
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name := e.Test
		if name == "" {
			name = process
		}
		switch e.Action {
		case "run":
			o[name] = unfinished
		case "pass", "fail", "skip":
			o[name] = outcome(e.Action)
		case "output":
			if _, err := io.WriteString(log, e.Output); err != nil {
				return err
			}
		}
	}
}

// specReport is a part of ginkgo's JSON report.
type specReport struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		NumAttempts             int
	}
}

// readSpecs reads ginkgo's report, without the specs that were not selected. Specs of the same name are numbered. A
// failed setup of the suite has no name but its type.
func (o outcomes) readSpecs(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var reports []specReport
	if err := json.Unmarshal(text, &reports); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	seen := map[string]int{}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			if spec.State == "skipped" && spec.NumAttempts == 0 {
				continue // not selected
			}
			name := strings.Join(append(slices.Clone(spec.ContainerHierarchyTexts), spec.LeafNodeText), " ")
			if spec.LeafNodeType != "It" {
				name = spec.LeafNodeType
			}
			if seen[name]++; seen[name] > 1 {
				name = fmt.Sprintf("%s #%d", name, seen[name])
			}
			o[specPrefix+name] = ofState(spec.State)
		}
	}
	return nil
}

// specPrefix tells specs from Go's tests.
const specPrefix = "spec: "

func ofState(state string) outcome {
	switch state {
	case "passed":
		return passed
	case "skipped", "pending":
		return skipped
	}
	return failed
}
