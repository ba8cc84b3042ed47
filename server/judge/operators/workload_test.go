package operators

import (
	"strings"
	"testing"
)

// TestUnreadableWorkloads checks that a workload that cannot be read is an error, which names the file.
func TestUnreadableWorkloads(t *testing.T) {
	for name, c := range map[string]struct{ file, content, want string }{
		"no step":             {"README.md", "steps", "has no file"},
		"no duration":         {"1.advance", "soon", `1.advance: time: invalid duration "soon"`},
		"a duration in words": {"1.advance", "2h of time", "1.advance: time: unknown unit"},
		"no object":           {"1.yaml", "kind: Widget", "1.yaml: a document lacks apiVersion, kind or metadata.name"},
		"no YAML":             {"1.patch.yaml", "{", "1.patch.yaml: "},
	} {
		folder := t.TempDir()
		writeFile(t, folder+"/"+c.file, c.content)
		if _, err := readWorkload(folder); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
