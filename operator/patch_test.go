package operator

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPatchRejectsReservedFields(t *testing.T) {
	for field, want := range map[string]string{
		"kind":           "it cannot be changed",
		"metadata.name":  "only labels, annotations, ownerReferences and finalizers",
		"metadata":       "name the fields in it",
		"status":         "name the fields in it",
		"spec..size":     "want names with dots between them",
		"status.op":      "status.op is the operator's",
		"status.op.make": "status.op is the operator's",
		`metadata.annotations.keepwatch\.io/make`: "are the operator's",
		"spec.size":                  "",
		"status.operation":           "",
		"metadata.annotations.color": "",
	} {
		p := &Patch{prefix: defaultPrefix, progress: []string{"status", "op"}}
		p.Set(field, 1)
		out, err := p.drain()
		switch {
		case want == "" && (err != nil || out.Empty()):
			t.Errorf("%s: %v", field, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", field, err, want)
		}
	}
	for want, value := range map[string]any{
		"name the annotation":                 nil,
		"keepwatch.io/make: annotations with": map[string]string{"a": "b", "keepwatch.io/make": "{}"},
	} {
		p := &Patch{prefix: defaultPrefix}
		p.Set("metadata.annotations", value)
		if out, err := p.drain(); err == nil || !strings.Contains(err.Error(), want) || !out.Empty() {
			t.Errorf("annotations %v: %v, want %q", value, err, want)
		}
	}
	p := &Patch{}
	p.Set("spec.size", make(chan int))
	if _, err := p.drain(); err == nil || !strings.Contains(err.Error(), "patch of spec.size") {
		t.Errorf("what JSON can't express: %v", err)
	}
}

// TestPatchMerges checks that changes add up as if each had been sent.
func TestPatchMerges(t *testing.T) {
	p := &Patch{}
	p.Set("spec", map[string]any{"a": map[string]any{"x": 1}, "b": 1, "c": map[string]any{"x": 1}})
	p.Set("spec", map[string]any{"a": map[string]any{"y": 2}, "b": map[string]any{"z": 3}, "c": nil})
	p.Set("spec.a.x", nil)
	out, err := p.drain()
	text, _ := json.Marshal(out.Merge)
	if want := `{"spec":{"a":{"x":null,"y":2},"b":{"z":3},"c":null}}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}
