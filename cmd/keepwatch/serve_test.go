package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// TestMain runs keepwatch in the test binary, for tests that need a process.
func TestMain(m *testing.M) {
	if os.Getenv("KEEPWATCH_TEST_AS_MAIN") != "" {
		if os.Getenv("KEEPWATCH_TEST_UMASK") != "" {
			syscall.Umask(0)
		}
		main()
		os.Exit(0) // kubectl returns
	}
	os.Exit(m.Run())
}

// execute runs a subcommand until it ends.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
	defer cancel()
	code = run(ctx, append([]string{}, args...), &out, &err) // for cobra, nil would be the test's own arguments
	return code, out.String(), err.String()
}

// separately runs a subcommand in a process of its own until it ends: tests that run in parallel cannot share the log
// of the Kubernetes libraries.
func separately(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out output
	p := newProcess(append([]string{self(t)}, args...))
	p.Stdout = &out
	p.start(t)
	return p.exit(t), out.String(), p.stderr.String()
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"nonsense"}, {"serve", "--nonsense"}, {"serve", "argument"}, {"version", "argument"},
		{"--nonsense"}, {"serve", "--listen", "nonsense"}} {
		code, stdout, stderr := execute(t, args...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "keepwatch: ") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
	if code, stdout, _ := execute(t); code != 0 || !strings.Contains(stdout, "serve") {
		t.Errorf("without arguments: exit %d, stdout %q", code, stdout)
	}
}

// A flag that a script's unset variable leaves empty is refused where the command would do less than its user relies
// on.
func TestEmptyFlags(t *testing.T) {
	for command, flags := range map[string][]string{
		"serve": {"--authorization-mode", "--data-dir", "--etcd-servers", "--kubeconfig-out", "--token", "--history", "--authorize",
			"--audit-log"},
		"watch":  {"--state"},
		"sync":   {"--to", "--state", "--filename", "--signing-key", "--leader-elect", "--max-size"},
		"proxy":  {"--personal-groups", "--state", "--tls-cert-file", "--cache", "--audit-policy-file"},
		"judge":  {"--workload", "--expected", "--record"},
		"faults": {"--kubeconfig-out", "--record"},
	} {
		for _, flag := range flags {
			code, stdout, stderr := execute(t, command, flag, "")
			if code != 2 || stdout != "" || !strings.Contains(stderr, flag) || !strings.Contains(stderr, "it is empty") {
				t.Errorf("%s %s '': exit %d, %s", command, flag, code, stderr)
			}
		}
	}
}

func TestServeHelp(t *testing.T) {
	code, stdout, _ := execute(t, "serve", "--help")
	if code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, text := range []string{"no controllers of workloads run", "--simulate", "/keepwatch/simulation/advance?by=",
		"Not enforced: admission beyond namespaces", "--authorization-mode", "--controllers", "--data-dir", "--etcd ",
		"in memory", "--listen", "--etcd-servers", "--adopt", "--kubeconfig-out", "--token"} {
		if !strings.Contains(stdout, text) {
			t.Errorf("the help lacks %q", text)
		}
	}
}

func TestCompletion(t *testing.T) {
	if code, stdout, _ := execute(t, "completion", "bash"); code != 0 || !strings.Contains(stdout, "__start_keepwatch") {
		t.Errorf("exit %d, %d bytes", code, len(stdout))
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
	p := newProcess(line)
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
func newProcess(line []string) *process {
	p := &process{Cmd: exec.Command(line[0], line[1:]...), stderr: &output{}, ended: make(chan struct{})}
	p.Env = append(os.Environ(), "KEEPWATCH_TEST_AS_MAIN=1")
	p.Stdout, p.Stderr = io.Discard, p.stderr
	return p
}

// start starts the process, which ends with the test at the latest.
func (p *process) start(t testing.TB) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.Wait()
	}()
	t.Cleanup(p.end)
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
func (p *process) waitReady(t *testing.T) string {
	t.Helper()
	for end := time.Now().Add(await.Deadline); time.Now().Before(end); {
		if text := p.stderr.String(); strings.Contains(text, "ready in ") && strings.HasSuffix(text, "\n") {
			return text
		}
		select {
		case <-p.ended:
			t.Fatalf("the process ended (%v): %s", p.err, p.stderr)
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("the server isn't ready")
	return ""
}

// A session: the line on stderr when the server is ready, a client with the kubeconfig, an open watch,
// and the end by a signal. Stderr has no other line.
func TestServeUntilSignal(t *testing.T) {
	for _, c := range []struct {
		sig  os.Signal
		args []string
		data string
	}{
		{syscall.SIGTERM, nil, `data in memory, gone at the end \(--data-dir keeps it\)()`},
		{os.Interrupt, []string{"--etcd"}, `temporary data in (\S+)`},
		{syscall.SIGHUP, []string{"--etcd"}, `temporary data in (\S+)`},
	} {
		sig := c.sig
		t.Run(sig.String(), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			p := startProcess(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", file}, c.args...)...)
			line := p.waitReady(t)
			form := regexp.MustCompile(`^keepwatch: ready in \d+\.\ds at (https://127\.0\.0\.1:\d+), kubeconfig (\S+), ` +
				c.data + `\n$`)
			match := form.FindStringSubmatch(line)
			if match == nil || match[2] != file {
				t.Fatalf("stderr is %q", line)
			}
			config := configOf(t, file)
			if config.Host != match[1] {
				t.Errorf("the kubeconfig has %s, the line %s", config.Host, match[1])
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			watch, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Stop()
			<-watch.ResultChan()
			p.Process.Signal(sig)
			if code := p.exit(t); code != 0 {
				t.Errorf("exit %d", code)
			}
			if text := p.stderr.String(); text != line {
				t.Errorf("stderr also has: %s", strings.TrimPrefix(text, line))
			}
			if _, err := os.Stat(match[3]); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the temporary data is still there: %v", err)
			}
		})
	}
}

// kill -9 loses no acknowledged write, and the same kubeconfig works after a restart.
func TestServeAfterKill(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	args := []string{"serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", file, "--data-dir", dir}
	p := startProcess(t, args...)
	p.waitReady(t)
	second := startProcess(t, args...)
	if code := second.exit(t); code != 1 || !strings.Contains(second.stderr.String(), "is in use by another server") ||
		strings.Count(second.stderr.String(), "\n") != 1 {
		t.Errorf("a second server on the same folder: exit %d, %q", code, second.stderr)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ns := created(t, file)
	p.Process.Kill()
	<-p.ended

	p = startProcess(t, args...)
	if line := p.waitReady(t); !strings.Contains(line, ", data in "+dir+"\n") {
		t.Errorf("stderr is %q", line)
	}
	config := configOf(t, file)
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	old, err := clientcmd.RESTConfigFromKubeConfig(before)
	if err != nil {
		t.Fatal(err)
	}
	if old.BearerToken != config.BearerToken || string(old.CAData) != string(config.CAData) {
		t.Error("the token or the certificate authority changed")
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
}

// created creates a namespace with a kubeconfig.
func created(t *testing.T, kubeconfig string) string {
	t.Helper()
	config := configOf(t, kubeconfig)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}
	ns, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}
