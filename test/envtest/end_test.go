package envtest

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// abandonVariable names the folder of assets for a process of abandon.
const abandonVariable = "KEEPWATCH_ENVTEST_ABANDON"

// abandon starts an environment, reports that, and never stops it.
func abandon(dir string) {
	env := &envtest.Environment{BinaryAssetsDirectory: dir, ControlPlaneStartTimeout: await.Deadline}
	config, err := env.Start()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started", config.Host)
	time.Sleep(2 * await.Deadline)
	os.Exit(1)
}

// The programs end when the test that started them is killed, as go test does after a timeout's panic. With the real
// programs both stay.
func TestKilledTestLeavesNothing(t *testing.T) {
	dir := assets(t)
	test := exec.CommandContext(t.Context(), os.Args[0])
	test.Env = append(os.Environ(), abandonVariable+"="+dir, "TMPDIR="+t.TempDir()) // what it leaves
	stdout, err := test.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "started https://") {
		t.Errorf("the environment: %v, %s", err, line)
	}
	if lines := running(t, dir); len(lines) != 2 {
		t.Errorf("before the kill %v run", lines)
	}
	if err := test.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = test.Wait()
	await.NoError(t, "both programs end", func() error {
		if lines := running(t, dir); len(lines) > 0 {
			return fmt.Errorf("%v run", lines)
		}
		return nil
	})
}

// An API server that is killed does not come back, and its environment stops.
func TestKilledServer(t *testing.T) {
	dir := assets(t)
	env := environment(t, dir)
	if _, err := env.Start(); err != nil {
		t.Fatal(err)
	}
	for id, line := range running(t, dir) {
		if strings.HasPrefix(line, dir+"/kube-apiserver ") {
			if err := syscall.Kill(id, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	await.NoError(t, "only etcd runs", func() error {
		left := slices.Collect(maps.Values(running(t, dir)))
		if len(left) != 1 || !strings.HasPrefix(left[0], dir+"/etcd ") {
			return fmt.Errorf("%q run", left)
		}
		return nil
	})
	// Between the end of a process and envtest's note of it, Stop fails: there is no process to signal.
	await.NoError(t, "envtest ends etcd", env.Stop)
}
