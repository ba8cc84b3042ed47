package suites

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// workspace is a folder with a module that has the copied tests and requires the modules of all tests.
type workspace struct{ dir string }

// workspaceModule is the path of the module.
const workspaceModule = "github.com/keepwatch/keepwatch/suites"

// e2eFolder is the package in the workspace that runs Kubernetes' e2e specs. They stay in the module cache.
const e2eFolder = "e2e"

// newWorkspace makes the module from that of keepwatch-apiserver, so that the tests have its libraries.
// The go command adds what only the tests import.
func newWorkspace(ctx context.Context, root, dir string) (workspace, error) {
	w := workspace{dir}
	mod, err := w.module(root)
	if err != nil {
		return w, err
	}
	if err := w.write(mod, filepath.Join(root, "kubernetes", "go.sum")); err != nil {
		return w, err
	}
	if err := w.copyTests(ctx); err != nil {
		return w, err
	}
	if err := os.CopyFS(filepath.Join(w.dir, e2eFolder), os.DirFS(filepath.Join(root, "test/suites/testdata",
		e2eFolder))); err != nil {
		return w, err
	}
	return w, w.linkFixtures(ctx)
}

// linkFixtures makes the files of stored objects available, which tests read from where Kubernetes' repository has
// k8s.io/api.
func (w workspace) linkFixtures(ctx context.Context) error {
	const api = "k8s.io/api"
	source, err := w.goCommand(ctx, "list", "-mod=mod", "-m", "-f", "{{.Dir}}", api)
	if err != nil {
		return err
	}
	link := filepath.Join(w.dir, path.Base(kubernetesModule), "staging/src", api)
	if err := os.MkdirAll(filepath.Dir(link), 0o777); err != nil {
		return err
	}
	return os.Symlink(source, link)
}

// newRuntimeWorkspace makes the module from the module of tests, so that controller-runtime's tests have its
// libraries. They run where they are.
func newRuntimeWorkspace(root, dir string) (workspace, error) {
	w := workspace{dir}
	mod, err := parseModule(filepath.Join(root, "test", "go.mod"))
	if err != nil {
		return w, err
	}
	if err := mod.AddModuleStmt(workspaceModule); err != nil {
		return w, err
	}
	if err := replaceAbsolutely(mod, filepath.Join(root, "test")); err != nil {
		return w, err
	}
	text, err := mod.Format()
	if err != nil {
		return w, err
	}
	return w, w.write(text, filepath.Join(root, "test", "go.sum"))
}

// write makes the folder with the module's files.
func (w workspace) write(mod []byte, sumFile string) error {
	if err := os.RemoveAll(w.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(w.dir, 0o777); err != nil {
		return err
	}
	sums, err := os.ReadFile(sumFile)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, "go.sum"), sums, 0o666); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.dir, "go.mod"), mod, 0o666)
}

func (w workspace) module(root string) ([]byte, error) {
	mod, err := parseModule(filepath.Join(root, "kubernetes", "go.mod"))
	if err != nil {
		return nil, err
	}
	ours := mod.Module.Mod.Path
	if err := mod.AddModuleStmt(workspaceModule); err != nil {
		return nil, err
	}
	tests, err := parseModule(filepath.Join(root, "test", "go.mod"))
	if err != nil {
		return nil, err
	}
	for _, r := range tests.Require {
		if r.Mod.Path == runtimeModule {
			if err := mod.AddRequire(r.Mod.Path, r.Mod.Version); err != nil {
				return nil, err
			}
		}
	}
	if err := mod.AddRequire(ours, "v0.0.0"); err != nil {
		return nil, err
	}
	kubernetes := filepath.Join(root, "kubernetes")
	if err := mod.AddReplace(ours, "", kubernetes, ""); err != nil {
		return nil, err
	}
	if err := replaceAbsolutely(mod, kubernetes); err != nil {
		return nil, err
	}
	return mod.Format()
}

// replaceAbsolutely makes the folders of the replacements of a module independent of where its go.mod is.
func replaceAbsolutely(mod *modfile.File, dir string) error {
	for _, r := range slices.Clone(mod.Replace) {
		if r.New.Version != "" || filepath.IsAbs(r.New.Path) {
			continue
		}
		if err := mod.AddReplace(r.Old.Path, r.Old.Version, filepath.Join(dir, r.New.Path), ""); err != nil {
			return err
		}
	}
	return nil
}

func parseModule(file string) (*modfile.File, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(file, text, nil)
}

// copyTests copies the folders of tests, lets them import each other from here, and applies the patches.
func (w workspace) copyTests(ctx context.Context) error {
	for module, folders := range copied {
		source, err := w.goCommand(ctx, "list", "-mod=mod", "-m", "-f", "{{.Dir}}", module)
		if err != nil {
			return err
		}
		for _, folder := range folders {
			if err := w.copyFolder(filepath.Join(source, folder), filepath.Join(w.dir, path.Base(module), folder)); err != nil {
				return err
			}
		}
		for _, program := range executables[module] {
			if err := os.Chmod(filepath.Join(w.dir, path.Base(module), program), 0o777); err != nil {
				return err
			}
		}
	}
	for _, p := range patches {
		file := filepath.Join(w.dir, path.Base(p.module), p.file)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		patched, err := p.apply(string(text))
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(patched), 0o666); err != nil {
			return err
		}
	}
	return nil
}

func (w workspace) copyFolder(from, to string) error {
	return filepath.WalkDir(from, func(file string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, below), 0o777)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.HasSuffix(file, ".go") {
			text = []byte(importCopies.Replace(string(text)))
		}
		return os.WriteFile(filepath.Join(to, below), text, 0o666)
	})
}

// importCopies replaces the imports of copied packages.
var importCopies = func() *strings.Replacer {
	var all []string
	for module, folders := range copied {
		for _, folder := range folders {
			for _, end := range []string{`"`, `/`} {
				all = append(all, `"`+path.Join(module, folder)+end, `"`+path.Join(workspaceModule, path.Base(module), folder)+end)
			}
		}
	}
	return strings.NewReplacer(all...)
}()

// compile builds the tests of a package, and returns the package's folder, which they run in.
func (w workspace) compile(ctx context.Context, t target, binary string) (dir string, err error) {
	root := t.module
	if _, ok := copied[t.module]; ok {
		root = path.Join(workspaceModule, path.Base(t.module))
	}
	tests := path.Join(root, t.folder)
	if _, err := w.goCommand(ctx, "test", "-mod=mod", "-c", "-ldflags=-s -w", "-o", binary, tests); err != nil {
		return "", err
	}
	return w.goCommand(ctx, "list", "-mod=mod", "-f", "{{.Dir}}", tests)
}

func (w workspace) goCommand(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Env = w.dir, append(os.Environ(), "GOWORK=off")
	var errors strings.Builder
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, errors.String())
	}
	return strings.TrimSpace(string(out)), nil
}
