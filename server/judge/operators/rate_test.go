package operators_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// TestRate checks that a finding says in how many runs of its plan it was seen: an operator creates a second child
// after the first and the third answer that it loses, and not after the second.
func TestRate(t *testing.T) {
	t.Parallel()
	var lost atomic.Int32
	sometimes := generatedChild(func(c *controller, name string) bool {
		if c.get("has tried") == "" {
			c.set("has tried", "yes")
			return false
		}
		if c.get("knows") == "" && lost.Add(1)%2 == 0 {
			c.set("knows", "yes")
		}
		return c.get("knows") != ""
	})
	report := bug{files: 1, plan: "lost-answer:1"}.judge(t, variant{do: sometimes}, func(o *operators.Options) {
		impatient(o)
		o.Repeat = 3
	})
	if len(report.Findings) != 1 || report.Findings[0].Verdict != operators.Duplicated || report.Findings[0].Shown != 2 ||
		report.Findings[0].Of != 3 {
		t.Fatal(describe(t, report))
	}
	var table strings.Builder
	if err := report.PrintTable(&table); err != nil || !strings.Contains(table.String(), "duplicated, in 2 of 3 runs: ") {
		t.Errorf("%v, %s", err, &table)
	}
}
