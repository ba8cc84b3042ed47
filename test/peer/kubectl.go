package peer

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Kubectl runs kubectl against the server and returns what it printed to
// stdout. It fails the test if kubectl exits with an error.
func (s *Server) Kubectl(tb testing.TB, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), Build(tb, Kubectl), args...)
	cmd.Env = append(os.Environ(), KubectlEnv(s.kubeconfig, tb.TempDir())...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String()
}

// KubectlEnv is the environment that has kubectl use kubeconfig, and home for
// its cache of what the server offers instead of the user's.
func KubectlEnv(kubeconfig, home string) []string {
	return []string{"KUBECONFIG=" + kubeconfig, "HOME=" + home}
}
