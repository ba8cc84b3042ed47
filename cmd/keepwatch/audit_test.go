package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// servers are API servers in processes of their own: two on one etcd, and one of another cluster.
type servers struct{ first, twin, other string } // kubeconfigs

func startServers(t *testing.T) servers {
	t.Helper()
	// The socket of the embedded etcd needs a short path.
	data, err := os.MkdirTemp("", "keepwatch-audit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	start := func(args ...string) string {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		startProcess(t, append([]string{"serve", "--controllers=false", "--listen", "127.0.0.1:0", "--kubeconfig-out", file},
			args...)...).waitReady(t)
		return file
	}
	s := servers{
		first: start("--data-dir", data),
		twin:  start("--etcd-servers", "unix://"+filepath.Join(data, "run", "etcd.sock")),
		other: start(),
	}
	useCluster(t, s.first)
	return s
}

func TestAuditCommand(t *testing.T) {
	parallel(t)
	s := startServers(t)
	client := clientOf(t, s.first)
	for _, name := range []string{"a", "b", "c"} {
		configMap(t, client, name, "web")
		configMap(t, clientOf(t, s.other), name, "web")
	}
	steps := []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // regular expressions
	}{
		{"twins", []string{"cm,secrets,ns", "-A", "--against", s.twin}, 0,
			`(?s)^RESOURCE .*\nconfigmaps +\d+ +3 +3 +0 +0 +0 +equal, digest [0-9a-f]{16}\nsecrets .*\nnamespaces +\d+ +4 .*\n$`,
			`^$`},
		{"twins, the other way round, one object", []string{"configmaps", "b", "--kubeconfig", s.twin, "--against", s.first},
			0, `\nconfigmaps +\d+ +1 +1 .*\n$`, `^$`},
		{"a selector", []string{"configmaps", "-l", "app!=web", "--against", s.twin, "--chunk-size=1"}, 0,
			`\nconfigmaps +\d+ +0 +0 .*\n$`, `^$`},
		{"another cluster", []string{"configmaps", "--against", s.other}, 2, `\nconfigmaps +- .* not compared\n$`,
			`servers of different clusters .*--contents compares those\n$`},
		{"another cluster's contents", []string{"configmaps", "--against", s.other, "--contents"}, 0,
			`\nconfigmaps +- +3 +3 .* equal`, `^$`},
		{"an unknown type", []string{"nothing,configmaps", "--against", s.twin}, 2,
			`\nnothing .* not compared\nconfigmaps .* equal`,
			`^keepwatch: nothing not compared: the server doesn't have a resource type "nothing"\n$`},
		{"an object that neither has", []string{"configmaps/d", "--against", s.twin}, 2, `\nconfigmaps .* not compared\n$`,
			`^keepwatch: configmaps not compared: neither side has d\n$`},
		{"no kubeconfig", []string{"configmaps", "--against", "main.go"}, 2, `not compared`, `--against: `},
		{"no state", []string{"configmaps", "--against", t.TempDir()}, 2, `not compared`, `has no state of configmaps in`},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			code, stdout, stderr := execute(t, append([]string{"audit"}, step.args...)...)
			if code != step.code || !regexp.MustCompile(step.stdout).MatchString(stdout) ||
				!regexp.MustCompile(step.stderr).MatchString(stderr) {
				t.Errorf("exit %d, stdout %s, stderr %s", code, stdout, stderr)
			}
		})
	}
	t.Run("differences", func(t *testing.T) {
		other := clientOf(t, s.other)
		deleteConfigMap(t, other, "a")
		configMap(t, other, "d", "web")
		o, err := other.CoreV1().ConfigMaps("default").Get(t.Context(), "c", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Data = map[string]string{"key": "value"}
		if _, err := other.CoreV1().ConfigMaps("default").Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := execute(t, "audit", "configmaps", "--against", s.other, "--contents")
		const want = "\nconfigmaps default/a: missing\nconfigmaps default/c: different in data\nconfigmaps default/d: extra\n"
		if code != 1 || !strings.HasSuffix(stdout, want) || stderr != "" {
			t.Errorf("exit %d, stdout %s, stderr %s", code, stdout, stderr)
		}
		code, stdout, _ = execute(t, "audit", "configmaps,nothing", "--against", s.other, "--contents", "-o", "json")
		var report struct {
			Equal     bool
			Resources []struct {
				Resource, Error           string
				Missing, Extra, Different int
			}
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 2 || report.Equal ||
			len(report.Resources) != 2 ||
			report.Resources[0].Missing != 1 || report.Resources[1].Error == "" {
			t.Errorf("exit %d, %v: %s", code, err, stdout)
		}
	})
	t.Run("state", func(t *testing.T) {
		state := filepath.Join(t.TempDir(), "state")
		watch := func() {
			t.Helper()
			if code, _, stderr := execute(t, "watch", "configmaps", "--state", state, "--until-synced"); code != 0 {
				t.Fatal(stderr)
			}
		}
		watch()
		deleteConfigMap(t, client, "a") // behind the cursor
		for _, args := range [][]string{nil, {"--kubeconfig", s.twin}} {
			code, stdout, stderr := execute(t, append([]string{"audit", "configmaps", "--against", state}, args...)...)
			if code != 0 || !strings.Contains(stdout, "equal, digest") ||
				!regexp.MustCompile(`configmaps +\d+ +3 +3 `).MatchString(stdout) {
				t.Errorf("%v: exit %d, stdout %s, stderr %s", args, code, stdout, stderr)
			}
		}
		watch()
		if code, stdout, _ := execute(t, "audit", "configmaps", "--against", state); code != 0 ||
			!regexp.MustCompile(`configmaps +\d+ +2 +2 `).MatchString(stdout) {
			t.Errorf("exit %d, stdout %s", code, stdout)
		}
		if code, _, stderr := execute(t, "audit", "configmaps", "-A", "--against", state); code != 2 ||
			!strings.Contains(stderr, "has no state of configmaps in all namespaces") {
			t.Errorf("exit %d, stderr %s", code, stderr)
		}
	})
}

func TestAuditUsage(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none")) // the errors precede any request
	folder := t.TempDir()
	tests := []struct {
		args []string
		want string
	}{
		{nil, "give the type"},
		{[]string{"pods"}, "give --against"},
		{[]string{"pods,", "--against", folder}, "TYPE/NAME"},
		{[]string{"pods/a,services", "--against", folder}, "have the same name"},
		{[]string{"pods", "--against", filepath.Join(folder, "none")}, "no such file"},
		{[]string{"pods", "--against", folder, "--contents"}, "only metadata"},
		{[]string{"pods", "--against", folder, "-o", "yaml"}, "give table or json"},
		{[]string{"pods", "--against", folder, "-l", "a=b=c"}, "--selector"},
		{[]string{"pods", "--against", folder, "--chunk-size=-1"}, "--chunk-size"},
		{[]string{"pods", "--nonsense"}, "unknown flag"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			code, stdout, stderr := execute(t, append([]string{"audit"}, tt.args...)...)
			lines := strings.Split(stderr, "\n")
			if code != 2 || stdout != "" || !strings.Contains(lines[0], tt.want) ||
				!slices.Equal(lines[1:], []string{"See 'keepwatch audit --help'.", ""}) {
				t.Errorf("exit %d, stdout %q, stderr %q, want %q", code, stdout, stderr, tt.want)
			}
		})
	}
}
