package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
)

// record is a message of --log-format=json.
type record struct {
	Time  time.Time
	Level string
	Msg   string
	Exit  int
}

// records reads a log. Each line is a message.
func records(t *testing.T, log string) (all []record) {
	t.Helper()
	for line := range strings.Lines(log) {
		var r record
		err := json.Unmarshal([]byte(line), &r)
		if err != nil || r.Time.IsZero() || r.Msg == "" || !strings.HasSuffix(line, "\n") {
			t.Errorf("the line %q is no message: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// With --log-format=json every line on stderr is a message: those of the command, and the error that ends it.
func TestLogsAsJSON(t *testing.T) {
	parallel(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p := startProcess(t, "serve", "--log-format", "json", "--controllers=false",
		"--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	p.waitReady(t)
	config := configOf(t, file)
	second := startProcess(t, "serve", "--log-format=json",
		"--listen", strings.TrimPrefix(config.Host, "https://"), "--kubeconfig-out", file+"2")
	if code := second.exit(t); code != exit.CodeError {
		t.Errorf("a second server at the same address: exit %d", code)
	}
	last := records(t, second.stderr.String())
	if r := last[len(last)-1]; r.Level != "ERROR" || r.Exit != exit.CodeError ||
		!strings.Contains(r.Msg, "another process does") {
		t.Errorf("the last message is %+v", r)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if first := records(t, p.stderr.String())[0]; first.Level != "INFO" || !strings.HasPrefix(first.Msg, "ready in ") {
		t.Errorf("the first message is %+v", first)
	}
}

func TestLogFormats(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"version --log-format yaml",
			`keepwatch: invalid argument "yaml" for "--log-format" flag: want text or json` +
				"\nSee 'keepwatch version --help'.\n"},
		{"sync --log-format text", "keepwatch: "},
		{"sync --log-format json", "{"},
	} {
		code, stdout, stderr := execute(t, strings.Fields(test.args)...)
		if code != exit.CodeUsage || stdout != "" || !strings.HasPrefix(stderr, test.want) {
			t.Errorf("keepwatch %s: exit %d, stdout %q, stderr %q", test.args, code, stdout, stderr)
		}
	}
	_, _, stderr := execute(t, "sync", "--log-format", "json")
	if all := records(t, stderr); len(all) != 1 || all[0].Level != "ERROR" || all[0].Exit != exit.CodeUsage {
		t.Errorf("the messages are %+v", all)
	}
}

// A wrong flag does not hide a --log-format that stands behind it, and what stands behind -- is of another program.
func TestWrongFlagAsJSON(t *testing.T) {
	for args, want := range map[string]bool{
		"serve --nonsense --log-format=json": true, "serve --nonsense --log-format json": true,
		"judge --nonsense -- operator --log-format=json": false,
	} {
		code, _, stderr := execute(t, strings.Fields(args)...)
		if code != exit.CodeUsage || strings.HasPrefix(stderr, "{") != want {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
}
