package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// TestConform judges one server, by several runs at a time.
func TestConform(t *testing.T) {
	client := cluster(t)
	t.Run("report", testConformReport)
	t.Run("failed disturbance", testConformFailedDisturbance)
	t.Run("missing namespace", testConformMissingNamespace)
	t.Run("interrupted", func(t *testing.T) { testConformInterrupted(t, client) })
}

// smallConform is the command line of a short run.
var smallConform = []string{"conform", "--watchers", "8", "--writes", "60", "-o"}

func testConformReport(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := execute(t, append(slices.Clone(smallConform), "json", "--disturb", "echo disturbed")...)
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

func testConformFailedDisturbance(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := execute(t, append(slices.Clone(smallConform), "table", "--disturb", "exit 3")...)
	if code != 1 || stdout != "" || !strings.Contains(stderr, "the disturbance failed: exit status 3") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func testConformMissingNamespace(t *testing.T) {
	t.Parallel()
	if code, _, stderr := execute(t, "conform", "-n", "missing"); code != 1 || !strings.Contains(stderr, `namespaces "missing" not found`) {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
}

func TestConformUsage(t *testing.T) {
	for _, args := range [][]string{{"-o", "yaml"}, {"--watchers", "0"}, {"--writes", "-1"}, {"argument"}, {"--seed", "x"}} {
		code, stdout, stderr := execute(t, append([]string{"conform"}, args...)...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "keepwatch: ") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

// testConformInterrupted checks that ^C leaves nothing behind, during the rules that single requests judge
// and during the random writes.
func testConformInterrupted(t *testing.T, client kubernetes.Interface) {
	t.Parallel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var runs []*process
	for range 2 {
		runs = append(runs, startProcess(t, "conform", "--watchers", "8", "--writes", "1000000"))
	}
	for i, behind := range []string{"list.exact: kept\n", "write.exists: kept\n"} {
		p := runs[i]
		waitLine(t, p, behind)
		p.Process.Signal(os.Interrupt)
		if code := p.exit(t); code != 130 || strings.Contains(p.stderr.String(), "not deleted") {
			t.Errorf("exit %d: %s", code, p.stderr)
		}
	}
	labelled := metav1.ListOptions{LabelSelector: "conform.keepwatch.io/run"}
	eventually(t, "nothing is left, of the other runs, too", func() error { // namespaces are finalized later
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
