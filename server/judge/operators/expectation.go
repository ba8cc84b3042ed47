package operators

import (
	"errors"
	"fmt"
	"os"
	"path"

	"sigs.k8s.io/yaml"
)

// Expectation accepts findings, for a reason.
type Expectation struct {
	// Verdict is the verdict's word.
	Verdict string `json:"verdict"`
	// Plan is a pattern of path.Match for the plan's text; a colon in it counts as any other character, and * does not
	// match a slash. Default: every plan, and runs without a fault.
	Plan string `json:"plan,omitempty"`
	// Reason says why the finding is accepted. It is required.
	Reason string `json:"reason"`
}

// ReadExpectations reads a file with a list of expectations, in YAML.
func ReadExpectations(file string) ([]Expectation, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []Expectation
	if err := yaml.UnmarshalStrict(content, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, e := range all {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("%s: expectation %d: %w", file, i+1, err)
		}
	}
	return all, nil
}

func (e Expectation) check() error {
	known := false
	for v := range verdicts {
		known = known || v.String() == e.Verdict
	}
	if !known {
		return fmt.Errorf("the verdict %q is unknown", e.Verdict)
	}
	if e.Reason == "" {
		return errors.New("the reason is missing")
	}
	_, err := path.Match(e.Plan, "")
	return err
}

// reasonFor returns the reason of the first expectation that has a finding.
func reasonFor(f Finding, expected []Expectation) string {
	for _, e := range expected {
		if e.Verdict != f.Verdict.String() {
			continue
		}
		matches := e.Plan == ""
		if !matches && f.Plan != nil {
			matches, _ = path.Match(e.Plan, f.Plan.String())
			if kind, _ := path.Match(e.Plan, f.Plan.Kind); kind {
				matches = true
			}
		}
		if matches {
			return e.Reason
		}
	}
	return ""
}
