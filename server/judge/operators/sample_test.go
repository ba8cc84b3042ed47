package operators_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// TestSamples checks that the workload that is derived from a sample changes what the definition allows, and finds a
// bug that needs a change.
func TestSamples(t *testing.T) {
	t.Parallel()
	crd := strings.Replace(definition, "{size: {type: integer}}", `{size: {type: integer, maximum: 1},
  mode: {type: string, enum: [a, b]}, image: {type: string}, paused: {type: boolean, default: false},
  zone: {type: integer, x-kubernetes-validations: [{rule: self == oldSelf}]}}`, 1)
	sample := "{apiVersion: example.com/v1, kind: Widget, metadata: {name: web, namespace: shop}, " +
		"spec: {size: 1, mode: b, image: nginx, zone: 7}}"
	folder := write(t, map[string]string{
		"kustomization.yaml": "resources: [v1_widget.yaml]", "v1_widget.yaml": sample,
		"a_secret.yaml": "{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: shop}}",
	})
	b := bug{files: 1, plan: "foreign-edit"}
	report := b.judge(t, variant{do: overwriting}, func(o *operators.Options) {
		o.CRDs, o.Workload, o.Samples = []string{write(t, map[string]string{"crd.yaml": crd})}, "", []string{folder}
	})
	want := []string{
		"create the samples", "change spec.mode of Widget web", "change spec.paused of Widget web",
		"change spec.size of Widget web", "delete the custom resources", "create them again",
	}
	if !slices.Equal(report.Steps, want) {
		t.Errorf("the steps are %q, want %q", report.Steps, want)
	}
	found := report.Findings
	if len(found) != 1 || found[0].Verdict != operators.Overwritten || found[0].Plan.Place.Step != 4 {
		t.Error(describe(t, report))
	}
}
