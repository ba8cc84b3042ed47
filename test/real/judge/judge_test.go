// Package judge compares the verdicts of keepwatch judge on kube-apiserver with those on the test server.
package judge

import (
	"flag"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

var bugsFlag = flag.String("judge.bugs", ".", "the seeded bugs, as a regular expression")

func TestMain(m *testing.M) { peer.Main(m) }

// TestVerdictsOnKubernetes judges the seeded operators of server/judge/operators, whose API server is kube-apiserver
// with the controllers of kube-controller-manager for garbage and namespaces.
func TestVerdictsOnKubernetes(t *testing.T) {
	// Its own leases would end the quiet of each operator.
	server := peer.Kubernetes(t, "--endpoint-reconciler-type=none",
		"--feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false")
	peer.StartControllerManager(t, server, "garbage-collector-controller,namespace-controller")
	test, err := peer.TestModule()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "./server/judge/operators", "-count", "1", "-timeout", "0", "-v",
		"-run", "^TestOnKubernetes$/("+*bugsFlag+")",
		"-args", "-operators.kubeconfig", server.Kubeconfig(), "-operators.etcd", string(server.Endpoint()))
	cmd.Dir = filepath.Dir(test)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	judged := regexp.MustCompile(`(?m)^    --- PASS: TestOnKubernetes/.*$`).FindAll(out, -1)
	for _, line := range judged {
		t.Logf("%s", line)
	}
	if len(judged) == 0 {
		t.Errorf("no bug was judged:\n%s", out)
	}
}
