package main

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/version"
)

// keepwatch version prints the stamps of a release, and the same as JSON and YAML; --version its first line.
func TestVersion(t *testing.T) {
	version.Version, version.Commit = "v0.1.0-rc.1", "0123456789abcdef0123456789abcdef01234567"
	t.Cleanup(func() { version.Version, version.Commit = "", "" })
	const first = `^keepwatch v0\.1\.0-rc\.1 \(go\S+, \w+/\w+\)\n`
	all := regexp.MustCompile(first + `commit ` + version.Commit + `, clean\nKubernetes libraries v0\.\d+\.\d+\n$`)
	if code, stdout, _ := execute(t, "version"); code != 0 || !all.MatchString(stdout) {
		t.Errorf("exit %d, %q", code, stdout)
	}
	if code, stdout, _ := execute(t, "--version"); code != 0 || !regexp.MustCompile(first+`$`).MatchString(stdout) {
		t.Errorf("--version: exit %d, %q", code, stdout)
	}
	for format, unmarshal := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) },
	} {
		var got version.Build
		code, stdout, _ := execute(t, "version", "-o", format)
		err := unmarshal([]byte(stdout), &got)
		if code != 0 || err != nil || got != version.Current() || got.Kubernetes == "" {
			t.Errorf("-o %s: exit %d, %v, %q", format, code, err, stdout)
		}
	}
	code, stdout, stderr := execute(t, "version", "-o", "wide")
	if code != exit.CodeUsage || stdout != "" || !strings.Contains(stderr, `--output is json or yaml, and not "wide"`) {
		t.Errorf("-o wide: exit %d, %q, %q", code, stdout, stderr)
	}
}

// A program without stamps says what the build information does.
func TestVersionWithoutStamps(t *testing.T) {
	form := regexp.MustCompile(`^keepwatch \S+ \(go\S+, \w+/\w+\)\n(commit [0-9a-f]{40}, (clean|dirty)\n)?Kubernetes`)
	if code, stdout, _ := execute(t, "version"); code != 0 || !form.MatchString(stdout) {
		t.Errorf("exit %d, %q", code, stdout)
	}
}

// As kubectl-keepwatch, as krew installs it, the program is keepwatch, and its help is for kubectl's users.
func TestPlugin(t *testing.T) {
	code, stdout, _ := executeAs(t, "kubectl-keepwatch", "watch", "--help")
	if code != 0 || !strings.Contains(stdout, "  kubectl keepwatch watch ") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	commands := regexp.MustCompile(`(.{0,10})\bkeepwatch (?:watch|sync|history|proxy|top|assets|serve|judge|conform|faults|audit)\b`)
	for _, of := range newRootCommand(messages.New(io.Discard)).Commands() {
		_, help, _ := executeAs(t, "kubectl-keepwatch", of.Name(), "--help")
		for _, found := range commands.FindAllStringSubmatch(help, -1) {
			if !strings.HasSuffix(found[1], "kubectl ") && !strings.HasSuffix(found[1], " a ") {
				t.Errorf("the help of %s has %q", of.Name(), found[0])
			}
		}
	}
	code, _, stderr := executeAs(t, "kubectl-keepwatch", "nonsense")
	if code != exit.CodeUsage || !strings.HasPrefix(stderr, "kubectl keepwatch: ") ||
		!strings.HasSuffix(stderr, "See 'kubectl keepwatch --help'.\n") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// The help of a command that does not exist is wrong usage, and not the help of another one.
func TestUnknownTopics(t *testing.T) {
	for args, want := range map[string]int{
		"help": 0, "help watch": 0, "help sync status": 0, "help watch pods": 0, "completion": 0,
		"help nonsense": exit.CodeUsage, "help history nonsense": exit.CodeUsage, "completion nonsense": exit.CodeUsage,
	} {
		code, stdout, stderr := execute(t, strings.Fields(args)...)
		if code != want || (stdout == "") != (want != 0) || want != 0 && !strings.Contains(stderr, "nonsense") {
			t.Errorf("%s: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// fullDisk is an output that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A help that cannot be written is an error.
func TestHelpOnAFullDisk(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"watch", "--help"}, {"help", "watch"}, {}} {
		var stderr strings.Builder
		if code := run(t.Context(), append([]string{}, args...), fullDisk{}, &stderr); code != exit.CodeError ||
			!strings.Contains(stderr.String(), "write the output: no space left on device") {
			t.Errorf("%q: exit %d, %q", args, code, stderr.String())
		}
	}
}
