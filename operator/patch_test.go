package operator

import (
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
	p := &Patch{}
	p.Set("spec.size", make(chan int))
	if _, err := p.drain(); err == nil || !strings.Contains(err.Error(), "patch of spec.size") {
		t.Errorf("what JSON can't express: %v", err)
	}
}
