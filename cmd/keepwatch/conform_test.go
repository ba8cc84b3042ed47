package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

func TestConformCommand(t *testing.T) {
	t.Parallel()
	kubeconfig := separateCluster(t)
	small := []string{"conform", "--kubeconfig", kubeconfig, "--watchers", "8", "--writes", "60", "-o"}
	code, stdout, stderr := separately(t, append(small, "json", "--disturb", "echo disturbed")...)
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
	if code, stdout, stderr := separately(t, append(small, "table", "--disturb", "exit 3")...); code != 1 ||
		stdout != "" || !strings.Contains(stderr, "the disturbance failed: exit status 3") {
		t.Errorf("a disturbance that fails: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, _, stderr := separately(t, "conform", "--kubeconfig", kubeconfig, "-n", "missing"); code != 1 ||
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

// TestConformInterrupted checks that ^C during the rules that single requests judge, and a closed terminal during the
// random writes, leave nothing behind.
func TestConformInterrupted(t *testing.T) {
	t.Parallel()
	kubeconfig := separateCluster(t)
	client, config := clientOf(t, kubeconfig), configOf(t, kubeconfig)
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for behind, end := range map[string]syscall.Signal{"list.exact: kept\n": syscall.SIGINT,
		"write.exists: kept\n": syscall.SIGHUP} {
		p := startProcess(t, "conform", "--kubeconfig", kubeconfig, "--watchers", "8", "--writes", "1000000")
		waitLine(t, p, behind)
		p.Process.Signal(end)
		if code := p.exit(t); code != 130 || strings.Contains(p.stderr.String(), "not deleted") {
			t.Errorf("exit %d: %s", code, p.stderr)
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
}
