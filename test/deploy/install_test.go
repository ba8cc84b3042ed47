package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// modules is the folders of the modules that are released together.
var modules = []string{"", "sinks", "server", "cmd/keepwatch"}

// moduleProxy writes a module proxy with the released modules, as the last commit has them, and returns its address.
// version is the one that they require of each other.
func moduleProxy(t *testing.T, repo string) (address, version string) {
	t.Helper()
	proxy := t.TempDir()
	for _, folder := range modules {
		text, err := os.ReadFile(filepath.Join(repo, folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		file, err := modfile.Parse("go.mod", text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if version == "" { // the library requires none of the others, so ask one that does
			version = requiredVersion(t, repo)
		}
		m := module.Version{Path: file.Module.Mod.Path, Version: version}
		base := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v", version)
		if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
			t.Fatal(err)
		}
		info, _ := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
		archive, err := os.Create(base + ".zip")
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		for _, err := range []error{
			os.WriteFile(filepath.Join(filepath.Dir(base), "list"), []byte(version+"\n"), 0o644),
			os.WriteFile(base+".info", info, 0o644),
			os.WriteFile(base+".mod", text, 0o644),
			zip.CreateFromVCS(archive, m, repo, "HEAD", folder),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return "file://" + proxy, version
}

func requiredVersion(t *testing.T, repo string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "cmd/keepwatch/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Require {
		if r.Mod.Path == "github.com/keepwatch/keepwatch" {
			return r.Mod.Version
		}
	}
	t.Fatal("cmd/keepwatch does not require the library")
	return ""
}

// TestInstallFromAProxy installs the command with go install, and gets the library into a module with older k8s.io
// libraries, from a module proxy that has what a release tags.
func TestInstallFromAProxy(t *testing.T) {
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	downloaded, others, _ := strings.Cut(strings.TrimSpace(string(cache)), "\n")
	proxy, version := moduleProxy(t, repo)
	dir := t.TempDir()
	environment := append(os.Environ(), "GOWORK=off", "GONOSUMDB=github.com/keepwatch", "GOBIN="+dir,
		"GOMODCACHE="+filepath.Join(dir, "modules"), // that of the user would keep this version
		"GOFLAGS=-trimpath -modcacherw", "GOPROXY="+proxy+",file://"+filepath.Join(downloaded, "cache", "download")+","+
			others)
	run := func(in, name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir, c.Env = in, environment
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run(dir, "go", "install", "github.com/keepwatch/keepwatch/cmd/keepwatch@"+version)
	if out := run(dir, filepath.Join(dir, "keepwatch"), "version"); !strings.Contains(out, version) {
		t.Errorf("the installed program is %q", out)
	}

	const older = "v0.35.10"
	user := filepath.Join(dir, "user")
	if err := os.Mkdir(user, 0o755); err != nil {
		t.Fatal(err)
	}
	source := "package main\n\nimport _ \"github.com/keepwatch/keepwatch/informer/clientgo\"\n\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(user, "main.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	run(user, "go", "mod", "init", "example.com/user")
	run(user, "go", "get", "k8s.io/client-go@"+older, "github.com/keepwatch/keepwatch@"+version)
	run(user, "go", "mod", "tidy")
	run(user, "go", "build", "-tags", "k8s_v0.35", ".")
	for _, of := range []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"} {
		if got := strings.TrimSpace(run(user, "go", "list", "-m", "-f", "{{.Version}}", of)); got != older {
			t.Errorf("the module has %s %s, and client-go was required at %s", of, got, older)
		}
	}
}
