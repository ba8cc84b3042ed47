package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// TestMain is the command itself, if the environment says so: its tests run it as a process.
func TestMain(m *testing.M) {
	if os.Getenv("RELEASE_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const (
	testVersion = "v0.1.0-rc.1"
	committed   = 1700000000
)

var platforms = []string{"linux-amd64", "darwin-arm64", "windows-amd64"}

// newRepository returns a repository with the charts of this one, and with programs that are this test.
func newRepository(t *testing.T) string {
	t.Helper()
	dir, root := t.TempDir(), filepath.Join("..", "..")
	for name, text := range map[string]string{
		"LICENSE": "none\n", ".gitignore": "/bin/\n",
		"bin/man/keepwatch.1": ".TH\n", "bin/man/keepwatch-sync.1": ".TH\n", "bin/completion/_keepwatch": "#compdef\n",
		"CHANGELOG.md": "# Changelog\n\n## v0.1.0, not released yet\n\n- News.\n\n## v0.0.1, 2026-01-01\n\n- Olds.\n",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	charts := filepath.Join("deploy", "helm")
	if err := errors.Join(err, os.CopyFS(filepath.Join(dir, charts), os.DirFS(filepath.Join(root, charts)))); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"linux-amd64/keepwatch-apiserver", "linux-amd64/kube-log-runner"} {
		addProgram(t, dir, self, program)
	}
	for _, platform := range platforms {
		addProgram(t, dir, self, platform+"/keepwatch")
	}
	for _, image := range []string{"keepwatch-image.tar", "keepwatch-apiserver-image.tar"} {
		if err := os.WriteFile(filepath.Join(dir, "bin", image), []byte(image), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "--quiet")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "--message", "all")
	return dir
}

func addProgram(t *testing.T, dir, self, name string) {
	t.Helper()
	file := filepath.Join(dir, "bin", name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.Symlink(self, file)); err != nil {
		t.Fatal(err)
	}
}

// git runs git without the machine's configuration, so that each repository has the same commit.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	for _, role := range []string{"AUTHOR", "COMMITTER"} {
		cmd.Env = append(cmd.Env, "GIT_"+role+"_NAME=tester", "GIT_"+role+"_EMAIL=tester@example.com",
			fmt.Sprintf("GIT_%s_DATE=%d +0300", role, committed))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out))
}

// command returns the command in a repository, as a shell under another umask starts it.
func command(t *testing.T, repo, umask string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"-c", "umask " + umask + ` && exec "$0" "$@"`, self, "-repo", repo}, args...)
	cmd := exec.Command("sh", all...)
	cmd.Env = append(os.Environ(), "RELEASE_COMMAND=1", "SOURCE_DATE_EPOCH=", "SIGN_PASSWORD=")
	return cmd
}

func complete(out string, args ...string) []string {
	all := []string{"-version", testVersion, "-o", out, "-platforms", strings.Join(platforms, " "), "-arch", "amd64"}
	return append(all, args...)
}

