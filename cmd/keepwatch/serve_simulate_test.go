package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// kubectl sees a Deployment roll out, a pod become ready and a Job complete. It advances the time through keepwatch
// proxy until a pod ends.
func TestServeSimulate(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	assetsIn(t, dir)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	p := startProcess(t, "serve", "--simulate", "--listen", "127.0.0.1:0", "--kubeconfig-out", kubeconfig)
	p.waitReady(t)
	kubectl := func(args ...string) string {
		t.Helper()
		return kubectlOutput(t, dir, append([]string{"--kubeconfig", kubeconfig}, args...)...)
	}
	kubectl("create", "deployment", "web", "--image", "nginx", "--replicas", "3")
	if out := kubectl("rollout", "status", "deployment/web", "--timeout", "5m"); !strings.HasSuffix(out,
		`deployment "web" successfully rolled out`) {
		t.Error(out)
	}
	kubectl("set", "image", "deployment/web", "nginx=nginx:2")
	kubectl("rollout", "status", "deployment/web", "--timeout", "5m")
	kubectl("rollout", "undo", "deployment/web")
	kubectl("rollout", "status", "deployment/web", "--timeout", "5m")
	kubectl("wait", "--for", "condition=Available", "deployment/web", "--timeout", "5m")
	kubectl("run", "one", "--image", "nginx")
	kubectl("wait", "--for", "condition=Ready", "pod/one", "--timeout", "5m")
	kubectl("create", "job", "once", "--image", "busybox")
	kubectl("wait", "--for", "condition=Complete", "job/once", "--timeout", "5m")
	if nodes := kubectl("get", "nodes", "-o", "name"); nodes != "node/node-1" {
		t.Error(nodes)
	}
	kubectl("run", "long", "--image", "busybox", "--restart", "Never", "--annotations",
		"simulation.keepwatch.io/run-for=48h")
	kubectl("wait", "--for", "condition=Ready", "pod/long", "--timeout", "5m")
	proxied := filepath.Join(t.TempDir(), "kubeconfig")
	front := startProcess(t, "proxy", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--kubeconfig-out", proxied)
	front.waitStderr(t, "keepwatch: proxy of ")
	if out := kubectl("create", "--raw", "/keepwatch/simulation/advance?by=48h", "-f", "-", "--kubeconfig",
		proxied); !strings.HasPrefix(out, `{"time":"`) {
		t.Error(out)
	}
	kubectl("wait", "--for", "jsonpath={.status.phase}=Succeeded", "pod/long", "--timeout", "5m")
	terminate(t, front)
	if text := p.stderr.String(); strings.Count(text, "\n") != 1 {
		t.Errorf("stderr is %q", text)
	}
}
