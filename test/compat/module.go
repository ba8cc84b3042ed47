package compat

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	library = "github.com/keepwatch/keepwatch"
	// anyVersion of the library is replaced by the repository.
	anyVersion = "@v0.1.0"
)

// kubernetesModules are those that a user's program requires.
var kubernetesModules = []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}

// module is the module of a user, in a folder of its own.
type module struct {
	version
	root string // of the repository
	dir  string
}

// newModule makes a module that requires the version's libraries, and the library from the repository.
func newModule(t *testing.T, root string, v version) module {
	t.Helper()
	m := module{v, root, t.TempDir()}
	m.copy(t, filepath.Join("testdata", "user"), ".")
	// The go command then asks no server for the checksums of what this repository requires, too.
	var sums []byte
	for _, of := range []string{".", "test"} {
		text, err := os.ReadFile(filepath.Join(root, of, "go.sum"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, text...)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "go.sum"), sums, 0o666); err != nil {
		t.Fatal(err)
	}
	m.run(t, "mod", "init", "example.com/user")
	m.run(t, "mod", "edit", "-replace", library+"="+root)
	if v.replace != "" {
		m.run(t, "mod", "edit", "-replace", v.replace)
	}
	get := []string{"get", library + anyVersion}
	for _, of := range kubernetesModules {
		get = append(get, of+"@"+v.kubernetes)
	}
	m.run(t, get...)
	// -e: of the newest version the tests of its own packages may import what is not published.
	m.run(t, "mod", "tidy", "-e")
	return m
}

// copy copies a folder of Go files, without their tests.
func (m module) copy(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s (%v)", from, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m.write(t, filepath.Join(to, filepath.Base(file)), text)
	}
}

func (m module) write(t *testing.T, file string, text []byte) {
	t.Helper()
	path := filepath.Join(m.dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o666); err != nil {
		t.Fatal(err)
	}
}

// overlay writes a file for go's flag of that name.
func (m module) overlay(t *testing.T, replace map[string]string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, "overlay.json", text)
	return filepath.Join(m.dir, "overlay.json")
}

// require adds another module, at a version.
func (m module) require(t *testing.T, module, version string) {
	t.Helper()
	m.run(t, "get", module+"@"+version)
}

// keepsItsVersions checks that nothing has raised the versions of Kubernetes' libraries.
func (m module) keepsItsVersions(t *testing.T) {
	t.Helper()
	for _, of := range kubernetesModules {
		if got := strings.TrimSpace(m.run(t, "list", "-m", "-f", "{{.Version}}", of)); got != m.kubernetes {
			t.Errorf("the module has %s %s, and required %s", of, got, m.kubernetes)
		}
	}
}

// test runs tests of packages, which may be the library's. arguments precede the packages.
func (m module) test(t *testing.T, environment []string, packages []string, arguments ...string) {
	t.Helper()
	if _, err := m.try(t, environment, packages, arguments...); err != nil {
		t.Error(err)
	}
}

// try is test that returns the outcome.
func (m module) try(t *testing.T, environment []string, packages []string,
	arguments ...string) (out string, err error) {
	t.Helper()
	m.run(t, "get", "-t", "-tags", m.tag, "./...", library+"/..."+anyVersion)
	defer m.keepsItsVersions(t)
	arguments = append([]string{"test", "-mod=mod", "-vet=off", "-short", "-tags", m.tag}, arguments...)
	out, err = m.command(t.Context(), environment, append(arguments, packages...)...)
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "[no test files]") {
			t.Log(strings.TrimSuffix(line, "\n"))
		}
	}
	return out, err
}

func (m module) run(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := m.command(t.Context(), nil, arguments...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// command runs the go command in the module. The newest version of Kubernetes' libraries needs a newer Go than this
// module.
func (m module) command(ctx context.Context, environment []string, arguments ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", arguments...)
	c.Dir = m.dir
	c.Env = append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN=auto")
	c.Env = append(c.Env, environment...)
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go %s: %w", strings.Join(arguments, " "), err)
	}
	return string(out), err
}