// makeRelease runs the command, which must succeed, and returns its files and what it printed.
func makeRelease(t *testing.T, cmd *exec.Cmd, out string) (map[string][]byte, string) {
	t.Helper()
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	files, entries := map[string][]byte{}, os.DirFS(out)
	if err := fs.WalkDir(entries, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(entries, name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files, string(printed)
}

// Two clones give the same bytes, signatures included, whatever the time zone, the umask, the locale and the times and
// modes of files are. Without a key the other files are the same.
func TestReproducible(t *testing.T) {
	key := newKey(t)
	first, second := newRepository(t), newRepository(t)
	out := filepath.Join(t.TempDir(), "a")
	a, printed := makeRelease(t, command(t, first, "022", complete(out, "-sign-key", key)...), out)
	if _, last, _ := strings.Cut(printed, "\n"); !strings.HasPrefix(last, "signed by the key RW") {
		t.Errorf("printed %q", printed)
	}

	if err := filepath.WalkDir(second, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Type() == fs.ModeSymlink || strings.Contains(name, ".git/") {
			return err
		}
		return errors.Join(os.Chmod(name, 0o664), os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)))
	}); err != nil {
		t.Fatal(err)
	}
	elsewhere := command(t, second, "077", complete(filepath.Join(second, "bin", "release"), "-sign-key", key)...)
	elsewhere.Env = append(elsewhere.Env, "TZ=Pacific/Kiritimati", "LC_ALL=tr_TR.UTF-8", "LANG=tr_TR.UTF-8")
	b, _ := makeRelease(t, elsewhere, filepath.Join(second, "bin", "release"))
	compare(t, a, b)

	c, printed := makeRelease(t, command(t, first, "022", complete(out)...), out) // replaces
	if !strings.HasSuffix(printed, "Nothing is signed: SIGN_KEY names no key.\n") {
		t.Errorf("without a key: printed %q", printed)
	}
	for _, signature := range []string{"SHA256SUMS.minisig", "provenance.intoto.jsonl", "keepwatch.pub", "keepwatch.pem"} {
		if len(a[signature]) == 0 {
			t.Errorf("there is no %s", signature)
		}
		delete(a, signature)
	}
	compare(t, a, c)

	later := command(t, first, "022", complete(out)...)
	later.Env = append(later.Env, "SOURCE_DATE_EPOCH=1800000000")
	d, _ := makeRelease(t, later, out)
	if archive := "keepwatch-linux-amd64.tar.gz"; bytes.Equal(d[archive], a[archive]) {
		t.Error("SOURCE_DATE_EPOCH has no effect")
	}
}

