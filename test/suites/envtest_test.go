package suites

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	linkAssets(t, c.assets[keepwatch])
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

// linkAssets makes a folder of the assets.
func linkAssets(t *testing.T, dir string) {
	t.Helper()
	if text, err := exec.CommandContext(t.Context(), peer.Keepwatch(t), "assets", "--dir",
		dir).CombinedOutput(); err != nil {
		t.Fatalf("keepwatch assets: %v\n%s", err, text)
	}
}

// The tests of controller-runtime's client, and those of a controller of an operator, that passed with kube-apiserver
// and etcd pass with the assets.
func TestSuitesPassWithAssets(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := comparison{root: root, logs: dir, assets: map[string]string{keepwatch: filepath.Join(dir, "assets")}}
	linkAssets(t, c.assets[keepwatch])
	t.Run("controller-runtime", func(t *testing.T) {
		var err error
		if c.work, err = newRuntimeWorkspace(root, filepath.Join(dir, "module")); err != nil {
			t.Fatal(err)
		}
		c.pass(t, named(t, envtestTargets(), "client"), 300)
	})
	t.Run("Karpenter", func(t *testing.T) {
		all := operators()
		i := slices.IndexFunc(all, func(o operator) bool { return o.name() == "karpenter" })
		if i < 0 {
			t.Fatal("there is no operator karpenter")
		}
		karpenter := all[i]
		c.forOperator(t, karpenter).pass(t, named(t, karpenter.targets(), "karpenter/pkg/controllers/nodeclaim/disruption"),
			40)
	})
}

func named(t *testing.T, targets []target, name string) target {
	t.Helper()
	i := slices.IndexFunc(targets, func(of target) bool { return of.name == name })
	if i < 0 {
		t.Fatalf("there is no suite %q", name)
	}
	return targets[i]
}

// pass runs the tests of a package with the assets. At least some must pass, and all that passed with kube-apiserver
// and etcd, by the saved outcomes. Specs wait for a second, which a busy machine may need: those that fail run once
// more.
func (c comparison) pass(t *testing.T, of target, least int) {
	t.Helper()
	saved, err := load(filepath.Join(c.root, "test", "envtest", "results"), []target{of})
	if err != nil || len(saved) != 1 {
		t.Fatalf("%d saved results, %v", len(saved), err)
	}
	p, r := c.compile(t, of), saved[0]
	r.Outcomes[keepwatch], _ = p.run(t, keepwatch, "all", selection{})
	if n := r.count(keepwatch, passed); n < least {
		t.Errorf("only %d tests passed", n)
	}
	for _, alone := range selections(r.missed()) {
		again, _ := p.run(t, keepwatch, "again", alone)
		for _, name := range r.missed() {
			if o, ok := again[name]; ok && o != skipped {
				r.Outcomes[keepwatch][name] = o
			}
		}
	}
	for _, name := range r.missed() {
		t.Errorf("%s: %s", name, orMissing(r.Outcomes[keepwatch], name))
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
			upstream: {"spec: a": passed, "spec: b": passed, "spec: c": passed, "spec: d": failed, "spec: BeforeSuite": passed,
				"TestAll": passed},
			keepwatch: {"spec: a": passed, "spec: b": failed, "spec: c": failed, "spec: d": failed, "spec: BeforeSuite": passed,
				"TestAll": failed},
		},
		Seconds: map[string]float64{upstream: 10, keepwatch: 4},
	}
	if err := r.save(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, reasonsFile), []byte(`[{"Test": "^spec: b$", "Reason": "No b"}]`),
		0o666); err != nil {
		t.Fatal(err)
	}
	got, err := EnvtestTable(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| client | 3 | 1 | 10 | 4 |\n", "| **controller-runtime** | 3 | 1 | 10 | 4 |\n",
		"\nNo b: 1\n\n- client: b\n", "\nNot analysed yet: 1\n\n- client: c\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nhas no %q", got, want)
		}
	}
	if _, err := ReplaceTable("without marks", got); err == nil {
		t.Error("a document without marks is changed")
	}
}
