package suites

import (
	"flag"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	runFlag    = flag.String("suites.run", "", "run the suites whose name matches the regular expression")
	testsFlag  = flag.String("suites.tests", "", "run only these tests, as go test -run")
	repeatFlag = flag.Int("suites.repeat", 3, "how often to repeat what differs, in each mode")
	tableFlag  = flag.Bool("suites.table", false, "print the table of all saved results")
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
	makeAssets(t, assets)
	for _, target := range targets() {
		if !which.MatchString(target.name) {
			continue
		}
		t.Run(target.name, func(t *testing.T) {
			p := program{
				target: target, assets: assets, logs: out,
				binary: filepath.Join(out, strings.ReplaceAll(target.name, "/", "."), path.Base(target.folder)+".test"), // clients are named after it
			}
			if p.dir, err = work.compile(t.Context(), target, p.binary); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(filepath.Dir(p.binary))
			r := &result{
				Target: target.name, Commit: commit(t.Context(), root),
				Seconds: map[string]float64{}, Outcomes: map[string]outcomes{},
			}
			for _, mode := range modes {
				found, elapsed := p.run(t, mode, "all", selection{tests: *testsFlag})
				r.Outcomes[mode], r.Seconds[mode] = found, elapsed.Seconds()
				t.Logf("--reads=%s: %d passed, %d failed, %d skipped in %.0f s", mode,
					r.count(mode, passed), r.count(mode, failed), r.count(mode, skipped), elapsed.Seconds())
			}
			p.repeat(t, r, *repeatFlag)
			if *testsFlag == "" {
				if err := r.save(out); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range r.differences() {
				report := t.Errorf
				if r.explained(name) {
					report = t.Logf
				}
				report("%s: upstream %s, repeated %v; keepwatch %s, repeated %v", name,
					orMissing(r.Outcomes[upstream], name), r.Repeated[upstream][name],
					orMissing(r.Outcomes[keepwatch], name), r.Repeated[keepwatch][name])
			}
		})
	}
}
