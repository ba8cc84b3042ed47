package envtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// assets makes a folder of the programs for a test, and checks that none of them runs when the test has ended.
func assets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), peer.Keepwatch(t), "assets", "--dir", dir).CombinedOutput()
	if err != nil || string(out) != dir+"\n" {
		t.Fatalf("keepwatch assets: %v, %s", err, out)
	}
	t.Cleanup(func() {
		if left := running(t, dir); len(left) > 0 {
			t.Errorf("still running: %v", left)
		}
	})
	return dir
}

// running returns the processes whose program is in dir, by their ids, with their command lines.
func running(t *testing.T, dir string) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatalf("cannot read the processes of this system: %v", err)
	}
	found := map[int]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		line := strings.ReplaceAll(string(text), "\x00", " ")
		if err != nil || !strings.HasPrefix(line, dir+"/") {
			continue
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		found[id] = line
	}
	return found
}

// environment returns an environment with the programs in a folder, which is not started. It is stopped with the test.
func environment(t *testing.T, dir string) *envtest.Environment {
	t.Helper()
	env := &envtest.Environment{
		BinaryAssetsDirectory:    dir,
		ControlPlaneStartTimeout: await.Deadline,
		ControlPlaneStopTimeout:  await.Deadline,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: await.Deadline},
		WebhookInstallOptions:    envtest.WebhookInstallOptions{MaxTime: await.Deadline},
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return env
}