func compare(t *testing.T, a, b map[string][]byte) {
	t.Helper()
	if names, others := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)); !slices.Equal(names, others) {
		t.Errorf("%q and %q", names, others)
	}
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// A release has all files, and sha256sum accepts them.
func TestFiles(t *testing.T) {
	out := filepath.Join(t.TempDir(), testVersion)
	args := complete(out, "-registry", "registry.example.com/k")
	files, _ := makeRelease(t, command(t, newRepository(t), "022", args...), out)
	want := []string{
		"SHA256SUMS", "keepwatch-apiserver-image.tar", "keepwatch-apiserver-linux-amd64.cdx.json",
		"keepwatch-darwin-arm64.cdx.json", "keepwatch-darwin-arm64.tar.gz", "keepwatch-image.tar",
		"keepwatch-linux-amd64.cdx.json", "keepwatch-linux-amd64.tar.gz", "keepwatch-proxy-0.1.0-rc.1.tgz",
		"keepwatch-sync-0.1.0-rc.1.tgz", "keepwatch-windows-amd64.cdx.json", "keepwatch-windows-amd64.zip", "keepwatch.rb",
		"keepwatch.yaml", "kube-log-runner-linux-amd64.cdx.json", "provenance.json", "release-notes.md",
	}
	if names := slices.Sorted(maps.Keys(files)); !slices.Equal(names, want) {
		t.Errorf("the release has %q", names)
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = out
	if text, err := sums.CombinedOutput(); err != nil || bytes.Count(text, []byte("\n")) != len(want)-1 {
		t.Errorf("sha256sum: %v: %s", err, text)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	unix := untar(t, files["keepwatch-darwin-arm64.tar.gz"])
	inside := []string{
		"LICENSE", "completion/_keepwatch", "keepwatch", "man/man1/keepwatch-sync.1", "man/man1/keepwatch.1",
	}
	if names := slices.Sorted(maps.Keys(unix)); !slices.Equal(names, inside) {
		t.Errorf("the archive for macOS has %q", names)
	}
	if p := unix["keepwatch"]; p.mode != 0o755 || unix["LICENSE"].mode != 0o644 || !bytes.Equal(p.text, program) {
		t.Errorf("modes %o and %o, a program of %d bytes", p.mode, unix["LICENSE"].mode, len(p.text))
	}
	zipped := files["keepwatch-windows-amd64.zip"]
	windows, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil {
		t.Fatal(err)
	}
	f := windows.File[0]
	if f.Name != "keepwatch.exe" || f.Modified.Unix() != committed || f.UncompressedSize64 != uint64(len(program)) {
		t.Errorf("the archive for Windows has %s, %v, %d bytes", f.Name, f.Modified, f.UncompressedSize64)
	}

	chart := untar(t, files["keepwatch-sync-0.1.0-rc.1.tgz"])
	var about struct {
		Version, AppVersion string
		Annotations         map[string]string
	}
	if err := yaml.Unmarshal(chart["keepwatch-sync/Chart.yaml"].text, &about); err != nil {
		t.Fatal(err)
	}
	const image = "registry.example.com/k/keepwatch"
	if about.Version != "0.1.0-rc.1" || about.AppVersion != testVersion ||
		about.Annotations["artifacthub.io/prerelease"] != "true" ||
		!strings.Contains(about.Annotations["artifacthub.io/images"], "image: "+image+":"+testVersion+"\n") {
		t.Errorf("the chart says %+v", about)
	}
	values := chart["keepwatch-sync/values.yaml"].text
	if !bytes.HasPrefix(values, []byte("image:\n  repository: "+image+"\n")) {
		t.Errorf("the chart's values are %s", values)
	}
	if notes := string(files["release-notes.md"]); notes != "A candidate of v0.1.0, for tests.\n\n- News.\n" {
		t.Errorf("the notes are %s", notes)
	}
}

// untar returns the files of an archive, all of which have the commit's time.
func untar(t *testing.T, archive []byte) map[string]file {
	t.Helper()
	text, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if text.Name != "" || !text.ModTime.IsZero() {
		t.Errorf("the header of gzip has %q, %v", text.Name, text.ModTime)
	}
	files := map[string]file{}
	for all := tar.NewReader(text); ; {
		header, err := all.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != committed || header.Uid != 0 || header.Gid != 0 || header.Uname != "" {
			t.Errorf("%s: %v, %d:%d %q", header.Name, header.ModTime, header.Uid, header.Gid, header.Uname)
		}
		text, err := io.ReadAll(all)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = file{header.Name, header.Mode, text}
	}
}

// The manifest of krew and the formula are as the golden files say, and Ruby can parse the latter.
func TestPackageManagers(t *testing.T) {
	out := filepath.Join(t.TempDir(), testVersion)
	files, _ := makeRelease(t, command(t, newRepository(t), "022", complete(out)...), out)
	for _, name := range []string{"keepwatch.yaml", "keepwatch.rb"} {
		golden := filepath.Join("testdata", name)
		got := regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAll(files[name], []byte("SHA256"))
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is %s (%v), want %s", name, got, err, want)
		}
		for _, platform := range []string{"darwin-arm64", "linux-amd64"} {
			archive := archiveName(platform)
			line := regexp.MustCompile(`(?m)^([0-9a-f]{64})  ` + regexp.QuoteMeta(archive) + "$")
			sum := line.FindSubmatch(files["SHA256SUMS"])
			if sum == nil || !bytes.Contains(files[name], sum[1]) {
				t.Errorf("%s does not have the sum of %s", name, archive)
			}
		}
	}
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("no ruby (make debian): Homebrew's formula is NOT parsed")
	}
	text, err := exec.Command("ruby", "-c", "-w", filepath.Join(out, "keepwatch.rb")).CombinedOutput()
	if err != nil || string(text) != "Syntax OK\n" {
		t.Errorf("ruby: %v: %s", err, text)
	}
}

