package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
	"github.com/keepwatch/keepwatch/server/proxy"
)

// In front of a server, a client with the proxy's kubeconfig reads, watches and writes as the server's.
func TestProxyCommand(t *testing.T) {
	parallel(t)
	quietCluster(t)
	file := filepath.Join(t.TempDir(), "proxy.kubeconfig")
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	p.waitStderr(t, "keepwatch: proxy of ")
	if about, err := os.Stat(file); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig: %v, %v", about.Mode(), err)
	}
	maps := clientOf(t, file).CoreV1().ConfigMaps("default")
	list, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "proxied-"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).UID != created.UID {
		t.Errorf("got %v", e)
	}
	terminate(t, p)
}

func TestProxyUsage(t *testing.T) {
	for _, args := range [][]string{{"--tls-cert-file", "x"}, {"--tls-private-key-file", "x"}, {"argument"},
		{"--watch-history", "x"}, {"--max-requests-inflight", "-1"},
		{"--cache", "pods/log"}, {"--no-cache", "*"}, {"--cache", "pods", "--no-cache", "pods"},
		{"--cache", "Pods", "--print-rbac"}, {"--memory-limit", "0"}, {"--memory-limit", "much"},
		{"--memory-limit", "512m"},
		{"--drop", "status"}, {"--drop", "managedFields="}, {"--drop", "managedfields"},
		{"--audit-log-path", "x"}, {"--audit-policy-file", "x"}, {"--audit-policy-file", "x", "--audit-log-path", "x",
			"--audit-log-mode", "x"}} {
		code, stdout, stderr := execute(t, append([]string{"proxy"}, args...)...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "keepwatch: ") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
	// as of all commands
	if code, _, stderr := execute(t, "proxy", "--kubeconfig", "missing"); code != 1 || strings.Contains(stderr, "--help") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// The metrics are served to everybody at an address of their own, if there is one, and nothing else is.
func TestProxyMetrics(t *testing.T) {
	parallel(t)
	quietCluster(t)
	address := child.Address(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file, "--metrics-bind-address", address)
	p.waitStderr(t, "keepwatch: proxy of ")
	if _, err := clientOf(t, file).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		code         int
		text         string
	}{
		{http.MethodGet, "/metrics", http.StatusOK, "keepwatch_proxy_forwarded_total{"},
		{http.MethodDelete, "/metrics", http.StatusMethodNotAllowed, ""},
		{http.MethodGet, "/keepwatch/status", http.StatusNotFound, ""},
		{http.MethodGet, "/api/v1/namespaces", http.StatusNotFound, ""},
	} {
		q, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+address+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != c.code || !strings.Contains(string(body), c.text) {
			t.Errorf("%s %s: %s, %v", c.method, c.path, answer.Status, err)
		}
	}
	terminate(t, p)
	if code, _, stderr := execute(t, "proxy", "--metrics-bind-address", "nonsense"); code != 2 ||
		!strings.HasPrefix(stderr, "keepwatch: --metrics-bind-address: ") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

// With kube-apiserver's flags, reads from memory are in an audit log.
func TestProxyAudit(t *testing.T) {
	parallel(t)
	quietCluster(t)
	dir := t.TempDir()
	file, policy, log := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "policy"), filepath.Join(dir, "log")
	if err := os.WriteFile(policy,
		[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file, "--audit-policy-file", policy,
		"--audit-log-path", log)
	p.waitStderr(t, "keepwatch: proxy of ")
	maps := clientOf(t, file).CoreV1().ConfigMaps("default")
	await.State(t, "the log has a list", func() (bool, string) {
		// the first ones are forwarded
		if _, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), `"requestURI":"/api/v1/namespaces/default/configmaps?resourceVersion=0"`),
			string(text)
	})
	terminate(t, p)
	if code, _, stderr := execute(t, "proxy", "--audit-policy-file", log, "--audit-log-path", log); code != 1 ||
		!strings.HasPrefix(stderr, "keepwatch: the audit log: ") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

// A proxy that acts as another user does not act as its clients' users, too.
func TestProxyImpersonatesOnce(t *testing.T) {
	parallel(t)
	quietCluster(t)
	code, _, stderr := execute(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", "", "--as", "ada",
		"--impersonate")
	if code != 2 || !strings.Contains(stderr, "--impersonate and --as exclude each other") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

// A kubeconfig of another cluster is not replaced.
func TestProxyKeepsOtherKubeconfigs(t *testing.T) {
	parallel(t)
	before, err := os.ReadFile(quietCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(theirs, before, 0o600); err != nil {
		t.Fatal(err)
	}
	setenv(t, "KUBECONFIG="+theirs)
	code, _, stderr := execute(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", theirs)
	if code != 1 || !strings.Contains(stderr, "it was not changed, give another file with --kubeconfig-out") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
	if after, err := os.ReadFile(theirs); string(after) != string(before) || err != nil {
		t.Errorf("the file is changed, %v", err)
	}
}

// --print-rbac needs no cluster if all resources are named, and otherwise prints those of the cluster but Secrets.
func TestProxyRights(t *testing.T) {
	parallel(t)
	rights := func(flags ...string) (rules []rbacv1.PolicyRule) {
		code, stdout, stderr := execute(t, append([]string{"proxy", "--print-rbac"}, flags...)...)
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict([]byte(stdout), &role); code != 0 || err != nil || role.Kind != "ClusterRole" ||
			role.Name != "keepwatch-proxy" {
			t.Fatalf("%v: exit %d, %v, %s, stderr %q", flags, code, err, stdout, stderr)
		}
		return role.Rules[8:]
	}
	setenv(t, "KUBECONFIG="+filepath.Join(t.TempDir(), "missing"))
	verbs := []string{"get", "list", "watch"}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: verbs}, {APIGroups: []string{"apps"},
			Resources: []string{"deployments"}, Verbs: verbs},
	}
	if got := rights("--cache", "pods,deployments.apps", "--cache", "nodes"); !reflect.DeepEqual(got, want) {
		t.Errorf("the named ones: %v", got)
	}
	if got := rights("--cache", "pods", "--impersonate"); len(got) != 4 ||
		!reflect.DeepEqual(got[1:], proxy.ImpersonationRules()) {
		t.Errorf("with impersonation: %v", got)
	}
	if got := rights("--cache", "pods", "--personal", "--personal-groups", "devs"); !reflect.DeepEqual(got[1:],
		proxy.PersonalRules()) {
		t.Errorf("with personal views: %v", got)
	}
	for _, flag := range []string{"--personal=some", "--personal-groups=devs"} {
		if code, _, stderr := execute(t, "proxy", flag); code != exit.CodeUsage || !strings.Contains(stderr, "--personal") {
			t.Errorf("%s: exit %d, %q", flag, code, stderr)
		}
	}
	if code, _, stderr := execute(t, "proxy", "--print-rbac"); code != 1 ||
		!strings.Contains(stderr, "unless --cache names them all") {
		t.Errorf("without a cluster: exit %d, %q", code, stderr)
	}
	quietCluster(t)
	core := rights("--no-cache", "events")[0].Resources
	for name, want := range map[string]bool{"configmaps": true, "secrets": false, "events": false} {
		if slices.Contains(core, name) != want {
			t.Errorf("%s among %v, want %v", name, core, want)
		}
	}
	if core = rights("--cache", "*,secrets")[0].Resources; !slices.Contains(core, "secrets") {
		t.Errorf("Secrets that are named are not among %v", core)
	}
}
