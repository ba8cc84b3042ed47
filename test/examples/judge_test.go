package examples

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

// TestJudge judges the operator of examples/judge, and the same without its mistake. Without -short all plans disturb
// it: one finding is left, which docs/judge.md explains.
func TestJudge(t *testing.T) {
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "judge")
	quickStart(t, "20s", program)
	if testing.Short() {
		return
	}
	t.Run("all plans", func(t *testing.T) {
		t.Parallel()
		code, report := judge(t, "--patience", "20s", "--", program, "--fixed")
		all := strings.Count(report, " in 1 of 1 runs: ")
		if code != 1 || all == 0 || all != len(onlyDeleted.FindAllString(report, -1)) {
			t.Errorf("exit %d, want diverged in foreign-delete and nothing else in\n%s", code, report)
		}
	})
}

// TestJudgePython judges the operator of examples/judge/python, which is kopf's, and the same without its mistake.
func TestJudgePython(t *testing.T) {
	python, err := filepath.Abs(root + "/bin/python/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import kopf, kubernetes").Run(); err != nil {
		t.Skip("examples/judge/python is NOT tested: it needs Python with kopf and kubernetes; run make python")
	}
	quickStart(t, "5m", python, "examples/judge/python/widgets.py")
}

// quickStart checks that a lost answer leads to a second ConfigMap, and with --fixed to nothing.
func quickStart(t *testing.T, patience string, operator ...string) {
	t.Run("with the mistake", func(t *testing.T) {
		t.Parallel()
		flags := []string{"--plan", "lost-answer:1:create:configmaps:default/web-*:1", "--patience", "20s", "--"}
		code, report := judge(t, slices.Concat(flags, operator)...)
		if code != 1 || !strings.Contains(report, "\nduplicated, in 1 of 1 runs: ") {
			t.Errorf("exit %d, and no second ConfigMap in\n%s", code, report)
		}
	})
	t.Run("fixed", func(t *testing.T) {
		t.Parallel()
		flags := []string{"--plan", "lost-answer", "--patience", patience, "--"}
		code, report := judge(t, slices.Concat(flags, operator, []string{"--fixed"})...)
		if code != 0 || !allReached.MatchString(report) {
			t.Errorf("exit %d, want that all plans pass in\n%s", code, report)
		}
	})
}

// onlyDeleted matches the finding that is left without the mistake.
var onlyDeleted = regexp.MustCompile(`\ndiverged, in 1 of 1 runs: .*\n  foreign-delete:`)

// allReached matches the line of lost answers, if each of their plans has run to its end.
var allReached = regexp.MustCompile(`\nlost-answer +[1-9]\d* +[1-9]\d* +0 `)

// judge judges an operator by the workload of the quick start.
func judge(t *testing.T, flags ...string) (code int, report string) {
	t.Helper()
	args := []string{"judge", "--crds", "examples/widgets.yaml", "--workload", "examples/judge/workload", "--seed", "1",
		"--repeat", "1", "--shrink=false"}
	cmd := exec.CommandContext(t.Context(), peer.Keepwatch(t), append(args, flags...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
