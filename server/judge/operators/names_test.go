package operators_test

import (
	"testing"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// TestRandomNames checks that an operator may make names at random, and that its objects are known by their pattern.
func TestRandomNames(t *testing.T) {
	t.Parallel()
	b := bug{files: 1, plan: "foreign-delete"}
	report := b.judge(t, variant{do: randomName}, impatient)
	if len(report.Findings) != 1 {
		t.Fatal(describe(t, report))
	}
	if f := report.Findings[0]; f.Verdict != operators.Diverged || f.Plan.Place.Name != "web-*" {
		t.Error(describe(t, report))
	}
}
