package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJudgeCommand judges a command that is no operator: it exits.
func TestJudgeCommand(t *testing.T) {
	parallel(t)
	workload, record := filepath.Join(t.TempDir(), "workload"), filepath.Join(t.TempDir(), "record")
	if err := os.Mkdir(workload, 0o700); err != nil {
		t.Fatal(err)
	}
	object := "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	if err := os.WriteFile(filepath.Join(workload, "1.yaml"), []byte(object), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"judge", "--workload", workload, "--record", record, "-o", "json", "--", "sh", "-c",
		"test -s $KUBECONFIG -a -s $1 && echo started; exit 3", "sh", "{kubeconfig}"}
	code, stdout, stderr := execute(t, args...)
	if code != 1 || !strings.Contains(stderr, "1 findings") {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	var report struct{ Findings []struct{ Verdict string } }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Findings) != 1 ||
		report.Findings[0].Verdict != "died" {
		t.Errorf("%v: %s", err, stdout)
	}
	for name, part := range map[string]string{"operator.log": "without a fault [1] | started\n", "report.txt": "died, in 3 of 3 runs",
		"report.xml": "<failure", "report.json": `"died"`,
		"report.html": `<span class="verdict">died</span>, in 3 of 3 runs`} {
		if content, err := os.ReadFile(filepath.Join(record, name)); err != nil || !strings.Contains(string(content), part) {
			t.Errorf("%s: %v: %q", name, err, content)
		}
	}
	expected := filepath.Join(t.TempDir(), "expected.yaml")
	if err := os.WriteFile(expected, []byte("[{verdict: died, reason: it is no operator}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := execute(t, "judge", "--workload", workload, "--expected", expected, "--",
		"false"); code != 1 || !strings.Contains(stdout, "0 findings, 1 expected") ||
		!strings.Contains(stderr, "no plan was run") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestJudgeUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"true"}, {"--workload", "x", "-o", "yaml", "true"}, {"--workload", "x", "--plan", "unknown:1", "true"},
		{"--workload", "x", "--repeat", "-1", "true"}, {"--workload", "x", "--expected", "missing", "true"},
		{"--workload", "x"},
	} {
		code, stdout, stderr := execute(t, append([]string{"judge"}, args...)...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "keepwatch: ") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}
