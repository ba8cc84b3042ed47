package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/messages"
)

var (
	manFolder        = flag.String("man", "", "the folder into which TestManPages writes the man pages")
	completionFolder = flag.String("completion", "", "the folder into which TestCompletions writes the scripts for shells")
)

// folderFor creates the folder of a flag, or a temporary one without the flag.
func folderFor(t *testing.T, flag string) string {
	t.Helper()
	if flag == "" {
		return t.TempDir()
	}
	if err := os.MkdirAll(flag, 0o755); err != nil {
		t.Fatal(err)
	}
	return flag
}

// Each command has a man page with all of its flags. SOURCE_DATE_EPOCH is their date, and nothing depends on the
// machine.
func TestManPages(t *testing.T) {
	folder := folderFor(t, *manFolder)
	const home = "/home/somebody"
	t.Setenv("HOME", home)
	date := time.Now()
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		date = time.Unix(seconds, 0)
	}
	date = date.UTC()
	root := newRootCommand(messages.New(io.Discard))
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	var forAnybody func(c *cobra.Command)
	forAnybody = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { f.DefValue = strings.ReplaceAll(f.DefValue, home, "$HOME") })
		for _, sub := range c.Commands() {
			forAnybody(sub)
		}
	}
	forAnybody(root)
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Keepwatch", Date: &date}, folder); err != nil {
		t.Fatal(err)
	}
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(page, []byte(home)) {
			t.Errorf("%s has the home folder of who wrote it", name)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !bytes.Contains(page, []byte(`\fB--`+f.Name+`\fP`)) {
				t.Errorf("%s is without --%s", name, f.Name)
			}
		})
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				check(sub)
			}
		}
	}
	check(root)
}

// The scripts for shells are those that keepwatch completion prints, under the names by which the shells find them.
func TestCompletions(t *testing.T) {
	folder := folderFor(t, *completionFolder)
	for name, shell := range map[string]string{
		"keepwatch.bash": "bash", "_keepwatch": "zsh", "keepwatch.fish": "fish", "keepwatch.ps1": "powershell",
	} {
		code, script, stderr := execute(t, "completion", shell)
		if code != 0 || !strings.Contains(script, "__complete") {
			t.Fatalf("%s: exit %d, %s", shell, code, stderr)
		}
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		if program, err := exec.LookPath(shell); err == nil && shell != "powershell" {
			if text, err := exec.CommandContext(t.Context(), program, "-n", file).CombinedOutput(); err != nil {
				t.Errorf("%s -n: %v: %s", shell, err, text)
			}
		}
	}
}
