package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/follow"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// TestMain runs keepwatch in the test binary, for tests that need a process.
func TestMain(m *testing.M) {
	switch os.Getenv("KEEPWATCH_TEST_AS") {
	case "main":
		prepareProcess()
		main()
		os.Exit(0) // kubectl returns
	case "shell":
		if err := runCommands(os.Stdin, os.NewFile(3, "answers")); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	code := m.Run()
	if quiet.end != nil {
		quiet.end()
	}
	os.Exit(code)
}

// prepareProcess does in a process what variables of its test ask for.
func prepareProcess() {
	if os.Getenv("KEEPWATCH_TEST_UMASK") != "" {
		syscall.Umask(0)
	}
	if dir := os.Getenv("KEEPWATCH_TEST_DIR"); dir != "" {
		if err := os.Chdir(dir); err != nil {
			panic(err)
		}
	}
	if os.Getenv("KEEPWATCH_TEST_HURRIED") != "" { // the types are requested often, and leave soon
		follow.RequestEvery, follow.LeaveAfter = 20*time.Millisecond, 100*time.Millisecond
	}
}

// besideOthers is a test that runs beside others. Its commands do not run in the process of the tests, since those that
// do so at a time would share the log of the Kubernetes libraries, and the environment.
type besideOthers struct {
	mu        sync.Mutex
	variables []string // of the environment of its commands
	shell     *process // runs its commands one by one; nil before the first one
	commands  *json.Encoder
	answers   *json.Decoder
}

var parallelTests sync.Map // name → *besideOthers

// parallel lets a test run beside others.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	b := &besideOthers{}
	parallelTests.Store(t.Name(), b)
	t.Cleanup(func() {
		parallelTests.Delete(t.Name())
		if b.shell != nil {
			b.shell.end()
		}
	})
}

// parallelTest returns the test of parallel that a test is, or is a part of, or nil.
func parallelTest(t testing.TB) *besideOthers {
	name, _, _ := strings.Cut(t.Name(), "/")
	found, _ := parallelTests.Load(name)
	b, _ := found.(*besideOthers)
	return b
}

// setenv sets variables of the environment of the commands of a test that runs beside others.
func setenv(t *testing.T, variables ...string) {
	t.Helper()
	b := parallelTest(t)
	if b == nil {
		t.Fatal("the test does not run beside others")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.variables = slices.Concat(b.variables, variables)
}

// environment is that of the processes of a test, in which this test binary is keepwatch.
func environment(t testing.TB) []string {
	variables := append(os.Environ(), "KEEPWATCH_TEST_AS=main")
	if b := parallelTest(t); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		variables = append(variables, b.variables...)
	}
	return variables
}

// execute runs a subcommand until it ends.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	if b := parallelTest(t); b != nil {
		return b.execute(t, args)
	}
	var out, err bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	defer cancel()
	code = run(ctx, append([]string{}, args...), &out, &err) // for cobra, nil would be the test's own arguments
	return code, out.String(), err.String()
}

// command is what a shell runs, and outcome its answer.
type (
	command struct{ Variables, Args []string }
	outcome struct {
		Code           int
		Stdout, Stderr []byte
	}
)

// execute runs a subcommand in the shell of the test.
func (b *besideOthers) execute(t *testing.T, args []string) (code int, stdout, stderr string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shell == nil {
		b.start(t)
	}
	if err := b.commands.Encode(command{b.variables, args}); err != nil {
		t.Fatalf("%v: %s", err, b.shell.stderr)
	}
	var o outcome
	if err := b.answers.Decode(&o); err != nil {
		t.Fatalf("%v: %v: %s", args, err, b.shell.stderr)
	}
	return o.Code, string(o.Stdout), string(o.Stderr)
}

// start starts the shell.
func (b *besideOthers) start(t *testing.T) {
	t.Helper()
	p := &process{Cmd: exec.Command(self(t)), stderr: &output{}, ended: make(chan struct{})}
	p.Env, p.Stdout, p.Stderr = append(os.Environ(), "KEEPWATCH_TEST_AS=shell"), p.stderr, p.stderr
	commands, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.ExtraFiles = []*os.File{theirs}
	p.startForAll(t)
	theirs.Close()
	b.shell, b.commands, b.answers = p, json.NewEncoder(commands), json.NewDecoder(answers)
}

