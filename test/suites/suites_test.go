package suites

import (
	"flag"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	runFlag     = flag.String("suites.run", "", "run the suites whose name matches the regular expression")
	testsFlag   = flag.String("suites.tests", "", "run only these tests, as go test -run, or these specs, as ginkgo.focus")
	repeatFlag  = flag.Int("suites.repeat", 3, "how often to repeat what differs, in each mode")
	envtestFlag = flag.String("suites.envtest", "",
		"run the suites of controller-runtime and of operators whose name matches with the assets")
	tableFlag = flag.Bool("suites.table", false, "print the table of all saved results")
)

func TestMain(m *testing.M) { peer.Main(m) }

// TestSuites runs suites in both modes. The outcome of each test must be the same.
func TestSuites(t *testing.T) {
	if *runFlag == "" && !*tableFlag {
		t.Skip("make kubernetes-suites runs this")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(root, "bin", "suites")
	if *runFlag != "" {
		runAll(t, root, out, regexp.MustCompile(*runFlag))
	}
	results, err := load(out, targets())
	if err != nil {
		t.Fatal(err)
	}
	writeTable(t.Output(), results)
}

func runAll(t *testing.T, root, out string, which *regexp.Regexp) {
	work, err := newWorkspace(t.Context(), root, filepath.Join(out, "module"))
	if err != nil {
		t.Fatal(err)
	}
	assets := filepath.Join(out, "assets")
	makeAssets(t, assets, slices.DeleteFunc(targets(), func(of target) bool { return !which.MatchString(of.name) }))
	c := comparison{root: root, logs: out, results: out, work: work, assets: map[string]string{upstream: assets,
		keepwatch: assets}}
	c.run(t, targets(), which)
}
