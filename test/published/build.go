package published

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// source builds an operator.
type source interface {
	// id names a folder for a version.
	id(version string) string
	// build makes a version in an empty folder.
	build(ctx context.Context, folder, version string) error
	// command returns how the version in a folder is started, and its definitions.
	command(folder string) (command []string, crds string, err error)
}

// operator returns the command and the definitions of a version. It is built once, below a folder for all.
func operator(ctx context.Context, s source, all, version string) ([]string, string, error) {
	folder := filepath.Join(all, s.id(version))
	built := filepath.Join(folder, "built")
	if _, err := os.Stat(built); err == nil {
		return s.command(folder)
	}
	if err := os.RemoveAll(folder); err != nil {
		return nil, "", err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, "", err
	}
	if err := s.build(ctx, folder, version); err != nil {
		return nil, "", err
	}
	if err := os.WriteFile(built, nil, 0o644); err != nil {
		return nil, "", err
	}
	return s.command(folder)
}

// pypi is a package with an operator of kopf.
type pypi struct {
	name, module string
	crds         string // folder below site-packages
}

func (p pypi) id(version string) string { return p.name + "-" + version }

func (p pypi) build(ctx context.Context, folder, version string) error {
	// sniffio: kr8s of early 2025 imports what httpx no longer requires.
	install := []string{filepath.Join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", p.name + "==" + version,
		"kopf==1.45.2", "sniffio"}
	return execute(ctx, "", []string{"python3", "-m", "venv", folder}, install)
}

func (p pypi) command(folder string) ([]string, string, error) {
	crds, err := filepath.Glob(filepath.Join(folder, "lib", "python3*", "site-packages", p.crds))
	if err != nil || len(crds) != 1 {
		return nil, "", fmt.Errorf("%s has no folder %s: %v", folder, p.crds, err)
	}
	return []string{filepath.Join(folder, "bin", "python"), "-m", "kopf", "run", "-m", p.module, "--all-namespaces"},
		crds[0], nil
}

// kopf is the operator of testdata/kopf with a version of that library. Its value says where it looks for objects.
type kopf string

func (k kopf) id(version string) string { return "kopf-" + version }

func (k kopf) build(ctx context.Context, folder, version string) error {
	install := []string{filepath.Join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "kopf==" + version}
	return execute(ctx, "", []string{"python3", "-m", "venv", folder}, install)
}

func (k kopf) command(folder string) ([]string, string, error) {
	return []string{filepath.Join(folder, "bin", "python"), "-m", "kopf", "run", "testdata/kopf/widgets.py", string(k)},
		widgets, nil
}

// widgets is the definition of the operators that are made with a library.
const widgets = "../../examples/widgets.yaml"

// controllerRuntime is the operator of testdata/controller-runtime with a version of that library.
type controllerRuntime struct{ arguments []string }

func (c controllerRuntime) id(version string) string {
	return "controller-runtime-" + version + "-" + digest(controllerRuntimeProgram)
}

const controllerRuntimeProgram = "testdata/controller-runtime/main.go"

func (c controllerRuntime) build(ctx context.Context, folder, version string) error {
	if err := copyInto(folder, controllerRuntimeProgram); err != nil {
		return err
	}
	module := []byte("module judged\n\ngo 1.26.0\n")
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), module, 0o644); err != nil {
		return err
	}
	return execute(ctx, folder, []string{"go", "get", "sigs.k8s.io/controller-runtime@" + version},
		[]string{"go", "get", "."}, []string{"go", "build", "-o", "operator", "."})
}

func (c controllerRuntime) command(folder string) ([]string, string, error) {
	return append([]string{filepath.Join(folder, "operator")}, c.arguments...), widgets, nil
}

// clientNode is the operator of testdata/client-node with a version of @kubernetes/client-node.
type clientNode struct{}

func (clientNode) id(version string) string {
	return "client-node-" + version + "-" + digest(clientNodeProgram)
}

const clientNodeProgram = "testdata/client-node/widgets.mjs"

func (clientNode) build(ctx context.Context, folder, version string) error {
	if err := copyInto(folder, clientNodeProgram); err != nil { // a module finds its imports in the folder that it is in
		return err
	}
	return execute(ctx, folder, []string{"npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", ".",
		"@kubernetes/client-node@" + version})
}

func (clientNode) command(folder string) ([]string, string, error) {
	return []string{"node", filepath.Join(folder, "widgets.mjs")}, widgets, nil
}

// digest names the content of a program that is built once: another one is built again.
func digest(program string) string {
	content, _ := os.ReadFile(program) // build says what is wrong
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:4])
}

func copyInto(folder, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, filepath.Base(program)), content, 0o644)
}

// execute runs commands in a folder. The output of the one that fails is part of the error.
func execute(ctx context.Context, folder string, commands ...[]string) error {
	for _, arguments := range commands {
		command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
		command.Dir = folder
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", arguments, err, output)
		}
	}
	return nil
}
