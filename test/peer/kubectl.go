package peer

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Kubectl runs kubectl against the server and returns its stdout. It fails the test if
// kubectl exits with an error.
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

// KubectlEnv returns an environment in which kubectl uses kubeconfig, and home instead of
// the user's for its discovery cache.
func KubectlEnv(kubeconfig, home string) []string {
	return []string{"KUBECONFIG=" + kubeconfig, "HOME=" + home}
}
