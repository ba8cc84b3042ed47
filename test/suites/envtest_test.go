package suites

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

// TestEnvtest runs controller-runtime's and operators' tests with the real programs and with the assets, and saves the
// outcomes.
func TestEnvtest(t *testing.T) {
	if *envtestFlag == "" {
		t.Skip("make envtest-suites runs this")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(root, "bin", "envtest-suites")
	c := comparison{
		root: root, logs: out, results: filepath.Join(root, "test", "envtest", "results"),
		assets: map[string]string{upstream: filepath.Join(out, "upstream"), keepwatch: filepath.Join(out, "assets")},
	}
	if err := os.MkdirAll(c.results, 0o777); err != nil {
		t.Fatal(err)
	}
	if c.reasons, err = loadReasons(filepath.Join(c.results, reasonsFile)); err != nil {
		t.Fatal(err)
	}
	linkPrograms(t, c.assets[upstream], peer.KubeAPIServer, peer.Etcd, peer.Kubectl)
	if text, err := exec.CommandContext(t.Context(), peer.Keepwatch(t), "assets", "--dir", c.assets[keepwatch]).CombinedOutput(); err != nil {
		t.Fatalf("keepwatch assets: %v\n%s", err, text)
	}
	which := regexp.MustCompile(*envtestFlag)
	if matching(envtestTargets(), which) {
		if c.work, err = newRuntimeWorkspace(root, filepath.Join(out, "module")); err != nil {
			t.Fatal(err)
		}
		c.run(t, envtestTargets(), which)
	}
	for _, o := range operators() {
		if matching(o.targets(), which) {
			c.forOperator(t, o).run(t, o.targets(), which)
		}
	}
}

// forOperator returns the comparison of an operator's tests.
func (c comparison) forOperator(t *testing.T, o operator) comparison {
	t.Helper()
	folder := filepath.Join(c.logs, o.name())
	var err error
	if c.work, err = newOperatorWorkspace(t.Context(), o, filepath.Join(folder, "module")); err != nil {
		t.Fatal(err)
	}
	if o.prepare == nil {
		return c
	}
	source, err := download(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if c.env, err = o.prepare(t.Context(), filepath.Join(c.assets[upstream], "kubectl"), source, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return c
}

// docs/testing.md has the table of the saved outcomes.
func TestEnvtestTableInDocs(t *testing.T) {
	table, err := EnvtestTable("../envtest/results")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := ReplaceTable(string(document), table)
	if err != nil {
		t.Fatal(err)
	}
	if string(document) != want {
		t.Error("docs/testing.md has another table than test/envtest/results: run make envtest-page")
	}
}

func TestEnvtestTable(t *testing.T) {
	folder := t.TempDir()
	r := &result{
		Target: "client",
		Outcomes: map[string]outcomes{
			upstream:  {"spec: a": passed, "spec: b": passed, "spec: c": passed, "spec: d": failed, "spec: BeforeSuite": passed, "TestAll": passed},
			keepwatch: {"spec: a": passed, "spec: b": failed, "spec: c": failed, "spec: d": failed, "spec: BeforeSuite": passed, "TestAll": failed},
		},
		Seconds: map[string]float64{upstream: 10, keepwatch: 4},
	}
	if err := r.save(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, reasonsFile), []byte(`[{"Test": "^spec: b$", "Reason": "No b"}]`), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := EnvtestTable(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| client | 3 | 1 | 10 | 4 |\n", "| **controller-runtime** | 3 | 1 | 10 | 4 |\n", "\nNo b: 1\n\n- client: b\n", "\nNot analysed yet: 1\n\n- client: c\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nhas no %q", got, want)
		}
	}
	if _, err := ReplaceTable("without marks", got); err == nil {
		t.Error("a document without marks is changed")
	}
}