// What cannot become a release ends with a sentence, and leaves an earlier release and no other folder.
func TestRefusals(t *testing.T) {
	repo := newRepository(t)
	change := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, repo string) {
			if err := os.WriteFile(filepath.Join(repo, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, repo string) {
			change(name, text)(t, repo)
			git(t, repo, "add", name)
			git(t, repo, "commit", "--quiet", "--message", name)
		}
	}
	tagged := func(t *testing.T, repo string) {
		git(t, repo, "tag", testVersion)
		commit("new.txt", "")(t, repo)
	}
	for name, test := range map[string]struct {
		args    []string // after complete's; the last one counts
		prepare func(t *testing.T, repo string)
		want    string
	}{
		"no version": {[]string{"-version", ""}, nil,
			`"" is no version of a release: give VERSION=vX.Y.Z or VERSION=vX.Y.Z-rc.N`},
		"no v":         {[]string{"-version", "0.1.0"}, nil, "is no version"},
		"other suffix": {[]string{"-version", "v0.1.0-beta.1"}, nil, "is no version"},
		"zeros":        {[]string{"-version", "v0.01.0"}, nil, "is no version"},
		"described":    {[]string{"-version", "v0.1.0-3-gabcdef0"}, nil, "is no version"},
		"untracked": {nil, change("new.txt", ""), "the working tree has changes, so no commit describes the release: " +
			"commit or remove them first (?? new.txt)"},
		"changed":   {nil, change("LICENSE", "mine"), "the working tree has changes"},
		"other tag": {nil, tagged, "the tag v0.1.0-rc.1 is commit "},
		"no section": {[]string{"-version", "v9.2.0-rc.1"}, nil,
			`CHANGELOG.md has no section "## v9.2.0, …": write one first`},
		"no day": {[]string{"-version", "v9.1.0"}, commit("CHANGELOG.md", "## v9.1.0, not released yet\n"),
			`says "not released yet" of v9.1.0: write the day of the release, as "## v9.1.0, 2006-01-02"`},
		"no key":       {[]string{"-sign-key", "missing.key"}, nil, "SIGN_KEY: open missing.key: no such file or directory"},
		"another file": {[]string{"-sign-key", "main.go"}, nil, "SIGN_KEY: main.go is no secret key of minisign"},
		"encrypted": {[]string{"-sign-key", "testdata/encrypted.key"}, nil,
			"SIGN_KEY: testdata/encrypted.key is encrypted: set SIGN_PASSWORD"},
		"no program": {[]string{"-platforms", "plan9-386"}, nil,
			"plan9-386/keepwatch: no such file or directory: make release builds it"},
		"no image": {[]string{"-arch", "s390x"}, nil, "linux-s390x/keepwatch-apiserver: no such file"},
		"no annotations": {nil, commit("deploy/helm/keepwatch-sync/Chart.yaml", "name: keepwatch-sync\n"),
			"there are no annotations"},
		"other image": {nil, commit("deploy/helm/keepwatch-sync/values.yaml", "image: {}\n"),
			"values.yaml does not have the line"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := repo
			if test.prepare != nil {
				repo = newRepository(t)
				test.prepare(t, repo)
			}
			parent := t.TempDir()
			out := filepath.Join(parent, "release")
			if err := errors.Join(os.Mkdir(out, 0o755), os.WriteFile(filepath.Join(out, "earlier"), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			printed, err := command(t, repo, "022", complete(out, test.args...)...).CombinedOutput()
			_, failed := errors.AsType[*exec.ExitError](err)
			if text := string(printed); !failed || !strings.HasPrefix(text, "release: ") || !strings.Contains(text, test.want) {
				t.Errorf("%v: %q, want %q", err, printed, test.want)
			}
			left, _ := fs.Glob(os.DirFS(parent), "*/*")
			hidden, _ := fs.Glob(os.DirFS(parent), ".*")
			if !slices.Equal(left, []string{"release/earlier"}) || len(hidden) > 0 {
				t.Errorf("left %q and %q", left, hidden)
			}
		})
	}
}

// The notes of a release are its section alone.
func TestNotes(t *testing.T) {
	dir := t.TempDir()
	const changelog = "# Changelog\n\n## v0.2.0, not released yet\n\nSoon.\n\n" +
		"## v0.1.10, 2026-01-03\n\nten\n\n### More\n\n## v0.1.1, 2026-01-02\n\n- one [b](docs/b.md#c), [d](https://e/f)\n"
	if err := os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte(changelog), 0o600); err != nil {
		t.Fatal(err)
	}
	for v, want := range map[version]string{
		"v0.1.1":      "- one [b](https://github.com/keepwatch/keepwatch/blob/v0.1.1/docs/b.md#c), [d](https://e/f)\n",
		"v0.1.10":     "ten\n\n### More\n",
		"v0.2.0-rc.2": "A candidate of v0.2.0, for tests.\n\nSoon.\n",
		"v0.2.0":      "", "v0.1.0": "", "v0.1.2": "",
	} {
		if got, err := readNotes(dir, v); string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", v, got, err)
		}
	}
}
