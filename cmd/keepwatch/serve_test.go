package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

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

// A session: the line on stderr when the server is ready, a client with the kubeconfig, an open watch,
// and the end by a signal. Stderr has no other line.
func TestServeUntilSignal(t *testing.T) {
	parallel(t)
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
			t.Parallel()
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
	parallel(t)
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
