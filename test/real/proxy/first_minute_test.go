package proxy

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

// A new user's first minute: a proxy is started, three `keepwatch watch` and a `kubectl get` read through it, and the
// page shows that memory answers. `--cache` is read before anybody reads it, and a misspelt name is shown.
func TestFirstMinute(t *testing.T) {
	t.Parallel()
	server, program, dir := peer.Kubernetes(t), peer.Keepwatch(t), t.TempDir()
	run := func(log string, args ...string) {
		t.Helper()
		p, err := peer.Start(peer.Command{Path: program, Args: args, Log: filepath.Join(dir, log)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
	}
	output := func(path string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), path, args...)
		command.Env = append(os.Environ(), peer.KubectlEnv(filepath.Join(dir, "config"), dir)...)
		var stderr bytes.Buffer
		command.Stderr = &stderr
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &stderr)
		}
		return string(out)
	}
	file := filepath.Join(dir, "config")
	run("proxy", "proxy", "--kubeconfig", server.Kubeconfig(), "--listen", "127.0.0.1:0", "--kubeconfig-out", file,
		"--cache", "*,services,podz")
	await.True(t, "the proxy has written its kubeconfig", func() bool { _, err := os.Stat(file); return err == nil })
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) []byte {
		body, err := client.RESTClient().Get().AbsPath(path).Do(t.Context()).Raw()
		if err != nil {
			return []byte(err.Error()) // while the proxy starts
		}
		return body
	}
	status := func() (s proxy.Status, text string) {
		body := get("/keepwatch/status")
		_ = json.Unmarshal(body, &s)
		return s, string(body)
	}
	await.State(t, "services are read at the start, and podz is not there", func() (bool, string) {
		s, text := status()
		return len(s.Resources) == 1 && s.Resources[0].Resource == "services" && s.Resources[0].Confirmed != nil &&
			len(s.Unfollowed) == 1 && s.Unfollowed[0].Resource == "podz", text
	})

	for _, resource := range []string{"pods", "configmaps", "deployments.apps"} {
		run("watch-"+resource, "watch", resource, "-A", "--kubeconfig", file)
	}
	if got := output(peer.Build(t, peer.Kubectl), "get", "namespaces"); !strings.Contains(got, "default") {
		t.Errorf("kubectl get: %s", got)
	}
	await.State(t, "memory answers three watches", func() (bool, string) {
		s, text := status()
		return s.Saved["watch"] >= 3, text
	})
	page := string(get("/keepwatch/"))
	if !regexp.MustCompile(`Answered from memory: \d+ LIST, ([3-9]|\d\d+) WATCH`).MatchString(page) ||
		!strings.Contains(page, "podz</b> is to be cached, and is not") {
		t.Errorf("the page: %s", page)
	}
	if top := output(program, "top", "--kubeconfig", file); !strings.Contains(top, " WATCH, ") ||
		strings.Contains(top, " 0 WATCH, ") || !strings.Contains(top, "podz is to be cached, and is not") {
		t.Errorf("keepwatch top: %s", top)
	}
}
