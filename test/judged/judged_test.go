// Package judged judges operators of other languages than Go, with mistakes that their flag --bug seeds, and without
// one. Each is an operator of Widgets with its language's usual client, in test/matrix/clients.
package judged

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedsFlag = flag.Int("judged.seeds", 1, "how many seeds choose plans for each operator without a bug")
	plansFlag = flag.Int("judged.plans", 4, "how many plans a seed chooses")
)

// language is an operator, as a command.
type language struct {
	name    string
	command []string
	needs   string // a file that its command lacks without make
	make    string // what makes it
}

var languages = []language{
	{
		name: "javascript", command: []string{"node", "test/matrix/clients/javascript/widgets.mjs"},
		needs: "test/matrix/clients/javascript/node_modules", make: "javascript",
	},
	{
		name: "java", command: []string{"java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
			"-cp", "bin/java/7.9.0/widgets:bin/java/7.9.0/lib/*", "Widgets"},
		needs: "bin/java/7.9.0/widgets", make: "java",
	},
	{
		name: "rust", command: []string{"bin/rust/debug/widgets"}, needs: "bin/rust/debug/widgets", make: "rust",
	},
}

// bug is a mistake that a flag seeds: the kind of plans that shows it, and its verdict.
type bug struct{ name, plan, verdict string }

// bugs begin with those that are judged with -short.
var bugs = []bug{
	{"generate-name", "lost-answer:1:create:configmaps:default/web-*:1", "duplicated"},
	{"finalizer", "crash-after-write", "leaked"},
	{"status-first", "crash-after-write", "diverged"},
	{"hot-loop", "conflict", "restless"},
	{"event-only", "downtime", "leaked"},
	{"fight", "foreign-annotation", "fighting"},
	{"intermediate", "unobserved", "diverged"},
	{"password", "crash-after-write", "diverged"},
	{"put", "foreign-edit", "overwritten"},
	{"right", "failing", "forbidden"},
	{"stale-cache", "stale-restart", "duplicated"},
}

// eachLanguage runs a test for each operator that this machine can run.
func eachLanguage(t *testing.T, test func(*testing.T, language)) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(root, l.needs)); err != nil {
				t.Skipf("the operator is NOT judged: run make %s", l.make)
			}
			test(t, l)
		})
	}
}

// Each seeded bug is found by its plans. With -short it is the first one.
func TestSeededBugs(t *testing.T) {
	eachLanguage(t, func(t *testing.T, l language) {
		for i, b := range bugs {
			if testing.Short() && i > 0 {
				continue
			}
			t.Run(b.name, func(t *testing.T) {
				r := judge(t, l, []string{"--bug", b.name}, "--plan", b.plan, "--patience", "10s", "--repeat", "1")
				found := func(f finding) bool { return f.Verdict == b.verdict }
				if !slices.ContainsFunc(r.Findings, found) {
					t.Errorf("not %s in %v of %v, %s", b.verdict, r.Findings, r.Results, r.Stopped)
				}
			})
		}
	})
}

// Without a bug, an operator has no finding.
func TestCorrectTwins(t *testing.T) {
	eachLanguage(t, func(t *testing.T, l language) {
		for seed := 1; seed <= *seedsFlag; seed++ {
			r := judge(t, l, nil, "--limit", fmt.Sprint(*plansFlag), "--seed", fmt.Sprint(seed), "--patience", "5m")
			reached := func(one result) bool { return one.Reached }
			if len(r.Findings) > 0 || len(r.Results) != *plansFlag || !slices.ContainsFunc(r.Results, reached) {
				t.Errorf("seed %d: %v of %v, %s", seed, r.Findings, r.Results, r.Stopped)
			}
		}
	})
}

// report is what the tests read of a report.
type report struct {
	Findings []finding `json:"findings"`
	Results  []result  `json:"results"`
	Stopped  string    `json:"stopped"`
}

type result struct {
	Plan    json.RawMessage `json:"plan"`
	Reached bool            `json:"reached"`
	Reason  string          `json:"reason"`
}

func (r result) String() string { return fmt.Sprintf("%s reached %v %s", r.Plan, r.Reached, r.Reason) }

type finding struct {
	Verdict string          `json:"verdict"`
	Plan    json.RawMessage `json:"plan"`
	Facts   []string        `json:"facts"`
}

func (f finding) String() string { return fmt.Sprintf("%s %s: %q", f.Verdict, f.Plan, f.Facts) }

func judge(t *testing.T, l language, operator []string, flags ...string) report {
	t.Helper()
	args := slices.Concat([]string{
		"judge", "--crds", "examples/widgets.yaml", "--rbac", "test/judged/testdata/rbac.yaml",
		"--workload", "test/judged/testdata/workload", "--shrink=false", "-o", "json",
	}, flags, []string{"--"}, l.command, operator)
	cmd := exec.CommandContext(t.Context(), peer.Keepwatch(t), args...)
	cmd.Dir = root
	out, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, out, exit.Stderr)
	}
	return r
}