// runCommands runs one command after the other until there are no more.
func runCommands(commands io.Reader, answers io.Writer) error {
	in, out := json.NewDecoder(commands), json.NewEncoder(answers)
	for {
		var c command
		if err := in.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for _, variable := range c.Variables {
			name, value, _ := strings.Cut(variable, "=")
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
		prepareProcess()
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), await.Deadline)
		code := run(ctx, append([]string{}, c.Args...), &stdout, &stderr)
		cancel()
		if err := out.Encode(outcome{code, stdout.Bytes(), stderr.Bytes()}); err != nil {
			return err
		}
	}
}

// process is a process of keepwatch.
type process struct {
	*exec.Cmd
	stderr *output
	ended  chan struct{} // closed when the process has ended
	err    error         // the result of Wait, after that
}

// output collects the output of a process.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

func startProcess(t testing.TB, args ...string) *process {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith starts the process by another command, whose last arguments are the command line.
func startWith(t testing.TB, starter []string, args ...string) *process {
	t.Helper()
	return startLine(t, slices.Concat(starter, []string{self(t)}, args))
}

// startLine starts the process of a command line, in which this test binary is keepwatch.
func startLine(t testing.TB, line []string) *process {
	t.Helper()
	p := newProcess(t, line)
	p.start(t)
	return p
}

// self is this test binary, which is keepwatch in processes of newProcess.
func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newProcess returns the process of a command line before it starts. Its stdout is discarded.
func newProcess(t testing.TB, line []string) *process {
	p := &process{Cmd: exec.Command(line[0], line[1:]...), stderr: &output{}, ended: make(chan struct{})}
	p.Env = environment(t)
	p.Stdout, p.Stderr = io.Discard, p.stderr
	return p
}

// start starts the process, which ends with the test at the latest.
func (p *process) start(t testing.TB) {
	t.Helper()
	p.startForAll(t)
	t.Cleanup(p.end)
}

// startForAll starts the process, which others end.
func (p *process) startForAll(t testing.TB) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.Wait()
	}()
}

// end terminates the process if it runs, so that it removes its files. It may be called more than once.
func (p *process) end() {
	p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(await.Deadline):
		p.Process.Kill()
		<-p.ended
	}
}

// exit waits for the end of the process.
func (p *process) exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.ended:
		if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
			return exit.ExitCode()
		} else if p.err != nil {
			t.Fatal(p.err)
		}
		return 0
	case <-time.After(await.Deadline):
		t.Fatalf("the process doesn't end: %s", p.stderr)
		return -1
	}
}

// waitReady waits until stderr reports that the server is ready, and returns it. Errors of a start are
// not mistaken for that.
func (p *process) waitReady(t testing.TB) string {
	t.Helper()
	p.await(t, "the server is ready", func() bool {
		text := p.stderr.String()
		return strings.Contains(text, "ready in ") && strings.HasSuffix(text, "\n")
	})
	return p.stderr.String()
}

// waitStderr waits until stderr of a process contains a text.
func (p *process) waitStderr(t testing.TB, want string) {
	t.Helper()
	p.await(t, want, func() bool { return strings.Contains(p.stderr.String(), want) })
}

// await waits until is returns true. The process must not end before that.
func (p *process) await(t testing.TB, what string, is func() bool) {
	t.Helper()
	await.State(t, what, func() (reached bool, seen string) {
		select {
		case <-p.ended:
			if !is() {
				t.Fatalf("it ended (%v) before: %s: %s", p.err, what, p.stderr)
			}
			return true, ""
		default:
			return is(), fmt.Sprintf("stderr begins with %.2000q", p.stderr.String())
		}
	})
}

// terminate ends a process, which must end well.
func terminate(t *testing.T, p *process) {
	t.Helper()
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
}
