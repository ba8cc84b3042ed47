package suites

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// comparison runs packages of tests in both modes.
type comparison struct {
	root          string // of the repository
	logs, results string // folders
	work          workspace
	env           []string          // of the tests, beside the test's own
	assets        map[string]string // by mode
	reasons       []Reason          // of tests that are known to fail with Keepwatch
}

// run compares the packages whose name matches. A test with other outcomes is a failure, unless its repetition shows
// that it is a flake, or its reason is known.
func (c comparison) run(t *testing.T, targets []target, which *regexp.Regexp) {
	for _, target := range targets {
		if !which.MatchString(target.name) {
			continue
		}
		t.Run(target.name, func(t *testing.T) {
			r := c.compare(t, target)
			if r.count(upstream, passed) == 0 && *testsFlag == "" {
				t.Fatalf("no test passes in the mode %s: see %s. With -trimpath in GOFLAGS, tests do not find the files beside them", upstream, c.logs)
			}
			if err := c.save(r); err != nil {
				t.Fatal(err)
			}
			for _, name := range r.differences() {
				report := t.Errorf
				if r.explained(name) || reasonOf(c.reasons, name) != notAnalysed {
					report = t.Logf
				}
				report("%s: upstream %s, repeated %v; keepwatch %s, repeated %v", name,
					orMissing(r.Outcomes[upstream], name), r.Repeated[upstream][name],
					orMissing(r.Outcomes[keepwatch], name), r.Repeated[keepwatch][name])
			}
		})
	}
}

// save saves the outcomes. Those of some tests replace theirs in what is saved.
func (c comparison) save(r *result) error {
	if *testsFlag == "" {
		return r.save(c.results)
	}
	saved, err := load(c.results, []target{{name: r.Target}})
	if err != nil {
		return err
	}
	if len(saved) == 0 {
		return r.save(c.results)
	}
	saved[0].replace(r)
	return saved[0].save(c.results)
}

// compare runs the tests of a package in both modes, and repeats those that differ.
func (c comparison) compare(t *testing.T, target target) *result {
	p := c.compile(t, target)
	defer os.RemoveAll(filepath.Dir(p.binary))
	r := &result{
		Target: target.name, Commit: commit(t.Context(), c.root),
		Seconds: map[string]float64{}, Outcomes: map[string]outcomes{},
	}
	for _, mode := range modes {
		found, elapsed := p.run(t, mode, "all", p.selected(*testsFlag))
		r.Outcomes[mode], r.Seconds[mode] = found, elapsed.Seconds()
		t.Logf("%s: %d passed, %d failed, %d skipped in %.0f s", mode,
			r.count(mode, passed), r.count(mode, failed), r.count(mode, skipped), elapsed.Seconds())
	}
	p.repeat(t, r, *repeatFlag)
	return r
}

// compile compiles the tests of a package. The caller removes the folder of the binary.
func (c comparison) compile(t *testing.T, target target) program {
	t.Helper()
	p := program{
		target: target, assets: c.assets, logs: c.logs, env: c.env,
		// clients are named after it
		binary: filepath.Join(c.logs, strings.ReplaceAll(target.name, "/", "."), path.Base(target.folder)+".test"),
	}
	var err error
	if p.dir, err = c.work.compile(t.Context(), target, p.binary); err != nil {
		t.Fatal(err)
	}
	return p
}
