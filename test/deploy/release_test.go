package deploy

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

const released = "v1.2.3-rc.1"

// newRelease makes a release of the charts, and of a program that prints its arguments, from a repository of its own.
func newRelease(t *testing.T) string {
	t.Helper()
	repo, platform := t.TempDir(), runtime.GOOS+"-"+runtime.GOARCH
	for name, text := range map[string]string{
		".gitignore":                    "/bin/\n",
		"LICENSE":                       "none\n",
		"bin/man/keepwatch.1":           "none\n",
		"bin/completion/_keepwatch":     "none\n",
		"bin/completion/keepwatch.bash": "none\n",
		"bin/completion/keepwatch.fish": "none\n",
		"CHANGELOG.md":                  "## v1.2.3, not released yet\n\nNothing.\n",
		"bin/src/go.mod":                "module example.com/program\n",
		"bin/src/main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { fmt.Println(os.Args[1:], \"" +
			released + "\") }\n",
	} {
		file := filepath.Join(repo, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	charts := filepath.Join("deploy", "helm")
	if err := os.CopyFS(filepath.Join(repo, charts), os.DirFS(filepath.Join("..", "..", charts))); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(repo, "bin", platform, "keepwatch")
	command(t, filepath.Join(repo, "bin", "src"), "go", "build", "-o", program, ".")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-q", "-m", "all"}} {
		command(t, repo, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	}
	out := filepath.Join(repo, "bin", "release")
	command(t, filepath.Join("..", "..", "image"), "go", "run", "./release", "-repo", repo, "-version", released,
		"-platforms", platform, "-registry", "registry.example.com", "-o", out)
	return out
}

// command runs a program in a folder, and returns what it printed.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// Helm loads, accepts and renders the charts of a release. Their image is the release's.
func TestReleasedCharts(t *testing.T) {
	out := newRelease(t)
	for name := range settings {
		archive := filepath.Join(out, name+"-1.2.3-rc.1.tgz")
		chart, err := loader.LoadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		m := chart.Metadata
		if m.Version != "1.2.3-rc.1" || m.AppVersion != released || m.Annotations["artifacthub.io/license"] != "Apache-2.0" {
			t.Errorf("%s says %+v", name, m)
		}
		files, err := renderChart(chart, name, installed, values{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(files)), func(text string) bool {
			return strings.Contains(text, `image: "registry.example.com/keepwatch:`+released+`"`)
		}) {
			t.Errorf("%s does not run the release's image: %q", name, files)
		}
		dir := t.TempDir()
		command(t, dir, "tar", "-xzf", archive)
		for _, m := range lint.RunAll(filepath.Join(dir, name), values{}, installed).Messages {
			if m.Severity >= support.WarningSev || !strings.Contains(m.Err.Error(), "icon") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// krew installs the archive by the manifest, under the name by which kubectl finds the plugin.
func TestKrewInstalls(t *testing.T) {
	out, root := newRelease(t), t.TempDir()
	archive := filepath.Join(out, "keepwatch-"+runtime.GOOS+"-"+runtime.GOARCH+".tar.gz")
	krew := exec.CommandContext(t.Context(), "go", "run", "sigs.k8s.io/krew/cmd/krew@v0.4.3", "install",
		"--manifest", filepath.Join(out, "keepwatch.yaml"), "--archive", archive)
	krew.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_NO_UPGRADE_CHECK=1")
	if text, err := krew.CombinedOutput(); err != nil {
		t.Fatalf("krew: %v: %s", err, text)
	}
	if text := command(t, root, filepath.Join(root, "bin", "kubectl-keepwatch"), "version"); text != "[version] "+released+
		"\n" {
		t.Errorf("the plugin printed %q", text)
	}
}

// The formula installs the archive of this system: the program, the man pages, and what shells complete. Its own test
// passes.
func TestFormulaInstalls(t *testing.T) {
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("no ruby (make debian): Homebrew's formula is NOT installed")
	}
	out, prefix := newRelease(t), t.TempDir()
	brew, err := filepath.Abs(filepath.Join("testdata", "brew.rb"))
	if err != nil {
		t.Fatal(err)
	}
	formula := filepath.Join(out, "keepwatch.rb")
	command(t, out, "ruby", "-w", brew, formula, out, prefix)
	for _, name := range []string{
		"bin/keepwatch", "share/man/man1/keepwatch.1", "etc/bash_completion.d/keepwatch",
		"share/zsh/site-functions/_keepwatch",
		"share/fish/vendor_completions.d/keepwatch.fish",
	} {
		if _, err := os.Stat(filepath.Join(prefix, name)); err != nil {
			t.Error(err)
		}
	}

	// Another archive than the one of the formula is refused.
	archive := filepath.Join(out, "keepwatch-"+runtime.GOOS+"-"+runtime.GOARCH+".tar.gz")
	text, err := os.ReadFile(archive)
	if err := errors.Join(err, os.WriteFile(archive, append(text, 0), 0o644)); err != nil {
		t.Fatal(err)
	}
	refused, err := exec.CommandContext(t.Context(), "ruby", brew, formula, out, t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "has the checksum") {
		t.Errorf("of a changed archive: %v: %s", err, refused)
	}
}
