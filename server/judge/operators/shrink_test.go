package operators_test

import (
	"testing"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// TestSmallest checks that a finding is reported with the one object and the one fault that it needs, and that this
// repeats it, without -short.
func TestSmallest(t *testing.T) {
	t.Parallel()
	b := bug{files: 1, plan: "failing:2:create:configmaps:shop/web:1", roles: true}
	folder := write(t, map[string]string{
		"1-before.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: before, namespace: shop}}",
		"2-create.yaml": foreign + wholeWorkload["1-create.yaml"],
	})
	buggy := variant{do: cleanUpAfterError}
	report := b.judge(t, buggy, func(o *operators.Options) { o.Workload, o.Whole = folder, false })
	if len(report.Findings) != 1 || report.Findings[0].Smallest == nil {
		t.Fatal(describe(t, report))
	}
	small := *report.Findings[0].Smallest
	if small.Steps != "2.2" || small.Plan.String() != b.plan+":once" || small.Shown != 1 {
		t.Errorf("smallest: %+v", small)
	}
	want := "--plan " + b.plan + ":once --steps 2.2 --seed 1"
	if repeat := report.Repeat(report.Findings[0]); repeat != want {
		t.Errorf("repeat with %s, want %s", repeat, want)
	}
	if testing.Short() {
		return
	}
	b.plan = small.Plan.String()
	report = b.judge(t, buggy, func(o *operators.Options) { o.Workload, o.Steps = folder, small.Steps })
	again := report.Findings
	if len(again) != 1 || again[0].Verdict != operators.Forbidden || again[0].Plan.String() != b.plan {
		t.Error(describe(t, report))
	}
}
