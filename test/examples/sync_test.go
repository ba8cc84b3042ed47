package examples

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// TestSync runs examples/sync/local.sh.
func TestSync(t *testing.T) {
	kubectl := peer.Build(t, peer.Kubectl)
	bin := t.TempDir()
	if err := os.Symlink(kubectl, filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	for database, needs := range map[string]string{"sqlite": "/usr/bin/sqlite3",
		"postgres": "/usr/lib/postgresql/*/bin/initdb"} {
		t.Run(database, func(t *testing.T) {
			if found, err := filepath.Glob(needs); err != nil || len(found) == 0 {
				t.Skipf("no %s: the example of %s is NOT tested", needs, database)
			}
			ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", filepath.Join(root, "examples/sync/local.sh"), database)
			cmd.Env = append(os.Environ(), "KEEPWATCH="+peer.Keepwatch(t), "PATH="+bin+":"+os.Getenv("PATH"),
				"HOME="+t.TempDir())
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends what it has started
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range []string{
				`widgets.example.com\|one\|\d+\|\d+\|[0f]\n`, `one\|4\|\d+\n`, `deleted: two\|5\n`, `\nREDACTED\n`,
				`configmaps +default +\d+`, `namespaces +<all> +\d+`, `widgets.example.com +<all> +\d+`,
			} {
				if !regexp.MustCompile(want).Match(out) {
					t.Errorf("no %s in %s", want, out)
				}
			}
		})
	}
}
