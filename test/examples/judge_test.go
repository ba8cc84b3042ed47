package examples

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

// TestJudgePython judges the operator of examples/judge/python, which is kopf's, and the same without its mistake.
func TestJudgePython(t *testing.T) {
	python, err := filepath.Abs(root + "/bin/python/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import kopf, kubernetes").Run(); err != nil {
		t.Skip("examples/judge/python is NOT tested: it needs Python with kopf and kubernetes; run make python")
	}
	keepwatch := peer.Keepwatch(t)
	judge := func(t *testing.T, plan, patience string, flags ...string) (code int, report string) {
		t.Helper()
		args := []string{
			"judge", "--crds", "examples/widgets.yaml", "--workload", "examples/judge/workload", "--seed", "1",
			"--plan", plan, "--patience", patience, "--repeat", "1", "--", python, "examples/judge/python/widgets.py",
		}
		cmd := exec.CommandContext(t.Context(), keepwatch, append(args, flags...)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	t.Run("with the mistake", func(t *testing.T) {
		t.Parallel()
		code, report := judge(t, "lost-answer:1:create:configmaps:default/web-*:1", "20s")
		if code != 1 || !strings.Contains(report, "\nduplicated, in 1 of 1 runs: ") {
			t.Errorf("exit %d, and no second ConfigMap in\n%s", code, report)
		}
	})
	t.Run("fixed", func(t *testing.T) {
		t.Parallel()
		code, report := judge(t, "lost-answer", "5m", "--fixed")
		if code != 0 || !strings.Contains(report, "\nlost-answer  3    3       0 ") {
			t.Errorf("exit %d, want 3 plans of 3 that pass in\n%s", code, report)
		}
	})
}
