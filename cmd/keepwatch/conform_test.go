package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

func TestConformCommand(t *testing.T) {
	parallel(t)
	_, kubeconfig := newCluster(t)
	code, stdout, stderr := execute(t, "conform", "--kubeconfig", kubeconfig, "--watchers", "8", "--writes", "60", "-o",
		"json", "--disturb", "echo disturbed")
	if code != 0 || strings.Count(stderr, "disturbed\n") != 2 || !strings.Contains(stderr, "list.newest: kept\n") {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	var report struct {
		Results []struct {
			Rule    conform.Rule
			Verdict string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		want := "kept"
		if one.Rule.ID == "encoding.cbor" || one.Rule.ID == "pages.expired" {
			want = "not offered"
		}
		if one.Verdict != want {
			t.Errorf("%s is %s", one.Rule.ID, one.Verdict)
		}
	}
}

// A disturbance that fails ends the run during the random writes, and leaves nothing behind.
func TestConformDisturbanceFails(t *testing.T) {
	parallel(t)
	client, kubeconfig := newCluster(t)
	if code, stdout, stderr := execute(t, "conform", "--kubeconfig", kubeconfig, "--watchers", "8", "--writes", "60",
		"--disturb", "exit 3"); code != 1 ||
		stdout != "" || !strings.Contains(stderr, "the disturbance failed: exit status 3") {
		t.Errorf("a disturbance that fails: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	leavesNothing(t, client, kubeconfig)
	if code, _, stderr := execute(t, "conform", "--kubeconfig", kubeconfig, "-n", "missing"); code != 1 ||
		!strings.Contains(stderr, `namespaces "missing" not found`) {
		t.Errorf("a missing namespace: exit %d, stderr %q", code, stderr)
	}
}

func TestConformUsage(t *testing.T) {
	for _, args := range [][]string{{"-o", "yaml"}, {"--watchers", "0"}, {"--writes", "-1"}, {"argument"},
		{"--seed", "x"}, {"-n", ""}, {"--disturb", ""}} {
		code, stdout, stderr := execute(t, append([]string{"conform"}, args...)...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "keepwatch: ") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

// ^C during the rules that single requests judge leaves nothing behind.
func TestConformInterrupted(t *testing.T) { conformEnds(t, "list.exact: kept\n", syscall.SIGINT) }

// A closed terminal during the random writes does not, either.
func TestConformHungUp(t *testing.T) {
	if testing.Short() {
		t.Skip("the random writes begin after 10 s; TestConformDisturbanceFails ends during them")
	}
	conformEnds(t, "write.exists: kept\n", syscall.SIGHUP)
}

// conformEnds ends a run behind a line.
func conformEnds(t *testing.T, behind string, end syscall.Signal) {
	t.Helper()
	parallel(t)
	client, kubeconfig := newCluster(t)
	p := startProcess(t, "conform", "--kubeconfig", kubeconfig, "--watchers", "8", "--writes", "1000000")
	p.waitStderr(t, behind)
	p.Process.Signal(end)
	if code := p.exit(t); code != 130 || strings.Contains(p.stderr.String(), "not deleted") {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
	leavesNothing(t, client, kubeconfig)
}

// leavesNothing waits until a server has nothing of conform.
func leavesNothing(t *testing.T, client kubernetes.Interface, kubeconfig string) {
	t.Helper()
	definitions, err := apiextensions.NewForConfig(configOf(t, kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	labelled := metav1.ListOptions{LabelSelector: "conform.keepwatch.io/run"}
	await.NoError(t, "nothing is left", func() error { // namespaces are finalized later
		namespaces, err := client.CoreV1().Namespaces().List(t.Context(), labelled)
		if err != nil {
			return err
		}
		crds, err := definitions.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), labelled)
		if err != nil || len(namespaces.Items)+len(crds.Items) > 0 {
			return fmt.Errorf("%d namespaces, %d definitions, %v", len(namespaces.Items), len(crds.Items), err)
		}
		return nil
	})
}
