package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// run runs a part and returns its result. An interrupted part has no result, but an error.
func run(ctx context.Context, root string, p part, id identity, seed string) (result, error) {
	log, err := createLog(filepath.Join(root, "bin", "verify"), p)
	if err != nil {
		return result{}, err
	}
	defer log.Close()
	start := time.Now()
	err = process(ctx, root, p, seed, io.MultiWriter(os.Stdout, log)).Run()
	if ctx.Err() != nil {
		return result{}, context.Cause(ctx)
	}
	r := result{
		Part: p.id(), Date: start.UTC().Truncate(time.Second), Commit: id.commit, Sources: id.sources, Seed: seed,
		Command: p.command, Machine: machine(), Seconds: int(time.Since(start).Seconds()), Passed: err == nil,
	}
	if _, err := log.Seek(0, io.SeekStart); err != nil {
		return result{}, err
	}
	r.Skipped, err = skipped(log)
	return r, err
}

func createLog(dir string, p part) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(dir, p.id()+".log"))
}

// process returns the command of a part in a process group of its own, which an interrupt ends as a whole.
func process(ctx context.Context, root string, p part, seed string, out io.Writer) *exec.Cmd {
	command := exec.CommandContext(ctx, "sh", "-ec", p.command)
	command.Dir, command.Stdout, command.Stderr = root, out, out
	command.Env = append(os.Environ(), "SEED="+seed)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = time.Minute
	return command
}

// skipLine matches a test that go test -v or gotestsum reports as skipped.
var skipLine = regexp.MustCompile(`^\s*(?:=== SKIP: \S+ (\S+)|--- SKIP: (\S+)) \(`)

// skipped returns the skipped tests in a log, each with the line of its reason.
func skipped(log io.Reader) ([]string, error) {
	var tests []string
	test := ""
	for lines := bufio.NewScanner(log); ; {
		if !lines.Scan() {
			slices.Sort(tests)
			return slices.Compact(tests), lines.Err()
		}
		if found := skipLine.FindStringSubmatch(lines.Text()); found != nil {
			test = found[1] + found[2]
		} else if test != "" {
			tests = append(tests, test+": "+strings.TrimSpace(lines.Text()))
			test = ""
		}
	}
}

func machine() string {
	memory := "unknown memory"
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb int
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kb); err == nil {
			memory = fmt.Sprintf("%d GiB", (kb+1<<19)>>20)
		}
	}
	return fmt.Sprintf("%s/%s, %d cores, %s, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), memory,
		runtime.Version())
}
