package examples

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

// varying matches what differs between two runs of the demo: revisions, ports, processes, waits and its folder.
var varying = regexp.MustCompile(`/tmp/keepwatch-demo-\d+|(\d+m)?\d+(\.\d+)?(ms|s\b)|\d+`)

// TestDemo runs what make demo runs, without any program but keepwatch, and compares the output. README shows lines of
// it.
func TestDemo(t *testing.T) {
	demo := filepath.Join(t.TempDir(), "demo")
	if err := build(demo, "./cmd/keepwatch/demo"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	defer cancel()
	temporary := t.TempDir()
	cmd := exec.CommandContext(ctx, demo, peer.Keepwatch(t))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + temporary}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends what it has started
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	got := masked(strings.ReplaceAll(string(out), temporary, "/tmp"))
	golden, err := os.ReadFile("testdata/demo.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(masked(string(golden)), got); diff != "" {
		t.Errorf("the demo differs from testdata/demo.txt (-want +got):\n%s\nIt printed:\n%s", diff, out)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v, %v", left, err)
	}
	for _, line := range excerpt(t) {
		if !strings.Contains(got, masked(line)) {
			t.Errorf("README shows a line that the demo does not print: %s", line)
		}
	}
}

func masked(text string) string {
	text = varying.ReplaceAllString(text, "N")
	return regexp.MustCompile(` +`).ReplaceAllString(regexp.MustCompile(` *\n`).ReplaceAllString(text, "\n"), " ")
}

// excerpt returns the lines of the demo's output that README shows.
func excerpt(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "`make demo` takes")
	shown, _, ends := strings.Cut(rest, "`make test` runs")
	if !found || !ends {
		t.Fatal("README has no excerpt of the demo")
	}
	var lines []string
	for line := range strings.Lines(shown) {
		if code, indented := strings.CutPrefix(line, "    "); indented {
			lines = append(lines, strings.TrimSpace(code))
		}
	}
	if len(lines) < 8 {
		t.Fatalf("README shows %d lines of the demo", len(lines))
	}
	return lines
}
