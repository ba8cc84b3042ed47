package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/serving"
)

// No command follows localhost:8080 when nothing names a cluster, and each says how to name one.
func TestNoCluster(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	notKubeconfig := file("log", "keepwatch: ready\n")
	empty := file("empty", "apiVersion: v1\nkind: Config\n")
	contexts := file("contexts",
		"apiVersion: v1\nkind: Config\ncontexts:\n- name: a\n  context: {cluster: a, user: a}\n- name: b\n  context: {cluster: b, user: b}\n")
	missing := filepath.Join(dir, "missing")
	for _, command := range []string{"proxy --kubeconfig-out=", "proxy --print-rbac", "top", "watch pods",
		"sync pods --to sqlite:" + filepath.Join(dir, "x.db"),
		"audit pods --against " + empty, "conform", "faults --plan compaction"} {
		for _, tt := range []struct{ environment, flags, want string }{
			{"", "", "no cluster is configured: give --kubeconfig, set KUBECONFIG, or write ~/.kube/config"},
			{missing, "", "no cluster is configured: KUBECONFIG is " + missing},
			{"", "--kubeconfig " + missing, "--kubeconfig: the file " + missing + " does not exist"},
			{"", "--kubeconfig " + empty, "--kubeconfig: the file " + empty + " names no cluster"},
			{"", "--kubeconfig " + notKubeconfig, notKubeconfig},
			{"", "--kubeconfig " + contexts, "the kubeconfig has no current context: give --context a, or b"},
			{"", "--context b --kubeconfig " + contexts, "the context b of the kubeconfig names no server"},
		} {
			t.Run(command+" "+tt.flags, func(t *testing.T) {
				t.Setenv("HOME", dir)
				t.Setenv("KUBECONFIG", tt.environment)
				code, _, stderr := execute(t, append(strings.Fields(command), strings.Fields(tt.flags)...)...)
				if code == 0 || !strings.Contains(stderr, tt.want) {
					t.Errorf("exit %d, stderr %q, want %q", code, stderr, tt.want)
				}
			})
		}
	}
}

// An address that cannot be listened on is named with its flag, and with what to do.
func TestListenErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	used := taken.Addr().String()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, "faults", &rest.Config{Host: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		used:        "another process listens on " + used + ": give another address with --listen",
		"foo":       `--listen: give a host and a port, like 127.0.0.1:8443, not "foo"`,
		"127.0.0.1": `--listen: give a host and a port, like 127.0.0.1:8443, not "127.0.0.1"`,
		"[::1]:x":   `--listen: give a host and a port, like 127.0.0.1:8443, not "[::1]:x"`,
	} {
		if _, err := serving.Listen("--listen", address); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
		t.Setenv("KUBECONFIG", kubeconfig)
		if _, _, stderr := execute(t, "faults", "--plan", "compaction", "--listen", address); !strings.HasPrefix(stderr,
			"keepwatch: "+want+"\n") {
			t.Errorf("faults: %s, want %s", stderr, want)
		}
	}
}

// What is mistyped is named with what it resembles, and the help of the command that was meant.
func TestMistyped(t *testing.T) {
	for args, want := range map[string]string{
		"prxoy":         "keepwatch: unknown command \"prxoy\" for \"keepwatch\"; did you mean proxy?\nSee 'keepwatch --help'.\n",
		"history blme":  "keepwatch: unknown command \"blme\" for \"keepwatch history\"; did you mean blame?\nSee 'keepwatch history --help'.\n",
		"proxy --lisen": "keepwatch: unknown flag: --lisen\nSee 'keepwatch proxy --help'.\n",
		"faults report": "keepwatch: accepts 1 arg(s), received 0\nSee 'keepwatch faults report --help'.\n",
		"sync pods --max-lag 3d": `keepwatch: invalid argument "3d" for "--max-lag" flag: time: unknown unit "d" in duration "3d"; hours are the largest unit: ` +
			"72h is 3 days\nSee 'keepwatch sync --help'.\n",
		"proxy argument": "keepwatch: unknown command \"argument\" for \"keepwatch proxy\"\nSee 'keepwatch proxy --help'.\n",
	} {
		if code, stdout, stderr := execute(t, strings.Fields(args)...); code != exit.CodeUsage || stdout != "" || stderr != want {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want %q", args, code, stdout, stderr, want)
		}
	}
}
