package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

// The tests of examples/testing pass, with keepwatch as their users start it.
func TestPythonTests(t *testing.T) {
	python, err := filepath.Abs(root + "/bin/python/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import kubernetes, pytest").Run(); err != nil {
		t.Skip("examples/testing/python is NOT tested: it needs Python with kubernetes and pytest; run make python")
	}
	runTests(t, root+"/examples/testing/python", python, "-B", "-m", "pytest", "-p", "no:cacheprovider")
}

func TestJavaScriptTests(t *testing.T) {
	node, dir := nodeTests(t, "javascript", "@kubernetes/client-node")
	runTests(t, dir, node, "--test")
}

func TestVitestTests(t *testing.T) {
	node, dir := nodeTests(t, "vitest", "vitest")
	runTests(t, dir, node, "node_modules/vitest/vitest.mjs", "run")
}

// nodeTests copies tests in JavaScript beside the packages of make javascript: Node looks for packages beside the files
// that import them. It returns the path of Node and the folder.
func nodeTests(t *testing.T, name, needs string) (node, dir string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("examples/testing/%s is NOT tested: it needs Node.js 20 or later on the PATH", name)
	}
	packages, err := filepath.Abs(root + "/test/matrix/clients/javascript/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(packages, needs)); err != nil {
		t.Skipf("examples/testing/%s is NOT tested: it needs its packages; run make javascript", name)
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(root+"/examples/testing/"+name)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return node, dir
}

func TestRustTests(t *testing.T) {
	cargo, err := exec.LookPath("cargo")
	built, absErr := filepath.Abs(root + "/bin/rust")
	if absErr != nil {
		t.Fatal(absErr)
	}
	cache, unbuilt := os.ReadFile(filepath.Join(built, "tests-built"))
	if err != nil || unbuilt != nil {
		t.Skip("examples/testing/rust is NOT tested: it needs cargo on the PATH, and its crates; run make rust")
	}
	t.Setenv("CARGO_PROFILE_DEV_DEBUG", "0") // as make rust has it
	t.Setenv("CARGO_BUILD_BUILD_DIR", strings.TrimSpace(string(cache)))
	runTests(t, root+"/examples/testing/rust", cargo, "test", "--quiet", "--locked", "--offline", "--target-dir", built)
}

// An extension of JUnit starts keepwatch serve, and kube-api-test the programs that keepwatch assets makes.
func TestJavaTests(t *testing.T) {
	maven, err := exec.LookPath("mvn")
	if _, missing := exec.LookPath("javac"); err != nil || missing != nil {
		t.Skip("examples/testing/java is NOT tested: it needs mvn and javac on the PATH")
	}
	dir, assets := t.TempDir(), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(root+"/examples/testing/java")); err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(assets, "k8s", "1.37.2-"+runtime.GOOS+"-"+runtime.GOARCH)
	if out, err := exec.CommandContext(t.Context(), peer.Keepwatch(t), "assets", "--dir",
		programs).CombinedOutput(); err != nil {
		t.Fatalf("keepwatch assets: %v\n%s", err, out)
	}
	t.Setenv("KUBE_API_TEST_DIR", assets)
	runTests(t, dir, maven, "-q", "-B", "test")
}

// runTests runs another test runner in a folder, with keepwatch.
func runTests(t *testing.T, dir, runner string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), runner, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "KEEPWATCH="+peer.Keepwatch(t))
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
}
